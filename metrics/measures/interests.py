"""Measures of the nodes' interests alone, independent of the overlay."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property

import numpy as np

from metrics.measures.measure import Family, ratio
from metrics.overlay.interests import correlate, correlate_topics, intersect_top
from metrics.overlay.snapshot import Integers

LEVELS = (0.9, 0.95, 0.98, 0.99)


class Interests:
    """The topics to which nodes subscribe.

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
        return intersect_top(len(self._nodes), self._pairs, depth)

    @cached_property
    def correlated_nodes(self) -> Sequence[float]:
        """The share of pairs of nodes that correlate at each of ``LEVELS``."""
        return correlate(len(self._nodes), self._pairs, self._topics, LEVELS)

    @cached_property
    def correlated_topics(self) -> Sequence[float]:
        """The share of pairs of topics that correlate at each of ``LEVELS``."""
        return correlate_topics(len(self._nodes), self._pairs, self._topics, LEVELS)


INTERESTS = Family[Interests]("the interests")
INTERESTS.add("subscriptions_mean", "topics", "topics per node", lambda it: ratio(sum(it.sizes), len(it.sizes)))
INTERESTS.add("node_subscriptions", "topics", "topics per node, most first", lambda it: enumerate(it.sizes, 1), "rank")
INTERESTS.add(
    "topic_subscribers",
    "nodes",
    "nodes that subscribe to a topic, most first",
    lambda it: enumerate(it.subscribers, 1),
    "rank",
)
INTERESTS.add("tdi_20", "ratio", "top-20 intersection of the interests", lambda it: it.top(20))
INTERESTS.add(
    "tdi_2d", "ratio", "top-2d intersection, d = the most topics per node", lambda it: it.top(2 * it.sizes[0])
)
INTERESTS.add("tdi_40", "ratio", "top-40 intersection of the interests", lambda it: it.top(40))


def _add_correlations(prefix: str, pairs: str, shares: Callable[[Interests], Sequence[float]]) -> None:
    for place, level in enumerate(LEVELS):
        percent = round(100 * level)
        text = f"share of pairs of {pairs} correlate at the {percent} % level"
        INTERESTS.add(f"{prefix}_{percent}_ratio", "ratio", text, _entry(shares, place))


def _entry(shares: Callable[[Interests], Sequence[float]], place: int) -> Callable[[Interests], float]:
    return lambda it: shares(it)[place]


_add_correlations("correlated", "nodes whose interests", lambda it: it.correlated_nodes)
_add_correlations("topics_correlated", "topics whose subscribers", lambda it: it.correlated_topics)
