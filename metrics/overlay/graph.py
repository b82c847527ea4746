"""Measures of the physical graph as a whole."""

from typing import NamedTuple

import numpy as np

from metrics.overlay.paths import shortest_paths
from metrics.overlay.searched import make_graph
from metrics.overlay.snapshot import Integers, Snapshot


class PhysicalGraph(NamedTuple):
    """The graph of physical links."""

    components: int  # sets of nodes that reach each other
    largest_component: int  # nodes of the largest component
    clustering: float | None  # share of a node's pairs of neighbours that are linked, 0 without pairs; mean over nodes
    clustering_global: float  # share of all paths of two links that a third link closes; 0 if there is no such path
    diameter: int  # longest shortest path, over all pairs that reach each other
    path_length_mean: float | None  # mean shortest path over these pairs; None if there are none


def measure_graph(snapshot: Snapshot) -> PhysicalGraph:
    """Measure the graph of physical links. The shortest paths take most of the time, see ``shortest_paths``."""
    graph = make_graph(snapshot.count, snapshot.links)
    sizes = graph.connected_components(mode="weak").sizes()
    paths = shortest_paths(snapshot.count, snapshot.links)
    local = graph.transitivity_avglocal_undirected(mode="zero") if snapshot.count else None
    return PhysicalGraph(
        len(sizes),
        max(sizes, default=0),
        local,
        float(np.nan_to_num(graph.transitivity_undirected(mode="zero"))),
        paths.diameter,
        paths.length_mean,
    )


def component_sizes(count: int, arcs: Integers, *, strong: bool = False) -> list[int]:
    """Return the sizes of a graph's components.

    Args:
        count: the number of nodes.
        arcs: (a, 2) pairs of nodes.
        strong: whether arcs are one-way, and nodes of a component must reach each other both ways.
    """
    if not len(arcs):
        return [1] * count
    graph = make_graph(count, arcs, directed=strong)
    sizes: list[int] = graph.connected_components(mode="strong" if strong else "weak").sizes()
    return sizes
