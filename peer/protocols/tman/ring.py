"""A ring of identifiers that nodes and topics share, and the nodes on it in order."""

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterable
from functools import cache, lru_cache

from peer.core.identifiers import NodeId, TopicId

KEY_BITS = 64
SPACE = 1 << KEY_BITS
MASK = SPACE - 1

Key = int
"""A point on the ring, 0 .. 2**64 - 1."""


def make_key(name: str) -> Key:
    """Hash a name to a point on the ring: uniform, and the same for every node."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[: KEY_BITS // 8], "big")


@cache
def node_key(node: NodeId) -> Key:
    """Return the point of a node. The result is cached, so call it only with numbers that may be a node's."""
    return make_key(f"node/{node}")


@lru_cache(maxsize=1 << 17)
def topic_key(topic: TopicId) -> Key:
    """Return the point of a topic."""
    return make_key(f"topic/{topic}")


def distance(one: Key, other: Key) -> int:
    """Return the distance of two points along the shorter way around the ring."""
    gap = (one - other) & MASK
    return min(gap, SPACE - gap)


def rank(node: NodeId, key: Key) -> tuple[int, NodeId]:
    """Return the key that sorts nodes by their distance to a point, then by their numbers."""
    return distance(node_key(node), key), node


class PrivateOrder:
    """A pseudo-random order of all nodes that never changes and differs between owners."""

    __slots__ = ("_factor",)

    def __init__(self, owner: NodeId) -> None:
        self._factor = node_key(owner) | 1

    def place(self, node: NodeId) -> int:
        """Return the number that sorts a node."""
        return (node_key(node) * self._factor) & MASK


class RingOrder:
    """Some nodes in the order of their points.

    Attributes:
        nodes: in rising order of ``keys``; nodes with equal keys are in rising order of their numbers.
        keys: the point of each.
    """

    __slots__ = ("_members", "keys", "nodes")

    def __init__(self, nodes: Iterable[NodeId]) -> None:
        self._members = frozenset(nodes)
        pairs = sorted([(node_key(node), node) for node in self._members])
        self.keys = [key for key, _ in pairs]
        self.nodes = [node for _, node in pairs]

    def __contains__(self, node: object) -> bool:
        return node in self._members

    def nearest(self, key: Key, taken: Collection[NodeId] = ()) -> NodeId | None:
        """Return the node closest to a point that is not ``taken``; None if all are."""
        nodes, keys = self.nodes, self.keys
        count = len(nodes)
        right = bisect_left(keys, key)
        left = right - 1
        free = count
        while free and nodes[right % count] in taken:
            right, free = right + 1, free - 1
        if not free:
            return None
        while nodes[left % count] in taken:
            left -= 1
        after, before = right % count, left % count
        if after == before:
            return nodes[after]
        gap_after, gap_before = (keys[after] - key) & MASK, (key - keys[before]) & MASK
        ahead = min(gap_after, SPACE - gap_after), nodes[after]
        behind = min(gap_before, SPACE - gap_before), nodes[before]
        return min(ahead, behind)[1]

    def neighbours(self, key: Key) -> tuple[NodeId, NodeId]:
        """Return the first node after a point and the last one before it.

        The ring must have a node, but none at the point.
        """
        at = bisect_left(self.keys, key)
        return self.nodes[at % len(self.nodes)], self.nodes[at - 1]
