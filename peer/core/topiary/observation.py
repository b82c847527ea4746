"""What a node sees in an epoch: when each of its neighbours brought it each message."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from peer.core.contract import MessageId, NodeId, TopicId

NEVER = -1
"""The arrival of a copy that did not come."""


class Arrivals(NamedTuple):
    """A message as an epoch's outgoing neighbours brought it.

    Attributes:
        topics: the message's.
        delays_ns: (time behind the earliest copy from any neighbour, column), rising; those who did not bring it are
            left out.
    """

    topics: tuple[TopicId, ...]
    delays_ns: list[tuple[int, int]]


class Observation:
    """Arrivals of one epoch, a row a message, a column an outgoing neighbour.

    Args:
        columns: the outgoing neighbours, fixed for the epoch.
    """

    __slots__ = ("_arrivals", "_column", "_earliest", "_places", "_topics", "columns")

    def __init__(self, columns: Sequence[NodeId]) -> None:
        self.columns = tuple(columns)
        self._column = {peer: index for index, peer in enumerate(self.columns)}
        self._places: dict[MessageId, int] = {}
        self._topics: list[tuple[TopicId, ...]] = []
        self._earliest = array("q")
        self._arrivals = array("q")

    def __len__(self) -> int:
        """The messages seen."""
        return len(self._topics)

    def arrive(self, now_ns: int, peer: NodeId, identifier: MessageId, topics: tuple[TopicId, ...]) -> bool:
        """A copy came in from a neighbour.

        Returns:
            Whether it is the first one of its message.
        """
        place = self._places.get(identifier)
        is_first = place is None
        if place is None:
            place = self._places[identifier] = len(self._topics)
            self._topics.append(topics)
            self._earliest.append(now_ns)
            self._arrivals.extend([NEVER] * len(self.columns))
        column = self._column.get(peer)
        if column is not None:
            cell = place * len(self.columns) + column
            if self._arrivals[cell] == NEVER:
                self._arrivals[cell] = now_ns
        return is_first

    def rows(self) -> Iterator[Arrivals]:
        """Each message's arrivals.

        Source: Topiary section IV-A, Eq. 1.
        """
        width = len(self.columns)
        for place, topics in enumerate(self._topics):
            earliest_ns = self._earliest[place]
            row = self._arrivals[place * width : (place + 1) * width]
            delays_ns = [(at - earliest_ns, column) for column, at in enumerate(row) if at != NEVER]
            delays_ns.sort()
            yield Arrivals(topics, delays_ns)
