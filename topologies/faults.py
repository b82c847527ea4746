"""The errors of an underlay's data."""

from __future__ import annotations


class UnderlayError(ValueError):
    """Data or parameters of an underlay are invalid.

    ``place`` is a file, with line and column where there are any (``latency.csv:3:7``), or a parameter's name.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem
