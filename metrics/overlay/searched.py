"""Graphs of igraph, which is imported with the first of them: it imports matplotlib, which takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metrics.overlay.snapshot import Integers

if TYPE_CHECKING:
    import igraph


def make_graph(count: int, arcs: Integers, *, directed: bool = False) -> igraph.Graph:
    """Return a graph of igraph.

    Args:
        count: the number of nodes.
        arcs: (a, 2) pairs of nodes.
        directed: whether arcs are one-way.
    """
    import igraph

    return igraph.Graph(count, arcs, directed=directed)
