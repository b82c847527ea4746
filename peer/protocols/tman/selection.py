"""The structured part of a routing table: ring neighbours and Symphony's long links."""

from bisect import bisect_right
from collections.abc import Iterable
from math import log2
from random import Random

from peer.core.identifiers import NodeId
from peer.protocols.tman.ring import MASK, SPACE, Key, RingOrder, distance, node_key

RING_LINKS = 2
"""The number of links to predecessor and successor."""

TOLERANCE = 1 / 8
"""Largest error of a long link's distance, relative to the drawn distance, at which the node keeps the link."""


class SmallWorld:
    """Chooses successor, predecessor and small-world neighbours from the nodes that a node knows.

    Each long link has a clockwise distance that is drawn once from the harmonic distribution: the probability of a
    distance is inversely proportional to it. The link goes to the known node closest to the point at that distance. It
    stays while its distance differs from the drawn one by at most ``TOLERANCE`` of the latter, even if the node learns
    of closer nodes. Links that move without need would cut relay paths.

    Args:
        node: this node.
        long_links: number of small-world neighbours besides successor and predecessor.
        draws: the generator for the distances.
        nodes: the number of nodes; None = estimate it.

    Attributes:
        ring: successor and predecessor of the latest choice; empty before the first.
        distances: the clockwise distances of the long links, for the latest number of nodes.
        edges: the ends of the arcs in which another node would change the choice, in rising order.

    Source: Manku, Bawa, Raghavan: Symphony (USITS 2003), sections 3.1 and 3.3 (estimate); Vitis section III-A1.
    """

    __slots__ = ("_arc", "_exponents", "_held", "_key", "_network", "_nodes", "distances", "edges", "ring")

    def __init__(self, node: NodeId, long_links: int, draws: Random, nodes: int | None) -> None:
        self._key = node_key(node)
        self._exponents = tuple(draws.random() - 1 for _ in range(long_links))
        self._nodes = nodes
        self._network = 0
        self.distances: tuple[int, ...] = ()
        self.edges = [0]
        self._arc = (0, SPACE)
        self._held: list[NodeId | None] = [None] * long_links
        self.ring: tuple[NodeId, ...] = ()

    def choose(self, known: RingOrder) -> dict[NodeId, None]:
        """Choose successor, predecessor and small-world neighbours, in this order; fewer if fewer nodes are known."""
        if not known.nodes:
            return {}
        successor, predecessor = self.ring = known.neighbours(self._key)
        chosen = {successor: None, predecessor: None}
        self._arc = node_key(predecessor), (node_key(successor) - node_key(predecessor)) & MASK or MASK
        arcs = [self._arc]
        for slot, reach in enumerate(self._draw_distances(successor, predecessor)):
            point, held = (self._key + reach) & MASK, self._held[slot]
            if held is not None and (held not in known or held in chosen):
                held = None
            error = distance(node_key(held), point) if held is not None else SPACE
            if error > reach * TOLERANCE:
                held = known.nearest(point, chosen)
                error = distance(node_key(held), point) if held is not None else SPACE
            if held is None:
                arcs = [(0, MASK)]
                break
            if error > reach * TOLERANCE:
                arcs.append(((point - error) & MASK, min(2 * error, MASK)))
            chosen[held] = None
            self._held[slot] = held
        self.edges = _outline(arcs)
        return chosen

    def would_choose(self, node: NodeId) -> bool:
        """Return whether knowing another node may change the choice, by the node's place on the ring."""
        return bisect_right(self.edges, node_key(node)) & 1 == 1

    def is_between(self, node: NodeId) -> bool:
        """Return whether another node is closer on the ring than successor or predecessor."""
        start, length = self._arc
        return 0 < (node_key(node) - start) & MASK < length

    def _draw_distances(self, successor: NodeId, predecessor: NodeId) -> tuple[int, ...]:
        """Return the clockwise distances of the long links: the ring times N ** (u - 1), for N nodes.

        Without a configured N, the two ring segments next to this node give an estimate of it, a power of two.
        """
        network = self._nodes
        if network is None:
            segments = (node_key(successor) - self._key & MASK) + (self._key - node_key(predecessor) & MASK)
            network = 1 << max(1, round(log2(2 * SPACE / max(segments, 1))))
        if network != self._network:
            self._network = network
            self.distances = tuple(int(SPACE * network**exponent) & MASK for exponent in self._exponents)
        return self.distances


def _outline(arcs: Iterable[tuple[Key, int]]) -> list[Key]:
    """Return the edges of the union of arcs (start, length), in rising order. A key after an odd number is inside."""
    spans: list[tuple[int, int]] = []
    for start, length in arcs:
        end = start + length
        spans.append((start, min(end, MASK)))
        if end > MASK:
            spans.append((0, end & MASK))
    edges: list[int] = []
    for start, end in sorted(spans):
        if edges and start <= edges[-1]:
            edges[-1] = max(edges[-1], end + 1)
        else:
            edges += [start, end + 1]
    return edges
