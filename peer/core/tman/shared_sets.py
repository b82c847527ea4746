"""Results that depend on a set of topics, for all nodes of a process that know the same set."""

from collections.abc import Callable
from typing import Generic, TypeVar

from peer.core.identifiers import TopicId

Topics = frozenset[TopicId]
Result = TypeVar("Result")

MOST_TOPICS = 2_000_000
"""Most topics of all sets that are kept for one function, added up: some 100 MiB."""


class PerSet(Generic[Result]):
    """A function of a set of topics that keeps its results.

    The neighbours of a node, and the nodes of a simulation, ask for the same few sets again and again. Sets that remote
    nodes invent are forgotten, with all others, before they take too much memory.
    """

    __slots__ = ("_function", "_results", "_topics")

    def __init__(self, function: Callable[[Topics], Result]) -> None:
        self._function = function
        self._results: dict[Topics, Result] = {}
        self._topics = 0

    def __call__(self, topics: Topics) -> Result:
        result = self._results.get(topics)
        if result is None:
            self._topics += len(topics) + 1
            if self._topics > MOST_TOPICS:
                self._results.clear()
                self._topics = len(topics) + 1
            result = self._results[topics] = self._function(topics)
        return result
