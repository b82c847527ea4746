"""The scores of subsets of the neighbours, lower being better.

The printed formulas contradict the text: Eq. 3 counts what a subset relays where the text speaks of what it fails to,
and the subset with the *highest* score is kept although a high score "indicates poorer performance". Here coverage
counts what is missed and the lowest score is kept; ``literal`` does what is printed.

Units: F_d in seconds; F_c and F_w as fractions, of the messages published and of the messages received.
"""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from peer.core.contract import TopicId
from peer.protocols.topiary.observation import Arrivals

Subset = tuple[int, ...]
"""Columns of an ``Observation``, rising."""


class Weights(NamedTuple):
    """How much coverage, delay (a second) and wasted bandwidth count. Source: Topiary section IV-D."""

    coverage: float
    delay: float
    waste: float


class Tally:
    """Sums over an epoch's messages from which every subset's score follows.

    A message counts for a subset by the first of the subset's members that brought it. So messages are added up by who
    came before that member and by the member itself: a few additions a message, whatever the number of subsets.

    Args:
        interests: the topics that the node subscribes to.
        importance: a topic's weight where it is not 1.
        kept: the size of the subsets.
    """

    def __init__(self, interests: frozenset[TopicId], importance: Mapping[TopicId, float], kept: int) -> None:
        self._interests = interests
        self._importance = importance
        self._kept = kept
        self._useful: dict[tuple[int, int], tuple[float, float]] = {}
        self._wasted: dict[tuple[int, int], float] = {}
        self._received = 0

    def add(self, message: Arrivals, columns: int) -> None:
        """Count a message that ``columns`` neighbours could have brought."""
        self._received += 1
        weight = self._weight(message.topics)
        earlier = 0
        # A subset of k members leaves out n - k neighbours, so its first member is among the first n - k + 1.
        for delay_ns, column in message.delays_ns[: columns - self._kept + 1]:
            key = (earlier, column)
            if weight:
                count, delay = self._useful.get(key, (0.0, 0.0))
                self._useful[key] = (count + weight, delay + weight * delay_ns)
            else:
                self._wasted[key] = self._wasted.get(key, 0.0) + 1.0
            earlier |= 1 << column

    def score(self, subset: Subset, published: float, weights: Weights, *, literal: bool) -> float:
        """S of a subset.

        Args:
            subset: which neighbours.
            published: the estimate of all messages on the node's topics, weighted by the topics' importance.
            weights: of the three parts.
            literal: count the coverage as printed.

        Source: Topiary Eq. 2-5.
        """
        bits = sum(1 << column for column in subset)
        count, delay = 0.0, 0.0
        for (earlier, column), (n, summed) in self._useful.items():
            if not earlier & bits and bits >> column & 1:
                count += n
                delay += summed
        wasted = sum(n for (earlier, column), n in self._wasted.items() if not earlier & bits and bits >> column & 1)
        covered = count / published if published else 0.0
        return (
            weights.coverage * (covered if literal else max(0.0, 1.0 - covered))
            + weights.delay * (delay / count / 1e9 if count else 0.0)
            + weights.waste * (wasted / self._received if self._received else 0.0)
        )

    def _weight(self, topics: tuple[TopicId, ...]) -> float:
        """The importance of a message: of its most important topic here; 0 = the node wants none of them."""
        if not self._importance:
            return 0.0 if self._interests.isdisjoint(topics) else 1.0
        return max((self._importance.get(topic, 1.0) for topic in topics if topic in self._interests), default=0.0)


def best_subset(
    tally: Tally, columns: int, kept: int, published: float, weights: Weights, *, literal: bool
) -> tuple[Subset, float]:
    """The best of all subsets of ``kept`` of the ``columns`` neighbours, with its score; the first of equals.

    Source: Topiary Algorithm 1, steps 3 and 4.
    """
    scored = (
        (tally.score(subset, published, weights, literal=literal), subset)
        for subset in combinations(range(columns), kept)
    )
    score, subset = max(scored, key=lambda pair: pair[0]) if literal else min(scored, key=lambda pair: pair[0])
    return subset, score


def topic_scores(
    messages: Iterable[Arrivals], kept: Subset, published: Mapping[TopicId, float], weights: Weights, *, literal: bool
) -> dict[TopicId, float]:
    """S^theta of the kept subset for each topic that ``published`` names; one of which nothing came is wholly missed.

    Source: Topiary Eq. 6-8.
    """
    members = frozenset(kept)
    counts: dict[TopicId, int] = {}
    delays: dict[TopicId, int] = {}
    for topics, arrivals in messages:
        for delay_ns, column in arrivals:
            if column in members:
                for topic in topics:
                    counts[topic] = counts.get(topic, 0) + 1
                    delays[topic] = delays.get(topic, 0) + delay_ns
                break
    scores = {}
    for topic, expected in published.items():
        count = counts.get(topic, 0)
        covered = count / expected if expected else 0.0
        missed = covered if literal else max(0.0, 1.0 - covered)
        delay_s = delays.get(topic, 0) / count / 1e9 if count else 0.0
        scores[topic] = weights.coverage * missed + weights.delay * delay_s
    return scores


def worse_topics(scores: Mapping[TopicId, float], eta: float, epsilon: float) -> list[TopicId]:
    """sigma^+: the topics on which the kept neighbours do less well, rising. ``epsilon``: what counts as a score of 0.

    Source: Topiary Eq. 9.
    """
    if not scores:
        return []
    limit = max(eta * min(scores.values()), epsilon)
    return sorted(topic for topic, score in scores.items() if score > limit)
