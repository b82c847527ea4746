"""A lower bound for the cost to bring a message from its publisher to some nodes.

The cost of a set of copies is the sum of the one-way delays of their links. Copies that reach all *terminals* (the
publisher and the nodes) contain a tree that connects them, perhaps over other nodes. So no set of copies costs less
than the smallest such tree, the Steiner tree, in the complete graph of all hosts, where an edge costs the smaller of
the delays of its directions. Finding that tree is NP-hard, but with t terminals it costs at least

    MST / (2 (1 - 1/t))

where MST is the cost of the minimum spanning tree of the terminals under shortest-path distances.

Source: Kou, Markowsky and Berman, A fast algorithm for Steiner trees, Acta Informatica 15 (1981), Theorem 1: the
spanning tree costs at most 2 (1 - 1/l) times the Steiner tree with l leaves, and l <= t.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MOST_HOSTS = 1000
"""The most hosts for which the bound is computed: the time for shortest paths grows with the cube of their number."""

Matrix = npt.NDArray[np.float64]


def shortest_paths(delays: Matrix) -> Matrix:
    """Return the lengths of shortest paths between all hosts, (n, n); a link has the smaller delay of both directions.

    Args:
        delays: (n, n) one-way delays from row to column.
    """
    lengths = np.minimum(delays, delays.T)
    np.fill_diagonal(lengths, 0)
    for host in range(len(lengths)):  # Floyd and Warshall
        np.minimum(lengths, lengths[:, host, None] + lengths[host], out=lengths)
    return lengths


def bound_tree(lengths: Matrix, terminals: Sequence[int]) -> float:
    """Return a lower bound of the cost of a tree that connects these hosts; 0 for fewer than two.

    Args:
        lengths: the result of ``shortest_paths``.
        terminals: different hosts.
    """
    count = len(terminals)
    if count < 2:
        return 0.0
    between = lengths[np.ix_(terminals, terminals)]
    nearest = between[0].copy()  # Prim: each terminal's distance from the tree, which begins with the first one
    outside = np.ones(count, np.bool_)
    outside[0] = False
    cost = 0.0
    for _ in range(count - 1):
        added = int(np.where(outside, nearest, np.inf).argmin())
        cost += float(nearest[added])
        outside[added] = False
        np.minimum(nearest, between[added], out=nearest)
    return cost / (2 * (1 - 1 / count))
