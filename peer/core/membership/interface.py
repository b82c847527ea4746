"""The interface of the membership part for overlays."""

from typing import Protocol

from peer.core.bitset import Bitset
from peer.core.contract import NodeId, TopicId


class Membership(Protocol):
    """A view of the network. Each event may change it."""

    @property
    def known(self) -> Bitset:
        """The nodes that this node may connect to, without itself."""
        ...

    def topics_of(self, node: NodeId) -> frozenset[TopicId]:
        """Return the topics that a node subscribes to, as far as they are disclosed."""
        ...

    def subscribers(self, topic: TopicId) -> Bitset:
        """Return the known nodes that subscribe to a topic, as far as they disclose it."""
        ...
