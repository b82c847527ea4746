"""Shortest paths between all pairs of nodes and between subscribers.

All pairs: breadth-first searches from 64 nodes at a time, in the bits of one word.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from metrics.overlay.interests import interest_matrix
from metrics.overlay.searched import make_graph
from metrics.overlay.snapshot import Integers, Snapshot

Words = npt.NDArray[np.uint64]

_BLOCK_WORDS = 16
"""The number of searches at a time: for 10,000 nodes with 11 links each, the bits of 1,024 searches take 14 MB."""

_MAX_LEVELS = 64
"""Wider graphs, such as rings, are left to igraph, which follows each search's own front."""


class Paths(NamedTuple):
    """Shortest paths in a graph, over the pairs of nodes with a path; in a directed graph, each direction is a pair."""

    diameter: int  # links of the longest path; 0 if no two nodes reach each other
    length_mean: float | None  # links of the mean path; None in this case
    pairs: int  # how many pairs of nodes have a path


def shortest_paths(count: int, links: Integers) -> Paths:
    """Search from every node; exact.

    The cost is (links x nodes x diameter / 64) word operations: a second for 10,000 nodes with 11 links each.

    Args:
        count: nodes.
        links: (l, 2) undirected links between places, each once, no loops.
    """
    used, places = np.unique(links, return_inverse=True)
    ends = places.reshape(-1, 2).astype(np.int64)
    histogram: list[int] = []
    for first in range(0, len(used), 64 * _BLOCK_WORDS):
        sources = np.arange(first, min(first + 64 * _BLOCK_WORDS, len(used)))
        reached = _search(len(used), ends, sources)
        if reached is None:
            return search_each(len(used), ends)
        histogram += [0] * (len(reached) - len(histogram))
        for level, pairs in enumerate(reached):
            histogram[level] += pairs
    return _paths(np.array(histogram, np.int64) // 2)


def _paths(histogram: Integers) -> Paths:
    """Return the paths, from the numbers of pairs that are 1, 2, ... links apart."""
    pairs = int(histogram.sum())
    if not pairs:
        return Paths(0, None, 0)
    lengths = np.arange(1, len(histogram) + 1)
    return Paths(len(histogram), float((lengths * histogram).sum() / pairs), pairs)


def _search(count: int, links: Integers, sources: Integers) -> list[int] | None:
    """Count the (source, node) pairs that are 1, 2, ... links apart; None if the graph is too wide for this.

    Every node has a link, so that each has a run of arcs to take the union over.
    """
    arcs = np.concatenate((links, links[:, ::-1]))
    arcs = arcs[np.argsort(arcs[:, 1], kind="stable")]
    starts = np.searchsorted(arcs[:, 1], np.arange(count))
    reached: Words = np.zeros((count, -(-len(sources) // 64)), np.uint64)
    bits = np.arange(len(sources))
    reached[sources, bits // 64] = np.uint64(1) << (bits % 64).astype(np.uint64)
    found, levels = len(sources), list[int]()
    while len(levels) <= _MAX_LEVELS:
        reached |= np.bitwise_or.reduceat(reached[arcs[:, 0]], starts, axis=0)
        before, found = found, int(np.bitwise_count(reached).sum())
        if found == before:
            return levels
        levels.append(found - before)
    return None


def search_each(count: int, links: Integers) -> Paths:
    """Search in the same way from one node after the other."""
    bins = make_graph(count, links).path_length_hist(directed=False).bins()
    return _paths(np.array([pairs for _, _, pairs in bins], np.int64))


def directed_paths(snapshot: Snapshot) -> Paths:
    """Search in the directed graph of the views, in which a node reaches only the nodes in its own views.

    Source: StAN Table 3.
    """
    arcs = np.unique(snapshot.views[:, :2], axis=0)
    bins = make_graph(snapshot.count, arcs, directed=True).path_length_hist(directed=True).bins()
    return _paths(np.array([pairs for _, _, pairs in bins], np.int64))


def count_distances(snapshot: Snapshot) -> Integers:
    """Count pairs of nodes by the links of their shortest path, once for each topic to which both subscribe.

    Paths may lead over any node, interested or not. Takes 20 bytes for each of the snapshot's pairs of nodes.

    Returns:
        (longest path + 1,) pairs; pairs without a path are left out.

    Source: Topiary section III, Figure 2.
    """
    matrix = interest_matrix(snapshot.count, snapshot.interests)
    lengths = np.array(make_graph(snapshot.count, snapshot.links).distances())
    reached = np.triu(np.isfinite(lengths), 1)
    pairs: Integers = np.bincount(lengths[reached].astype(np.int64), (matrix @ matrix.T)[reached]).astype(np.int64)
    return pairs
