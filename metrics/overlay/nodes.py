"""Views and degrees of every node."""

from typing import NamedTuple

import numpy as np

from metrics.measures.measure import Sample
from metrics.overlay.snapshot import Integers, Snapshot


class NodeLinks(NamedTuple):
    """Counts of links, each (count,) by the node's place, or as a distribution over many nodes.

    Links with adversaries count, too.

    Source: StAN section 3.1 (Total and Unique View Size) and Figure 3 (in- and out-degree).
    """

    view_size_total: Sample  # logical links: the sum of the sizes of the node's views on all topics
    view_size_unique: Sample  # different nodes in all its views; the out-degree of the graph of views
    in_degree: Integers  # different honest nodes that have it in a view
    degree: Sample  # physical links
    opened: Integers  # connections that the node opened
    accepted: Integers  # connections that other nodes opened to it


def count_links(snapshot: Snapshot) -> NodeLinks:
    """Count every node's links.

    If views are one-way, ``degree`` counts a link at both its ends, and ``view_size_unique`` counts it only at the node
    that has it in its view. If both sides have every logical link, ``view_size_unique`` is ``in_degree``.
    """
    count, openings = snapshot.count, snapshot.openings
    holders, known, _ = np.concatenate((snapshot.views, snapshot.views_aside)).T
    width = int(known.max(initial=count)) + 1
    arcs = np.unique(holders * width + known)
    return NodeLinks(
        np.bincount(holders, minlength=count),
        np.bincount(arcs // width, minlength=count),
        np.bincount(arcs % width, minlength=count)[:count],
        np.bincount(np.concatenate((snapshot.links.ravel(), snapshot.links_aside[:, 0])), minlength=count),
        np.bincount(openings[:, 0], minlength=count)[:count],
        np.bincount(openings[:, 1], minlength=count)[:count],
    )
