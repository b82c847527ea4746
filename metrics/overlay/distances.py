"""How far the subscribers of a topic are from each other."""

from __future__ import annotations

import igraph
import numpy as np

from metrics.overlay.interests import interest_matrix
from metrics.overlay.snapshot import Integers, Snapshot


def count_distances(snapshot: Snapshot) -> Integers:
    """Pairs of nodes by the links of their shortest path; a pair counts once for each topic that both subscribe to.

    Paths may lead over any node, interested or not. Takes 20 bytes for each of the snapshot's pairs of nodes.

    Returns:
        (longest path + 1,) pairs; those without a path are left out.

    Source: Topiary section III, Figure 2.
    """
    matrix = interest_matrix(snapshot.count, snapshot.interests)
    lengths = np.array(igraph.Graph(snapshot.count, snapshot.links).distances())
    reached = np.triu(np.isfinite(lengths), 1)
    pairs: Integers = np.bincount(lengths[reached].astype(np.int64), (matrix @ matrix.T)[reached]).astype(np.int64)
    return pairs
