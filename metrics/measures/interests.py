"""Measures of the nodes' interests alone, whatever the overlay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from metrics.measures.measure import Family, Measure, ratio
from metrics.overlay import correlate, correlate_topics, intersect_top
from metrics.overlay.snapshot import Integers

LEVELS = (0.9, 0.95, 0.98, 0.99)


class Interests:
    """What nodes subscribe to.

    Args:
        nodes: the topics of each node; at least one node.
        topics: how many topics there are.
    """

    def __init__(self, nodes: Sequence[Collection[int]], topics: int) -> None:
        self.sizes = sorted(map(len, nodes), reverse=True)
        self.subscribers = [count for _, count in Counter(topic for own in nodes for topic in own).most_common()]
        self._nodes = nodes
        self._topics = topics

    @cached_property
    def _pairs(self) -> Integers:
        pairs = [(node, topic) for node, own in enumerate(self._nodes) for topic in own]
        return np.array(pairs, np.int64).reshape(-1, 2)

    def top(self, depth: int) -> float | None:
        """The top-``depth`` intersection."""
        return intersect_top(len(self._nodes), self._pairs, depth)

    @cached_property
    def correlated_nodes(self) -> Mapping[float, float]:
        """The share of pairs of nodes that correlate, by level."""
        return dict(zip(LEVELS, correlate(len(self._nodes), self._pairs, self._topics, LEVELS), strict=True))

    @cached_property
    def correlated_topics(self) -> Mapping[float, float]:
        """The share of pairs of topics that correlate, by level."""
        return dict(zip(LEVELS, correlate_topics(len(self._nodes), self._pairs, self._topics, LEVELS), strict=True))


def _by_level(
    prefix: str, text: str, shares: Callable[[Interests], Mapping[float, float]]
) -> tuple[Measure[Interests], ...]:
    def at(level: float) -> Measure[Interests]:
        name, meaning = f"{prefix}_{level:.0%}_ratio".replace("%", ""), f"{text} at the {level:.0%} level"
        return Measure(name, "ratio", meaning.replace("%", " %"), lambda it: shares(it)[level])

    return tuple(map(at, LEVELS))


INTERESTS: Family[Interests] = Family(
    "the interests",
    (
        Measure("subscriptions_mean", "topics", "topics per node", lambda it: ratio(sum(it.sizes), len(it.sizes))),
        Measure(
            "node_subscriptions", "topics", "topics of each node, most first", lambda it: enumerate(it.sizes, 1), "rank"
        ),
        Measure(
            "topic_subscribers",
            "nodes",
            "subscribers of each topic, most first",
            lambda it: enumerate(it.subscribers, 1),
            "rank",
        ),
        Measure("tdi_20", "ratio", "top-20 intersection of the interests", lambda it: it.top(20)),
        Measure(
            "tdi_2d",
            "ratio",
            "top-2d intersection of the interests, d = the largest number of topics of a node",
            lambda it: it.top(2 * it.sizes[0]),
        ),
        Measure("tdi_40", "ratio", "top-40 intersection of the interests", lambda it: it.top(40)),
        *_by_level("correlated", "share of pairs of nodes whose interests correlate", lambda it: it.correlated_nodes),
        *_by_level(
            "topics_correlated", "share of pairs of topics whose subscribers correlate", lambda it: it.correlated_topics
        ),
    ),
)
