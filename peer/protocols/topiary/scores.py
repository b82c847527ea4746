"""The scores of subsets of the neighbours. A lower score is better.

The paper's formulas contradict its text. Eq. 3 counts the messages that a subset relays, but the text speaks of those
that it does not relay. The node keeps the subset with the *highest* score, although a high score "indicates poorer
performance". Here coverage counts the missed messages, and the node keeps the lowest score; ``literal`` follows the
formulas.

Units: F_d in seconds; F_c as a fraction of the messages published, F_w as a fraction of the messages received.
"""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from peer.core.contract import TopicId
from peer.protocols.topiary.observation import Arrivals

Subset = tuple[int, ...]
"""Columns of an ``Observation``, in rising order."""


class Weights(NamedTuple):
    """The weights of coverage, delay (per second) and wasted bandwidth. Source: Topiary section IV-D."""

    coverage: float
    delay: float
    waste: float


class Tally:
    """Sums over an epoch's messages, from which the score of every subset is computed.

    A message counts for a subset by the first member of the subset that brought it. So messages are added up by that
    member and by the neighbours that brought them before it: a few additions per message, whatever the number of
    subsets.

    Args:
        interests: the topics that the node subscribes to.
        importance: the weights of topics other than 1.
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
        """Return the score S of a subset.

        Args:
            subset: the columns of its neighbours.
            published: the estimated number of messages on the node's topics, weighted by the topics' importance.
            weights: the weights of the three terms.
            literal: whether to count the coverage as the paper's formula does.

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
        """Return the highest importance of a message's topics that the node subscribes to; 0 = it has none."""
        if not self._importance:
            return 0.0 if self._interests.isdisjoint(topics) else 1.0
        return max((self._importance.get(topic, 1.0) for topic in topics if topic in self._interests), default=0.0)


def best_subset(
    tally: Tally, columns: int, kept: int, published: float, weights: Weights, *, literal: bool
) -> tuple[Subset, float]:
    """Return the best subset of the neighbours and its score; the first of several equal ones.

    Args:
        tally: the sums of the epoch.
        columns: the number of neighbours.
        kept: the size of the subset.
        published: the estimated number of messages on the node's topics, weighted by the topics' importance.
        weights: the weights of the three terms.
        literal: whether to score as the paper's formulas do.

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
    """Return the score S^theta of the kept subset for each topic in ``published``.

    A topic without an arrival counts as missed completely.

    Args:
        messages: the arrivals of the epoch's messages.
        kept: the columns of the kept subset.
        published: the estimated number of messages per topic.
        weights: the weights of coverage and delay.
        literal: whether to count the coverage as the paper's formula does.

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
    """Return sigma^+, the topics on which the kept neighbours do less well, in rising order.

    Args:
        scores: the scores by topic.
        eta: the multiple of the best score above which a score is worse.
        epsilon: the largest score that counts as 0.

    Source: Topiary Eq. 9.
    """
    if not scores:
        return []
    limit = max(eta * min(scores.values()), epsilon)
    return sorted(topic for topic, score in scores.items() if score > limit)
