"""What the bootstrap service tells: the nodes of the network and, where it discloses them, their interests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from msgspec import Struct

from peer.core.bitset import Bitset, bitset
from peer.core.identifiers import NodeId, TopicId


class PeerInfo(Struct, frozen=True):
    """What the bootstrap or a membership service says of a node.

    ``topics`` is None when the service does not disclose interests.
    """

    node: NodeId
    topics: tuple[TopicId, ...] | None = None


class Directory:
    """Nodes and their interests at one instant. Immutable, so that all nodes of a process share one.

    Attributes:
        peers: an entry a node, in rising order of nodes; the receiver of a directory may be among them.
    """

    def __init__(self, peers: Iterable[PeerInfo] = ()) -> None:
        self.peers = tuple(sorted(peers, key=lambda info: info.node))

    def __eq__(self, other: object) -> bool:
        """Equal entries."""
        return isinstance(other, Directory) and self.peers == other.peers

    def __hash__(self) -> int:
        """By the entries."""
        return hash(self.peers)

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.peers)

    def __iter__(self) -> Iterator[PeerInfo]:
        """The entries."""
        return iter(self.peers)

    def __repr__(self) -> str:
        """The entries."""
        return f"Directory({self.peers!r})"

    @cached_property
    def nodes(self) -> Bitset:
        """All nodes."""
        return bitset(info.node for info in self.peers)

    def topics_of(self, node: NodeId) -> frozenset[TopicId]:
        """What a node is said to subscribe to; empty for nodes that are not here or do not say."""
        return self._interests.get(node, frozenset())

    def subscribers(self, topic: TopicId) -> Bitset:
        """The nodes that are said to subscribe to a topic."""
        return self._subscribers.get(topic, 0)

    @cached_property
    def _interests(self) -> dict[NodeId, frozenset[TopicId]]:
        return {info.node: frozenset(info.topics or ()) for info in self.peers}

    @cached_property
    def _subscribers(self) -> dict[TopicId, Bitset]:
        nodes: dict[TopicId, list[NodeId]] = {}
        for info in self.peers:
            for topic in info.topics or ():
                nodes.setdefault(topic, []).append(info.node)
        return {topic: bitset(subscribers) for topic, subscribers in nodes.items()}
