"""What an overlay asks of the membership part."""

from typing import Protocol

from peer.core.bitset import Bitset
from peer.core.contract import NodeId, TopicId


class Membership(Protocol):
    """A view of the network, which may be another one at the next event."""

    @property
    def known(self) -> Bitset:
        """The nodes one may connect to, never this one."""
        ...

    def topics_of(self, node: NodeId) -> frozenset[TopicId]:
        """What a node is said to subscribe to; empty when nothing is said."""
        ...

    def subscribers(self, topic: TopicId) -> Bitset:
        """The known nodes that are said to subscribe to a topic."""
        ...
