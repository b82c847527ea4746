"""K-coverage: what SpiderCast's tasks aim at, and how they choose the next neighbour."""

from collections.abc import Callable, Iterable, Sequence
from random import Random

from peer.core.bitset import Bitset, choose, lowest, most_often
from peer.core.contract import NodeId, TopicId
from peer.core.membership.interface import Membership

Interest = frozenset[TopicId]


class Coverage:
    """Counts, for each topic of the node's interest, the neighbours that share it: ``times`` (K) are wanted.

    It is kept up to date neighbour by neighbour, so that asking costs one step for each topic of the own interest.

    Args:
        times: K.
        attainable: how many neighbours can share a topic at most; more are not missed. None = K are wanted on every
            topic, as in the paper, even if fewer exist.

    Attributes:
        times: K, the number of neighbours wanted on every topic.

    Source: SpiderCast section 2.3, Figure 3, lines 1-7.
    """

    def __init__(self, times: int, attainable: Callable[[TopicId], int] | None = None) -> None:
        self.times = times
        self._attainable = attainable
        self._counts: dict[TopicId, int] = {}

    @property
    def wanted(self) -> bool:
        return self.times > 0

    @property
    def limit(self) -> int:
        """L_max: enough neighbours even where each covers a single topic."""
        return self.times * len(self._counts)

    def recount(self, own: Interest, neighbours: Iterable[Interest]) -> None:
        self._counts = dict.fromkeys(sorted(own), 0)
        for interest in neighbours:
            self.add(interest)

    def add(self, interest: Interest) -> None:
        counts = self._counts
        for topic in interest:
            if topic in counts:
                counts[topic] += 1

    def remove(self, interest: Interest) -> None:
        counts = self._counts
        for topic in interest:
            if topic in counts:
                counts[topic] -= 1

    def missing(self, gone: Sequence[Interest] = ()) -> int:
        """CALCKUNCOVERED: how many topics fewer than K neighbours share, not counting the neighbours in ``gone``."""
        times = self.times
        if self._attainable is not None:
            return sum(self._lacks(topic, self._left(topic, gone)) for topic in self._counts)
        if not gone:
            return sum(count < times for count in self._counts.values())
        return sum(count - sum(topic in interest for interest in gone) < times for topic, count in self._counts.items())

    def _left(self, topic: TopicId, gone: Sequence[Interest]) -> int:
        """How many neighbours share a topic, not counting those in ``gone``."""
        return self._counts[topic] - sum(topic in interest for interest in gone)

    def _lacks(self, topic: TopicId, count: int) -> bool:
        """Whether a topic has too few neighbours."""
        return count < self.times and (self._attainable is None or count < self._attainable(topic))

    def gains_by(self, interest: Interest) -> bool:
        """Whether an interest holds a topic that fewer than K neighbours share."""
        return not interest.isdisjoint(self.uncovered())

    def critical(self, gone: Sequence[Interest]) -> Interest:
        """The topics that exactly K neighbours share, not counting those in ``gone``; or as many as can."""
        times, counts = self.times, self._counts
        if self._attainable is not None:
            left = {topic: self._left(topic, gone) for topic in counts}
            covered = {topic: count for topic, count in left.items() if count and not self._lacks(topic, count)}
            return frozenset(topic for topic, count in covered.items() if self._lacks(topic, count - 1))
        if not gone:
            return frozenset([topic for topic, count in counts.items() if count == times])
        return frozenset(topic for topic in counts if counts[topic] - sum(topic in other for other in gone) == times)

    def uncovered(self) -> list[TopicId]:
        """The topics that too few neighbours share, rising."""
        return [topic for topic, count in self._counts.items() if self._lacks(topic, count)]


class GreedyCoverage(Coverage):
    """Chooses the node that covers the most topics of those that are not covered yet.

    Args:
        times: K.
        attainable: see ``Coverage``.
        fair: whether any of several such nodes is chosen at random; else always that with the lowest number.
    """

    def __init__(self, times: int, attainable: Callable[[TopicId], int] | None = None, *, fair: bool = True) -> None:
        super().__init__(times, attainable)
        self._fair = fair

    def next_node(self, membership: Membership, among: Bitset, draws: Random) -> NodeId | None:
        """NEXTGREEDYCOVERAGENODE: None where nobody covers any.

        Source: SpiderCast Figure 5, lines 1-9, coverage taken over the neighbours (lines 5 and 6 of the figure take it
        over the candidates, by which every popular topic looks covered).
        """
        best = most_often((membership.subscribers(topic) for topic in self.uncovered()), among)
        if best and not self._fair:
            return lowest(best)
        return choose(best, draws) if best else None


class RandomCoverage(Coverage):
    """Chooses any node that covers at least one topic of those that are not covered yet."""

    def next_node(self, membership: Membership, among: Bitset, draws: Random) -> NodeId | None:
        """NEXTRANDOMCOVERAGENODE: None where nobody covers any.

        Source: SpiderCast Figure 5, lines 10-19, coverage taken over the neighbours.
        """
        useful = 0
        for topic in self.uncovered():
            useful |= membership.subscribers(topic)
        useful &= among
        return choose(useful, draws) if useful else None
