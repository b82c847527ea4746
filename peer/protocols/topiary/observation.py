"""The observation of an epoch: when each neighbour brought each message."""

from array import array
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from peer.core.contract import MessageId, NodeId, TopicId, publisher_of


class Arrivals(NamedTuple):
    """The arrivals of one message from the outgoing neighbours of an epoch.

    Attributes:
        topics: the message's topics.
        delays_ns: (ns after the earliest copy from any neighbour, column), in rising order; only for neighbours that
            brought the message.
    """

    topics: tuple[TopicId, ...]
    delays_ns: list[tuple[int, int]]


class Observation:
    """The copies of one epoch in the order of their arrival. ``rows`` groups them by message after the epoch.

    During the epoch, a copy is only appended to a list. Finding the row of its message and the place of its neighbour
    would wait for memory, which slows down a simulation of a thousand nodes already.

    Args:
        columns: the outgoing neighbours, fixed for the epoch.
        node: the observing node. Copies of its own messages do not count: they do not show who brings messages early.
        passed: messages with a copy before the observation. They do not count, since their earliest copy is unknown.
    """

    __slots__ = ("_copies", "_node", "_passed", "_topics", "columns")

    def __init__(self, columns: Sequence[NodeId], node: NodeId, passed: Set[MessageId] = frozenset()) -> None:
        self.columns = tuple(columns)
        self._node = node
        self._passed = passed
        self._topics: dict[MessageId, tuple[TopicId, ...]] = {}
        self._copies = array("q")  # three items per copy: instant, neighbour, message

    def __len__(self) -> int:
        return len(self._topics)

    def arrive(self, now_ns: int, peer: NodeId, identifier: MessageId, topics: tuple[TopicId, ...]) -> bool:
        """Note a copy from a neighbour.

        Args:
            now_ns: the present instant (ns).
            peer: the neighbour.
            identifier: the message's id.
            topics: the message's topics.

        Returns:
            Whether it is the first copy of a message that counts.
        """
        self._copies.extend((now_ns, peer, identifier))
        if identifier in self._topics or identifier in self._passed or publisher_of(identifier) == self._node:
            return False
        self._topics[identifier] = topics
        return True

    def rows(self) -> Iterator[Arrivals]:
        """Yield the arrivals of each message, in the order in which the messages arrived.

        Source: Topiary section IV-A, Eq. 1.
        """
        column_of = {peer: column for column, peer in enumerate(self.columns)}
        earliest_ns: dict[MessageId, int] = {}
        brought: dict[MessageId, dict[int, int]] = {identifier: {} for identifier in self._topics}
        for now_ns, peer, identifier in zip(self._copies[::3], self._copies[1::3], self._copies[2::3], strict=True):
            since_ns = earliest_ns.setdefault(identifier, now_ns)
            column = column_of.get(peer)
            if column is not None and identifier in brought:
                brought[identifier].setdefault(column, now_ns - since_ns)
        for identifier, topics in self._topics.items():
            delays_ns = [(delay_ns, column) for column, delay_ns in brought[identifier].items()]
            delays_ns.sort()
            yield Arrivals(topics, delays_ns)
