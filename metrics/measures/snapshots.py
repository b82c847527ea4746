"""Measures of an overlay at an instant."""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from metrics.measures.measure import Facts, Family, Value, count_values, ratio, total
from metrics.overlay.graph import PhysicalGraph, measure_graph
from metrics.overlay.nodes import NodeLinks, count_links
from metrics.overlay.paths import Paths, count_distances, directed_paths
from metrics.overlay.snapshot import Integers, Snapshot
from metrics.overlay.topics import TopicOverlay, measure_topics


def measure_snapshot(snapshot: Snapshot, wanted: Collection[str]) -> list[Value]:
    """Compute the measures of a snapshot among ``wanted``, and nothing else: some take long.

    No measure has a value if no node is up.
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
        *values(VIEWS, lambda: directed_paths(snapshot)),
        *values(TOPICS, lambda: measure_topics(snapshot, diameters="topic_diameter_max" in wanted)),
    ]


def measure_overlay(snapshot: Snapshot) -> dict[str, float | None]:
    """Return the columns of the table ``overlay``: the single numbers of a snapshot; None = nothing to measure."""
    numbers = NODES.numbers(snapshot) | LINKS.numbers(count_links(snapshot))
    return numbers | GRAPH.numbers(measure_graph(snapshot)) | TOPICS.numbers(measure_topics(snapshot))


def _histogram(counts: Integers) -> Iterator[tuple[int, int]]:
    """Yield the counts that are not 0, each with its place."""
    return ((place, count) for place, count in enumerate(counts.tolist()) if count)


def _link_sharing(links: NodeLinks) -> float | None:
    return ratio(total(links.view_size_total), total(links.view_size_unique))


def _links_per_connection(links: NodeLinks) -> float | None:
    return ratio(total(links.view_size_total), total(links.degree))


Topics = Sequence[TopicOverlay]


def _total(column: str) -> Callable[[Topics], int]:
    """Return a function for the sum of a column of ``TopicOverlay``."""
    return lambda topics: sum(getattr(topic, column) for topic in topics)


def _most(column: str) -> Callable[[Topics], int | None]:
    """Return a function for the largest value of a column of ``TopicOverlay``."""
    return lambda topics: max((getattr(topic, column) for topic in topics), default=None)


NODES = Family[Snapshot]("nodes (snapshots)", "snapshot")
NODES.add("nodes", "nodes", "nodes that are up", lambda it: it.count)
NODES.add("subscriptions", "subscriptions", "(node, topic) subscriptions", lambda it: len(it.interests))
NODES.add("logical_links", "links", "logical links: (node, neighbour, topic)", lambda it: len(it.views))
NODES.add("physical_links", "links", "physical links: linked pairs of nodes", lambda it: len(it.links))

LINKS = Family[NodeLinks]("nodes' links (snapshots)", "snapshot")
LINKS.add_statistics(
    "view_size_total", "links", "logical links per node (total view size)", lambda it: it.view_size_total, "mean", "max"
)
LINKS.add_statistics(
    "view_size_unique", "nodes", "different nodes in a node's views", lambda it: it.view_size_unique, "mean", "max"
)
LINKS.add_statistics("in_degree", "nodes", "in-degree in the graph of views", lambda it: it.in_degree, "max")
LINKS.add_statistics(
    "degree", "links", "physical links per node (degree)", lambda it: it.degree, "mean", "max", "p50", "p90", "p99"
)
LINKS.add_statistics(
    "opened_links", "links", "physical links that a node opened", lambda it: it.opened, "mean", "max", "p99"
)
LINKS.add_statistics(
    "accepted_links", "links", "physical links that others opened to a node", lambda it: it.accepted, "max", "p99"
)
LINKS.add("link_sharing_ratio", "", "logical links per different node in the views", _link_sharing)
LINKS.add(
    "logical_per_physical_link", "", "logical links per physical link, each counted at its node", _links_per_connection
)
WIRE_LINKS = Family[NodeLinks]("nodes' links by the captures")
WIRE_LINKS.add(
    "logical_per_physical_link_on_wire",
    "",
    "logical links per physical link, each counted at its node, by the captured frames",
    _links_per_connection,
)

LINKS.add("degrees", "nodes", "nodes by degree", lambda it: count_values(it.degree), "degree")
LINKS.add(
    "opened_degrees",
    "nodes",
    "nodes by the physical links that they opened",
    lambda it: count_values(it.opened),
    "degree",
)
LINKS.add(
    "accepted_degrees",
    "nodes",
    "nodes by the physical links that others opened to them",
    lambda it: count_values(it.accepted),
    "degree",
)
LINKS.add("out_degrees", "nodes", "nodes by out-degree", lambda it: count_values(it.view_size_unique), "degree")
LINKS.add("in_degrees", "nodes", "nodes by in-degree", lambda it: count_values(it.in_degree), "degree")

GRAPH = Family[PhysicalGraph]("the physical graph (snapshots)", "snapshot")
GRAPH.add("components", "components", "components of the physical graph", lambda it: it.components)
GRAPH.add("largest_component", "nodes", "nodes in the largest component", lambda it: it.largest_component)
GRAPH.add("clustering", "ratio", "clustering coefficient, mean", lambda it: it.clustering)
GRAPH.add("clustering_global", "ratio", "global clustering coefficient", lambda it: it.clustering_global)
GRAPH.add("diameter", "links", "diameter of the physical graph", lambda it: it.diameter)
GRAPH.add("path_length_mean", "links", "shortest path between two nodes, mean", lambda it: it.path_length_mean)

DISTANCES = Family[Integers]("the physical graph (snapshots)", "snapshot")
DISTANCES.add(
    "subscriber_distances", "pairs", "pairs of subscribers of a topic, by their shortest path", _histogram, "length"
)
DISTANCES.add(
    "subscriber_distance_mean",
    "links",
    "shortest path between two subscribers of a topic, mean",
    lambda it: ratio(float(np.arange(len(it)) @ it), int(it.sum())),
)

VIEWS = Family[Paths]("the directed graph of views (snapshots)", "snapshot")
VIEWS.add(
    "view_diameter",
    "links",
    "longest shortest path from a node to another over views, each in its own direction",
    lambda it: it.diameter,
)
VIEWS.add(
    "view_path_length_mean",
    "links",
    "shortest path from a node to another over views, each in its own direction, mean",
    lambda it: it.length_mean,
)

TOPICS = Family[Topics]("the topics' overlays (snapshots)", "snapshot")
TOPICS.add("topics", "topics", "topics that have a subscriber", len)
TOPICS.add("topic_components", "components", "components of all topics, added up", _total("components"))
TOPICS.add("topic_components_max", "components", "components of the topic that has the most", _most("components"))
TOPICS.add("topics_partitioned", "topics", "partitioned topics", lambda it: sum(each.components > 1 for each in it))
TOPICS.add("topic_diameter_max", "links", "largest diameter of a topic", _most("diameter"))
TOPICS.add(
    "topic_view_components",
    "components",
    "strongly connected components of all topics' views",
    _total("view_components"),
)
TOPICS.add(
    "topic_view_components_max",
    "components",
    "strongly connected components of the topic that has the most",
    _most("view_components"),
)
