"""Measures of an overlay at an instant, over plain arrays: NumPy and igraph, no Spark and no file.

The analysis takes the arrays from a run's tables, studies take them from a simulation in memory; both get the same
numbers. A ``Snapshot`` holds the arrays, ``measure`` computes every plain number of one.
"""

from metrics.overlay.distances import count_distances
from metrics.overlay.graph import PhysicalGraph, measure_graph
from metrics.overlay.interests import correlate, correlate_topics, intersect_top
from metrics.overlay.measures import measure, sum_up_topics
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
    "measure",
    "measure_graph",
    "measure_topics",
    "shortest_paths",
    "sum_up_topics",
]
