"""Algorithms over an overlay at an instant, as plain arrays: NumPy and igraph, no Spark and no file.

A ``Snapshot`` holds the arrays. The analysis fills it from a run's tables, studies from a simulation in memory.
``metrics.measures`` names what is measured with these algorithms.
"""

from metrics.overlay.distances import count_distances
from metrics.overlay.graph import PhysicalGraph, measure_graph
from metrics.overlay.interests import correlate, correlate_topics, intersect_top
from metrics.overlay.nodes import NodeLinks, count_links
from metrics.overlay.paths import Paths, shortest_paths
from metrics.overlay.snapshot import Snapshot
from metrics.overlay.topics import TopicOverlay, measure_topics

__all__ = [
    "NodeLinks",
    "Paths",
    "PhysicalGraph",
    "Snapshot",
    "TopicOverlay",
    "correlate",
    "correlate_topics",
    "count_distances",
    "count_links",
    "intersect_top",
    "measure_graph",
    "measure_topics",
    "shortest_paths",
]
