"""What a node sees in an epoch: when each of its neighbours brought it each message."""

from array import array
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from peer.core.contract import MessageId, NodeId, TopicId, publisher_of


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
    """Copies of one epoch in the order of their arrival; rows are made of them when it is over.

    While it lasts a copy is only noted at the end of a list: to look up its message's row and the place of its
    neighbour there would wait for memory, which a simulation of a thousand nodes does already.

    Args:
        columns: the outgoing neighbours, fixed for the epoch.
        node: whose observation it is; copies of its own messages tell nothing of who brings messages early.
        passed: messages of which a copy came before; who brought the earliest is not known of them.
    """

    __slots__ = ("_copies", "_node", "_passed", "_topics", "columns")

    def __init__(self, columns: Sequence[NodeId], node: NodeId, passed: Set[MessageId] = frozenset()) -> None:
        self.columns = tuple(columns)
        self._node = node
        self._passed = passed
        self._topics: dict[MessageId, tuple[TopicId, ...]] = {}
        self._copies = array("q")  # of each: instant, neighbour, message

    def __len__(self) -> int:
        return len(self._topics)

    def arrive(self, now_ns: int, peer: NodeId, identifier: MessageId, topics: tuple[TopicId, ...]) -> bool:
        """A copy came in from a neighbour.

        Returns:
            Whether it is the first one of a message that counts.
        """
        self._copies.extend((now_ns, peer, identifier))
        if identifier in self._topics or identifier in self._passed or publisher_of(identifier) == self._node:
            return False
        self._topics[identifier] = topics
        return True

    def rows(self) -> Iterator[Arrivals]:
        """Each message's arrivals, in the order in which messages came in.

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
