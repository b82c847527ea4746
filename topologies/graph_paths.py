"""What the paths of a graph of links ask of packets, as matrices."""

import numpy as np

from topologies.link_graph import GraphLink, LinkGraph, Paths
from topologies.model import Matrix
from topologies.network import Asked, AskedOfPairs, Link, ask_path


def as_link(link: GraphLink) -> Link:
    """Return a link of a graph as one of a ``Network``."""
    return Link(link.delay_ms, link.jitter_ms, link.loss_ratio, link.rate_mbit, link.queue_ms)


def ask_paths(graph: LinkGraph) -> AskedOfPairs:
    """Return what is asked of the packets between any two routers: what the links of their path do together.

    Where no path leads, the delay is infinite.
    """
    size = len(graph.routers)
    delay_ms, jitter_ms, loss_ratio = np.full((size, size), np.inf), np.zeros((size, size)), np.zeros((size, size))
    links, paths = [as_link(link) for link in graph.links], Paths(graph)
    for source in range(size):
        tree = paths.tree(source)
        asked: dict[int, Asked] = {}
        for router in tree.order:
            number = tree.last[router]
            before = Asked(0.0) if number < 0 else asked[graph.links[number].source]
            asked[router] = before if number < 0 else ask_path([Link(*before[:3]), links[number]])
            delay_ms[source, router], jitter_ms[source, router], loss_ratio[source, router], _ = asked[router]
    return AskedOfPairs(delay_ms, jitter_ms, loss_ratio)


def largest_connected(delay_ms: Matrix) -> list[int]:
    """Return the routers of the largest set of which each reaches each other; of equal ones that of the lowest number.

    Args:
        delay_ms: (n, n) as of ``ask_paths``.
    """
    both = np.isfinite(delay_ms) & np.isfinite(delay_ms.T)
    largest = int(both.sum(axis=1).argmax())
    return [int(router) for router in np.flatnonzero(both[largest])]
