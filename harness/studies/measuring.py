"""Measures snapshots and interests: only what is asked for, since some measures take long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np

from harness.studies.measures import MEASURES, Value
from harness.workload.interests import Interests
from metrics.overlay import (
    Snapshot,
    correlate,
    correlate_topics,
    count_distances,
    count_links,
    intersect_top,
    measure_graph,
    measure_topics,
    sum_up_topics,
)
from metrics.overlay.snapshot import Integers

LEVELS = (0.9, 0.95, 0.98, 0.99)
CORRELATIONS = {"correlated": correlate, "topics_correlated": correlate_topics}
"""What correlates of the interests, by the beginning of the measures' names."""


def measure_snapshot(snapshot: Snapshot, wanted: Collection[str]) -> list[Value]:
    """The values of those measures among ``wanted`` that a snapshot tells; none where nobody is up."""
    if not snapshot.count:
        return []
    sources = {MEASURES[name].source for name in wanted}
    values: list[Value] = [("nodes", None, snapshot.count)]
    if "views" in sources:
        values += _count_views(snapshot)
    if "graph" in sources:
        values += _plain(measure_graph(snapshot)._asdict())
    if "distances" in sources:
        values += _measure_distances(snapshot)
    if "topics" in sources:
        topics = measure_topics(snapshot, diameters="topic_diameter_max" in wanted)
        values += _plain(sum_up_topics(topics))
    return [value for value in values if value[0] in wanted]


def _plain(numbers: dict[str, float | None]) -> Iterator[Value]:
    return ((name, None, value) for name, value in numbers.items() if value is not None)


def _measure_distances(snapshot: Snapshot) -> Iterator[Value]:
    pairs = count_distances(snapshot)
    yield from _histogram("subscriber_distances", pairs)
    if total := int(pairs.sum()):
        yield "subscriber_distance_mean", None, float(np.arange(len(pairs)) @ pairs) / total


def _count_views(snapshot: Snapshot) -> Iterator[Value]:
    links = count_links(snapshot)
    for name, counts in links._asdict().items():
        yield f"{name}_mean", None, float(counts.mean())
        yield f"{name}_max", None, int(counts.max())
    if unique := int(links.view_size_unique.sum()):
        yield "link_sharing_ratio", None, int(links.view_size_total.sum()) / unique
    yield from _histogram("degrees", np.bincount(links.degree))
    yield from _histogram("out_degrees", np.bincount(links.view_size_unique))
    yield from _histogram("in_degrees", np.bincount(links.in_degree))


def _histogram(name: str, counts: Integers) -> Iterator[Value]:
    """The counts that are not 0, each by its place."""
    return ((name, place, count) for place, count in enumerate(counts.tolist()) if count)


def measure_interests(interests: Interests, topics: int, wanted: Collection[str]) -> list[Value]:
    """The values of those measures among ``wanted`` that the interests alone tell; none where there are no nodes.

    Args:
        interests: the topics of every node that is looked at.
        topics: how many topics there are.
        wanted: names of measures.
    """
    if not interests:
        return []
    values = [*_count_interests(interests)]
    pairs = np.array([(node, topic) for node, own in enumerate(interests) for topic in own], np.int64).reshape(-1, 2)
    depths = {"tdi_20": 20, "tdi_40": 40, "tdi_2d": 2 * max(map(len, interests))}
    for name in sorted(depths.keys() & set(wanted)):
        share = intersect_top(len(interests), pairs, depths[name])
        values += [] if share is None else [(name, None, share)]
    for prefix, correlation in CORRELATIONS.items():
        levels = {f"{prefix}_{level:.0%}_ratio".replace("%", ""): level for level in LEVELS}
        if not levels.keys().isdisjoint(wanted):
            shares = correlation(len(interests), pairs, topics, list(levels.values()))
            values += [(name, None, share) for name, share in zip(levels, shares, strict=True)]
    return [value for value in values if value[0] in wanted]


def _count_interests(interests: Interests) -> Iterator[Value]:
    sizes = sorted(map(len, interests), reverse=True)
    yield "subscriptions_mean", None, sum(sizes) / len(sizes)
    yield from (("node_subscriptions", rank, size) for rank, size in enumerate(sizes, 1))
    subscribers = Counter(topic for topics in interests for topic in topics)
    yield from (("topic_subscribers", rank, count) for rank, (_, count) in enumerate(subscribers.most_common(), 1))
