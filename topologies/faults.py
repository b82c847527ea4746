"""What is wrong with an underlay's data, and where."""

from __future__ import annotations


class UnderlayError(ValueError):
    """Data or parameters from which no underlay can be built.

    ``place`` is a file, with line and column where there are any (``latency.csv:3:7``), or a parameter's name.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem
