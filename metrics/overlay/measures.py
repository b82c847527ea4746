"""Every plain number of a snapshot under its stable name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metrics.overlay.graph import measure_graph
from metrics.overlay.nodes import NodeLinks, count_links
from metrics.overlay.snapshot import Snapshot
from metrics.overlay.topics import TopicOverlay, measure_topics

Number = int | float | None


def measure(snapshot: Snapshot) -> dict[str, Number]:
    """All measures of a snapshot but those by node and by topic; None = there is nothing to take a mean over."""
    counts: dict[str, Number] = {
        "nodes": snapshot.count,
        "subscriptions": len(snapshot.interests),
        "logical_links": len(snapshot.views),
        "physical_links": len(snapshot.links),
    }
    graph = measure_graph(snapshot)._asdict()
    return counts | _sum_up_nodes(count_links(snapshot)) | graph | sum_up_topics(measure_topics(snapshot))


def _sum_up_nodes(links: NodeLinks) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for name, values in links._asdict().items():
        found[f"{name}_mean"] = float(values.mean()) if len(values) else None
        found[f"{name}_max"] = int(values.max()) if len(values) else None
    del found["in_degree_mean"]  # that of view_size_unique
    unique = int(np.sum(links.view_size_unique))
    found["link_sharing_ratio"] = int(np.sum(links.view_size_total)) / unique if unique else None
    return found


def sum_up_topics(topics: Sequence[TopicOverlay]) -> dict[str, Number]:
    """The measures over all topics that have a subscriber.

    ``topic_components`` adds up all topics' components: it is ``topics`` where each is connected (SpiderCast
    Figure 13). ``topic_view_components`` likewise, of their one-way views.
    """
    return {
        "topics": len(topics),
        "topic_components": sum(topic.components for topic in topics),
        "topic_components_max": max((topic.components for topic in topics), default=None),
        "topics_partitioned": sum(topic.components > 1 for topic in topics),
        "topic_diameter_max": max((topic.diameter for topic in topics), default=None),
        "topic_view_components": sum(topic.view_components for topic in topics),
        "topic_view_components_max": max((topic.view_components for topic in topics), default=None),
    }
