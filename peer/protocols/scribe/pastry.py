"""Pastry: keys on a ring, and the next node on the way to the node whose key is numerically closest to a given key."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

from peer.core.bitset import Bitset
from peer.core.contract import NodeId

KEY_BITS = 128
SPACE = 1 << KEY_BITS

Key = int
"""A point on the ring, 0 .. 2**128 - 1."""


def make_key(name: str) -> Key:
    """Return the key of a name: a hash that is uniform over the ring and the same for all nodes."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[: KEY_BITS // 8], "big")


@lru_cache(maxsize=1 << 17)
def node_key(node: NodeId) -> Key:
    """Return a node's key."""
    return make_key(f"node/{node}")


def distance(one: Key, other: Key) -> int:
    """Return the distance of two keys along the shorter way around the ring."""
    gap = (one - other) % SPACE
    return min(gap, SPACE - gap)


class Ring:
    """All nodes with numbers below ``width`` in the order of their keys. All nodes share it, since numbers give keys.

    Attributes:
        keys: the keys of the nodes, in rising order.
        nodes: the node of each key.
        places: the index of each node.
    """

    def __init__(self, width: int) -> None:
        self.nodes = sorted(range(width), key=node_key)
        self.keys = [node_key(node) for node in self.nodes]
        self.places = {node: place for place, node in enumerate(self.nodes)}


@lru_cache(maxsize=8)
def shared_ring(width_bits: int) -> Ring:
    """Return the ring of the nodes with numbers below 2 ** ``width_bits``."""
    return Ring(1 << width_bits)


class Pastry:
    """The routing of one node: a leaf set and a routing table, which are computed from the nodes that it knows.

    The table's entry for a row and a digit is one of the known nodes that share the row's digits with this node and
    continue with that digit. Pastry takes a nearby node. Here, nodes do not know distances. Each node begins its search
    at a different place among the candidates, so that the load spreads.

    Args:
        node: this node.
        digit_bits: bits of a digit, a divisor of ``KEY_BITS`` (b).
        leaf_set: the number of known nodes next to this one on the ring that it routes to directly, half of them on
            each side (|L|).

    Source: Rowstron and Druschel, Pastry (Middleware 2001), node state and routing.
    """

    def __init__(self, node: NodeId, digit_bits: int, leaf_set: int) -> None:
        self._node = node
        self._digit_bits = digit_bits
        self._half = leaf_set // 2
        self._key = node_key(node)
        self._ring = shared_ring(node.bit_length())
        self._known: Bitset = 0
        self._leaves: tuple[NodeId, ...] = ()
        self._arc: tuple[Key, int] | None = None

    def next_hop(self, key: Key, known: Bitset, attempt: int = 0) -> NodeId | None:
        """Return the next known node on the way to a key; None if this node's key is the closest.

        Args:
            key: the key.
            known: the known nodes.
            attempt: how many entries of the table to skip, since they did not help before.
        """
        self._know(known)
        if self._arc is None or (key - self._arc[0]) % SPACE <= self._arc[1]:
            closest = min((*self._leaves, self._node), key=lambda node: self._rank(key, node))
            return None if closest == self._node else closest
        entry = self._entry(key, attempt)
        return self.nearer(key, self._leaves) if entry is None else entry

    def nearer(self, key: Key, nodes: Iterable[NodeId]) -> NodeId | None:
        """Return the node that is closest on the way to a key; None if none is.

        A node is on the way if it shares at least as many digits with the key as this node, and is closer.
        """
        row, rank = self._shared(key, self._node), self._rank(key, self._node)
        fit = [node for node in nodes if self._shared(key, node) >= row and self._rank(key, node) < rank]
        return min(fit, key=lambda node: (-self._shared(key, node), self._rank(key, node)), default=None)

    def _rank(self, key: Key, node: NodeId) -> tuple[int, NodeId]:
        return distance(node_key(node), key), node

    def _shared(self, key: Key, node: NodeId) -> int:
        """Return the number of leading digits that a node's key shares with another key."""
        return (KEY_BITS - (node_key(node) ^ key).bit_length()) // self._digit_bits

    def _know(self, known: Bitset) -> None:
        """Recompute the leaf set if the known nodes have changed."""
        if known == self._known:
            return
        self._known = known
        self._ring = shared_ring(max(known.bit_length() - 1, self._node).bit_length())
        place, width = self._ring.places[self._node], len(self._ring.nodes)
        after = self._first_known(range(place + 1, place + width))
        before = self._first_known(range(place - 1, place - width, -1))
        self._leaves = tuple(dict.fromkeys((*after, *before)))
        self._arc = None
        if len(self._leaves) == 2 * self._half:
            first, last = node_key(before[-1]), node_key(after[-1])
            self._arc = first, (last - first) % SPACE

    def _first_known(self, places: Iterable[int]) -> list[NodeId]:
        found: list[NodeId] = []
        for node in self._known_at(places):
            found.append(node)
            if len(found) == self._half:
                break
        return found

    def _entry(self, key: Key, attempt: int) -> NodeId | None:
        """Return the table's entry for the first digit in which this node's key differs from another key."""
        shift = KEY_BITS - (self._shared(key, self._node) + 1) * self._digit_bits
        first = bisect_left(self._ring.keys, key >> shift << shift)
        last = bisect_left(self._ring.keys, ((key >> shift) + 1) << shift)
        if first == last:
            return None
        start = first + (self._key + attempt) % (last - first)
        return next(self._known_at((*range(start, last), *range(first, start))), None)

    def _known_at(self, places: Iterable[int]) -> Iterator[NodeId]:
        nodes, width, known = self._ring.nodes, len(self._ring.nodes), self._known
        return (node for node in (nodes[place % width] for place in places) if known >> node & 1)
