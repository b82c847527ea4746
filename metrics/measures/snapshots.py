"""Measures of an overlay at an instant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from metrics.measures.measure import Facts, Family, Measure, Value, mean, ratio
from metrics.overlay import (
    NodeLinks,
    PhysicalGraph,
    Snapshot,
    TopicOverlay,
    count_distances,
    count_links,
    measure_graph,
    measure_topics,
)
from metrics.overlay.snapshot import Integers

Topics = Sequence[TopicOverlay]


def measure_snapshot(snapshot: Snapshot, wanted: Collection[str]) -> list[Value]:
    """Compute those measures of a snapshot among ``wanted``, and nothing else: some take long.

    No measure has a value where no node is up.
    """
    if not snapshot.count:
        return []

    def values(family: Family[Facts], facts: Callable[[], Facts]) -> list[Value]:
        return [] if set(wanted).isdisjoint(family.names) else family.values(facts(), wanted)

    return [
        *NODES.values(snapshot, wanted),
        *values(LINKS, lambda: count_links(snapshot)),
        *values(GRAPH, lambda: measure_graph(snapshot)),
        *values(DISTANCES, lambda: count_distances(snapshot)),
        *values(TOPICS, lambda: measure_topics(snapshot, diameters="topic_diameter_max" in wanted)),
    ]


def measure_overlay(snapshot: Snapshot) -> dict[str, float | None]:
    """The columns of the table ``overlay``: the single numbers of a snapshot; None = there is nothing to measure."""
    numbers = NODES.numbers(snapshot) | LINKS.numbers(count_links(snapshot))
    return numbers | GRAPH.numbers(measure_graph(snapshot)) | TOPICS.numbers(measure_topics(snapshot))


def _largest(values: Integers) -> int | None:
    return int(values.max()) if len(values) else None


def _histogram(counts: Integers) -> Iterator[tuple[int, int]]:
    """The counts that are not 0, each by its place."""
    return ((place, count) for place, count in enumerate(counts.tolist()) if count)


NODES: Family[Snapshot] = Family(
    "nodes (snapshots)",
    (
        Measure("nodes", "nodes", "nodes that are up", lambda it: it.count),
        Measure("subscriptions", "subscriptions", "(node, topic) subscriptions", lambda it: len(it.interests)),
        Measure("logical_links", "links", "logical links: (node, neighbour, topic)", lambda it: len(it.views)),
        Measure("physical_links", "links", "physical links: linked pairs of nodes", lambda it: len(it.links)),
    ),
    "snapshot",
)

LINKS: Family[NodeLinks] = Family(
    "nodes' links (snapshots)",
    (
        Measure(
            "view_size_total_mean",
            "links",
            "logical links per node (total view size), mean",
            lambda it: mean(it.view_size_total),
        ),
        Measure(
            "view_size_total_max",
            "links",
            "logical links per node (total view size), largest",
            lambda it: _largest(it.view_size_total),
        ),
        Measure(
            "view_size_unique_mean",
            "nodes",
            "different nodes in a node's views (unique view size), mean",
            lambda it: mean(it.view_size_unique),
        ),
        Measure(
            "view_size_unique_max",
            "nodes",
            "different nodes in a node's views (unique view size), largest",
            lambda it: _largest(it.view_size_unique),
        ),
        Measure(
            "in_degree_max",
            "nodes",
            "nodes that have the same node in a view (in-degree), largest",
            lambda it: _largest(it.in_degree),
        ),
        Measure("degree_mean", "links", "physical links per node (degree), mean", lambda it: mean(it.degree)),
        Measure("degree_max", "links", "physical links per node (degree), largest", lambda it: _largest(it.degree)),
        Measure(
            "link_sharing_ratio",
            "",
            "logical links per different node in the views (link sharing)",
            lambda it: ratio(int(it.view_size_total.sum()), int(it.view_size_unique.sum())),
        ),
        Measure(
            "degrees",
            "nodes",
            "nodes with each number of physical links",
            lambda it: _histogram(np.bincount(it.degree)),
            "degree",
        ),
        Measure(
            "out_degrees",
            "nodes",
            "nodes with each number of different nodes in their views",
            lambda it: _histogram(np.bincount(it.view_size_unique)),
            "degree",
        ),
        Measure(
            "in_degrees",
            "nodes",
            "nodes by the number of different nodes that have them in a view",
            lambda it: _histogram(np.bincount(it.in_degree)),
            "degree",
        ),
    ),
    "snapshot",
)

GRAPH: Family[PhysicalGraph] = Family(
    "the physical graph (snapshots)",
    (
        Measure("components", "components", "components of the graph of physical links", lambda it: it.components),
        Measure("largest_component", "nodes", "nodes in the largest component", lambda it: it.largest_component),
        Measure(
            "clustering",
            "ratio",
            "linked share of a node's pairs of neighbours (clustering coefficient), mean",
            lambda it: it.clustering,
        ),
        Measure(
            "clustering_global",
            "ratio",
            "share of paths of two links that a third link closes (global clustering coefficient)",
            lambda it: it.clustering_global,
        ),
        Measure("diameter", "links", "longest shortest path over physical links (diameter)", lambda it: it.diameter),
        Measure("path_length_mean", "links", "shortest path over physical links, mean", lambda it: it.path_length_mean),
    ),
    "snapshot",
)

DISTANCES: Family[Integers] = Family(
    "the physical graph (snapshots)",
    (
        Measure(
            "subscriber_distances",
            "pairs",
            "pairs of subscribers of the same topic, by the links of their shortest path",
            _histogram,
            "length",
        ),
        Measure(
            "subscriber_distance_mean",
            "links",
            "links of the shortest path between two subscribers of the same topic, mean",
            lambda pairs: ratio(float(np.arange(len(pairs)) @ pairs), int(pairs.sum())),
        ),
    ),
    "snapshot",
)

TOPICS: Family[Topics] = Family(
    "the topics' overlays (snapshots)",
    (
        Measure("topics", "topics", "topics that have a subscriber", len),
        Measure(
            "topic_components",
            "components",
            "components of all topics' overlays (physical links between subscribers), added up",
            lambda topics: sum(topic.components for topic in topics),
        ),
        Measure(
            "topic_components_max",
            "components",
            "components of the topic that has the most",
            lambda topics: max((topic.components for topic in topics), default=None),
        ),
        Measure(
            "topics_partitioned",
            "topics",
            "partitioned topics: those with more than one component",
            lambda topics: sum(topic.components > 1 for topic in topics),
        ),
        Measure(
            "topic_diameter_max",
            "links",
            "largest diameter of a component of a topic's overlay",
            lambda topics: max((topic.diameter for topic in topics), default=None),
        ),
        Measure(
            "topic_view_components",
            "components",
            "strongly connected components of all topics' views, added up",
            lambda topics: sum(topic.view_components for topic in topics),
        ),
        Measure(
            "topic_view_components_max",
            "components",
            "strongly connected components of the views of the topic that has the most",
            lambda topics: max((topic.view_components for topic in topics), default=None),
        ),
    ),
    "snapshot",
)
