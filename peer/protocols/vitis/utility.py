"""The preference function: how much a node gains from a neighbour."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from peer.core.bitset import Bitset, bitset, members
from peer.core.contract import TopicId
from peer.core.rates import RateLaw, topic_rates
from peer.core.tman.shared_sets import PerSet

Topics = frozenset[TopicId]

HIGHEST_TOPIC = 1 << 20
"""Topics from here on are shared with nobody; experiments have at most 100,000."""


def _count_memory(topics: Topics) -> int:
    """Return how much a set and its bits take, as ``PerSet`` counts."""
    return len(topics) + (min(max(topics, default=0), HIGHEST_TOPIC) >> 9)


class Weights(PerSet[tuple[Bitset, float]]):
    """A set of topics as bits, and the rate of all of them together.

    An intersection of random sets takes a fifth of the time as bits.

    Args:
        rates: relative publication rate of each topic; None = all are 1. Topics beyond it have rate 0.
    """

    __slots__ = ("rates",)

    def __init__(self, rates: Sequence[float] | None = None) -> None:
        super().__init__(self._weigh, _count_memory)
        self.rates = rates

    def of_bits(self, topics: Bitset) -> float:
        """Return the rate of topics as bits; it is not kept."""
        return topics.bit_count() if self.rates is None else self._add_up(members(topics))

    def _weigh(self, topics: Topics) -> tuple[Bitset, float]:
        bits = bitset(topic for topic in topics if topic < HIGHEST_TOPIC)
        return bits, len(topics) if self.rates is None else self._add_up(sorted(topics))

    def _add_up(self, topics: Iterable[TopicId]) -> float:
        rates = self.rates or ()
        return sum([rates[topic] for topic in topics if topic < len(rates)])


@lru_cache(maxsize=8)
def weights_of(law: RateLaw | None) -> Weights:
    """Return the weights that all nodes of a process share."""
    return Weights(None if law is None else topic_rates(law))


def rate_utility(shared: float, own: float, theirs: float) -> float:
    """Return the utility of a neighbour from the rates of the topics in common, of one's own and of its topics.

    Source: Vitis Equation 1.
    """
    return shared / (own + theirs - shared) if shared > 0 else 0.0


class Preference:
    """The utility of other nodes for one with these subscriptions.

    It is the rate of the topics that the two share, over the rate of all topics of the two (``rate_utility``).
    """

    __slots__ = ("_bits", "_weight", "_weights")

    def __init__(self, own: Topics, weights: Weights) -> None:
        self._bits, self._weight = weights[own]
        self._weights = weights

    def utility(self, theirs: Topics) -> float:
        """Return the utility of a node with these subscriptions."""
        bits, weight = self._weights[theirs]
        common = self._bits & bits
        return rate_utility(self._weights.of_bits(common), self._weight, weight) if common else 0.0
