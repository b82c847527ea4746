"""K-coverage: the aim of SpiderCast's tasks, and how they choose the next neighbour."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from peer.core.bitset import Bitset, choose, lowest, most_often
from peer.core.contract import NodeId, TopicId
from peer.core.membership.interface import Membership

Interest = frozenset[TopicId]


class Coverage:
    """Counts the neighbours that share each topic of the node's interest; the aim is ``times`` (K) per topic.

    The counts are updated with every neighbour, so that a question costs one step per topic of the node's interest.

    Args:
        times: K.
        attainable: returns the largest number of neighbours that can share a topic, which suffices. None = every topic
            needs K neighbours, as in the paper, even if fewer exist.

    Attributes:
        times: K, the number of neighbours that every topic needs.

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
        """L_max: enough neighbours even if each covers only one topic."""
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
        """Return how many topics fewer than K neighbours share, without the neighbours in ``gone`` (CALCKUNCOVERED)."""
        times, left = self.times, self._left(gone)
        if self._attainable is not None:
            return sum([self._lacks(topic, count) for topic, count in left.items()])
        return sum([count < times for count in left.values()])

    def _left(self, gone: Sequence[Interest]) -> Mapping[TopicId, int]:
        """Return how many neighbours share each topic, without those in ``gone``."""
        left = self._counts
        for interest in gone:
            left = {topic: count - (topic in interest) for topic, count in left.items()}
        return left

    def _lacks(self, topic: TopicId, count: int) -> bool:
        """Return whether so many neighbours are too few for a topic."""
        return count < self.times and (self._attainable is None or count < self._attainable(topic))

    def gains_by(self, interest: Interest) -> bool:
        """Return whether an interest contains a topic that too few neighbours share."""
        return not interest.isdisjoint(self.uncovered())

    def critical(self, gone: Sequence[Interest]) -> Interest:
        """Return the topics that exactly as many neighbours share as they need, without those in ``gone``."""
        times, left = self.times, self._left(gone)
        if self._attainable is not None:
            covered = {topic: count for topic, count in left.items() if count and not self._lacks(topic, count)}
            return frozenset(topic for topic, count in covered.items() if self._lacks(topic, count - 1))
        return frozenset([topic for topic, count in left.items() if count == times])

    def uncovered(self) -> list[TopicId]:
        """Return the topics that too few neighbours share, in rising order."""
        return [topic for topic, count in self._counts.items() if self._lacks(topic, count)]


class GreedyCoverage(Coverage):
    """Chooses the node that covers the largest number of uncovered topics.

    Args:
        times: K.
        attainable: as in ``Coverage``.
        fair: whether to draw one of several such nodes at random; otherwise choose the lowest number.
    """

    def __init__(self, times: int, attainable: Callable[[TopicId], int] | None = None, *, fair: bool = True) -> None:
        super().__init__(times, attainable)
        self._fair = fair

    def next_node(self, membership: Membership, among: Bitset, draws: Random) -> NodeId | None:
        """Return a candidate that covers the most uncovered topics; None if none covers any (NEXTGREEDYCOVERAGENODE).

        Args:
            membership: names the subscribers of topics.
            among: the candidates.
            draws: the generator.

        Source: SpiderCast Figure 5, lines 1-9, with the coverage by the neighbours. Lines 5 and 6 of the figure take
        the coverage by the candidates, so that every popular topic seems covered.
        """
        best = most_often((membership.subscribers(topic) for topic in self.uncovered()), among)
        if best and not self._fair:
            return lowest(best)
        return choose(best, draws) if best else None


class RandomCoverage(Coverage):
    """Chooses any node that covers at least one uncovered topic."""

    def next_node(self, membership: Membership, among: Bitset, draws: Random) -> NodeId | None:
        """Return any candidate that covers an uncovered topic; None if none does (NEXTRANDOMCOVERAGENODE).

        Args:
            membership: names the subscribers of topics.
            among: the candidates.
            draws: the generator.

        Source: SpiderCast Figure 5, lines 10-19, with the coverage by the neighbours.
        """
        useful = 0
        for topic in self.uncovered():
            useful |= membership.subscribers(topic)
        useful &= among
        return choose(useful, draws) if useful else None
