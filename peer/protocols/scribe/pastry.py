"""Pastry: keys on a ring, and the next node on the way to the one whose key is numerically closest to a given one."""

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
    """The key of what is called ``name``: a hash, hence uniform over the ring, and the same for everybody."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[: KEY_BITS // 8], "big")


@lru_cache(maxsize=1 << 17)
def node_key(node: NodeId) -> Key:
    """A node's key."""
    return make_key(f"node/{node}")


def distance(one: Key, other: Key) -> int:
    """How far apart two keys are, the shorter way round the ring."""
    gap = (one - other) % SPACE
    return min(gap, SPACE - gap)


class Ring:
    """All nodes numbered below ``width`` in the order of their keys. Keys follow from numbers, so all nodes share it.

    Attributes:
        keys: theirs, rising.
        nodes: whose each of them is.
        places: where each node stands among them.
    """

    def __init__(self, width: int) -> None:
        self.nodes = sorted(range(width), key=node_key)
        self.keys = [node_key(node) for node in self.nodes]
        self.places = {node: place for place, node in enumerate(self.nodes)}


@lru_cache(maxsize=8)
def shared_ring(width_bits: int) -> Ring:
    """The ring of the nodes below 2 ** ``width_bits``."""
    return Ring(1 << width_bits)


class Pastry:
    """One node's routing: a leaf set and a routing table, made of the nodes that it knows when they are looked at.

    The table's entry for a row and a digit is one of the known nodes that share the row's digits with this node and
    continue with that digit. Pastry takes a nearby node. Here, nodes do not know distances: each node begins its search
    at a different place among the candidates, so that the load spreads.

    Args:
        node: this node.
        digit_bits: bits of a digit, a divisor of ``KEY_BITS``. (b)
        leaf_set: how many known nodes next to this one on the ring it may go to directly, half of them on each side.
            (|L|)

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
        """The known node to go to on the way to a key; None where this one's key is the closest.

        ``attempt``: how many of the table's entries turned out to be of no use and are skipped.
        """
        self._know(known)
        if self._arc is None or (key - self._arc[0]) % SPACE <= self._arc[1]:
            closest = min((*self._leaves, self._node), key=lambda node: self._rank(key, node))
            return None if closest == self._node else closest
        entry = self._entry(key, attempt)
        return self.nearer(key, self._leaves) if entry is None else entry

    def nearer(self, key: Key, nodes: Iterable[NodeId]) -> NodeId | None:
        """Of some nodes the one that is most on the way to a key: it shares as many digits and is closer than this."""
        row, rank = self._shared(key, self._node), self._rank(key, self._node)
        fit = [node for node in nodes if self._shared(key, node) >= row and self._rank(key, node) < rank]
        return min(fit, key=lambda node: (-self._shared(key, node), self._rank(key, node)), default=None)

    def _rank(self, key: Key, node: NodeId) -> tuple[int, NodeId]:
        return distance(node_key(node), key), node

    def _shared(self, key: Key, node: NodeId) -> int:
        """How many leading digits a node's key shares with another one."""
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
        """The table's entry for the first digit in which this node's key differs from another one."""
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
