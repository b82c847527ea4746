"""The measures that a study may name. What computes them is in ``measuring`` and ``watching``."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

REDUCTIONS = ("first", "last", "mean", "min", "max", "change")
"""What may stand before a measure's name: over a run's snapshots, or over its epochs where messages are measured.
``change`` is the last over the first, less one."""

COUNTERS = ("degree", "rank", "kind", "length")
"""What counts of nodes, frames or pairs are counted by: there, a count that is missing is 0."""

Value = tuple[str, float | None, float]
"""A measure, what it is counted by (None for a plain one), and its value."""

Source = Literal[
    "interests", "views", "slots", "graph", "distances", "topics", "deliveries", "scores", "control", "disclosure"
]


class Measure(Struct, frozen=True):
    """A measure: what it is computed from, what it is counted by if it is no single number, and its meaning."""

    source: Source
    text: str
    by: str = ""

    @property
    def published(self) -> bool:
        """Whether it needs publications."""
        return self.source in ("deliveries", "scores")

    @property
    def seen(self) -> bool:
        """Whether it is measured at the snapshots."""
        return self.source in ("views", "slots", "graph", "distances", "topics")


MEASURES: dict[str, Measure] = {
    "subscriptions_mean": Measure("interests", "topics of a node"),
    "node_subscriptions": Measure("interests", "topics of each node, most first", by="rank"),
    "topic_subscribers": Measure("interests", "subscribers of each topic, most first", by="rank"),
    "tdi_20": Measure("interests", "top-20 intersection of the interests (ratio)"),
    "tdi_40": Measure("interests", "top-40 intersection of the interests (ratio)"),
    "tdi_2d": Measure("interests", "top-2d intersection, d = the largest number of topics of a node (ratio)"),
    "correlated_90_ratio": Measure("interests", "pairs of nodes whose interests correlate at the 90 % level"),
    "correlated_95_ratio": Measure("interests", "the same at the 95 % level"),
    "correlated_98_ratio": Measure("interests", "the same at the 98 % level"),
    "correlated_99_ratio": Measure("interests", "the same at the 99 % level"),
    "topics_correlated_90_ratio": Measure("interests", "pairs of topics whose subscribers correlate at the 90 % level"),
    "topics_correlated_95_ratio": Measure("interests", "the same at the 95 % level"),
    "topics_correlated_98_ratio": Measure("interests", "the same at the 98 % level"),
    "topics_correlated_99_ratio": Measure("interests", "the same at the 99 % level"),
    "nodes": Measure("views", "nodes that the snapshot looks at"),
    "degree_mean": Measure("views", "physical links of a node, mean"),
    "degree_max": Measure("views", "the same, most"),
    "degrees": Measure("views", "nodes with each number of physical links", by="degree"),
    "view_size_total_mean": Measure("views", "logical links of a node, mean"),
    "view_size_total_max": Measure("views", "the same, most"),
    "view_size_unique_mean": Measure("views", "different nodes in all views of a node, mean"),
    "view_size_unique_max": Measure("views", "the same, most"),
    "in_degree_max": Measure("views", "different nodes that have a node in a view, most"),
    "link_sharing_ratio": Measure("views", "logical links over different nodes in the views"),
    "out_degrees": Measure("views", "nodes with each number of different nodes in their views", by="degree"),
    "in_degrees": Measure("views", "nodes that stand in the views of so many others", by="degree"),
    "adversary_slots_ratio": Measure("slots", "links that honest nodes asked for, those to adversaries over all"),
    "components": Measure("graph", "connected components of the physical graph"),
    "clustering": Measure("graph", "local clustering coefficient of the physical graph, mean"),
    "clustering_global": Measure("graph", "closed paths of two links over all of them"),
    "diameter": Measure("graph", "longest shortest path in the physical graph"),
    "path_length_mean": Measure("graph", "shortest path in the physical graph, mean"),
    "subscriber_distances": Measure(
        "distances", "pairs of subscribers of the same topic, by the links of their shortest path", by="length"
    ),
    "subscriber_distance_mean": Measure("distances", "links of the shortest path between two of them, mean"),
    "topics": Measure("topics", "topics that have a subscriber"),
    "topic_components": Measure("topics", "components of all topics' overlays (physical links), added up"),
    "topic_components_max": Measure("topics", "components of the topic that has the most"),
    "topics_partitioned": Measure("topics", "topics whose subscribers are not connected through subscribers"),
    "topic_diameter_max": Measure("topics", "longest shortest path within a component of a topic's overlay"),
    "topic_view_components": Measure("topics", "strongly connected components of all topics' views, added up"),
    "topic_view_components_max": Measure("topics", "the same of the topic that has the most"),
    "messages": Measure("deliveries", "messages published"),
    "delivery_ratio": Measure("deliveries", "deliveries over those due to who subscribed at the publication"),
    "propagation_delay_ms_mean": Measure("deliveries", "from publication to delivery, mean"),
    "propagation_delay_ms_p50": Measure("deliveries", "the same, median"),
    "propagation_delay_ms_p99": Measure("deliveries", "the same, 99th percentile"),
    "hops_mean": Measure("deliveries", "links that a delivered copy crossed"),
    "duplicates_per_delivery": Measure(
        "deliveries", "further copies over deliveries; those at nodes without interest are among the copies"
    ),
    "relay_ratio": Measure("deliveries", "first copies at nodes without interest over all copies"),
    "topic_delivery_ratio": Measure("deliveries", "delivery ratio of the messages of each (first) topic", by="topic"),
    "topic_delay_ms_mean": Measure("deliveries", "delay of the messages of each (first) topic, mean", by="topic"),
    "score_mean": Measure("scores", "score of the neighbours that honest nodes keep at an epoch's end, mean"),
    "score_quantiles": Measure("scores", "the scores of all honest nodes in order", by="quantile"),
    "disclosure_ratio": Measure(
        "disclosure", "subscriptions of honest nodes to topics that an asker does not have which it concluded (ratio)"
    ),
    "control_frames_per_peer_per_s": Measure("control", "frames other than data"),
    "control_bytes_per_peer_per_s": Measure("control", "their bytes"),
    "control_frames_per_change": Measure(
        "control", "frames of the overlay's protocol but heartbeats, over the joins, leaves and crashes of the run"
    ),
    "frames_per_change": Measure("control", "all frames over the same changes, by their kind's number", by="kind"),
    "frames": Measure("control", "frames sent, by their kind's number", by="kind"),
}


def split_reduction(shown: str) -> tuple[str, str]:
    """A reduction (empty where none is said) and a measure's name."""
    first, _, rest = shown.partition(" ")
    return (first, rest.strip()) if first in REDUCTIONS and rest else ("", shown)
