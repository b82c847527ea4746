"""Results of functions of a set of topics, shared by all nodes of a process."""

from collections.abc import Callable
from typing import TypeVar

from peer.core.identifiers import TopicId

Topics = frozenset[TopicId]
Result = TypeVar("Result")

MOST_TOPICS = 2_000_000
"""Most topics in all sets that are kept for one function: about 100 MiB."""


class PerSet(dict[Topics, Result]):
    """A function of a set of topics that keeps its results. Call it as ``results[topics]``.

    The neighbours of a node, and the nodes of a simulation, use the same few sets again and again. All results are
    forgotten when the sets take too much memory, since remote nodes may invent sets.

    Args:
        function: computes the result of a set.
        size: the memory that a set and its result take, in topics: about 50 bytes each.
    """

    __slots__ = ("_function", "_size", "_topics")

    def __init__(self, function: Callable[[Topics], Result], size: Callable[[Topics], int] = len) -> None:
        super().__init__()
        self._function = function
        self._size = size
        self._topics = 0

    def __missing__(self, topics: Topics) -> Result:
        size = self._size(topics) + 1
        self._topics += size
        if self._topics > MOST_TOPICS:
            self.clear()
            self._topics = size
        result = self[topics] = self._function(topics)
        return result
