"""The preference function: the utility of a neighbour for a node."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from peer.core.bitset import Bitset, bitset, members
from peer.core.contract import TopicId
from peer.core.rates import RateLaw, topic_rates
from peer.protocols.tman.shared_sets import PerSet

Topics = frozenset[TopicId]

HIGHEST_TOPIC = 1 << 20
"""Topics from this number on do not count as shared. Experiments have at most 100,000 topics."""


def _count_memory(topics: Topics) -> int:
    """Return the memory of a set and its bits in the unit of ``PerSet``."""
    return len(topics) + (min(max(topics, default=0), HIGHEST_TOPIC) >> 9)


class Weights(PerSet[tuple[Bitset, float]]):
    """For each set of topics, its bits and the sum of its rates.

    The intersection of two random sets takes a fifth of the time if they are bits.

    Args:
        rates: the relative publication rate of each topic; None = all are 1. Topics beyond its end have rate 0.
    """

    __slots__ = ("rates",)

    def __init__(self, rates: Sequence[float] | None = None) -> None:
        super().__init__(self._weigh, _count_memory)
        self.rates = rates

    def of_bits(self, topics: Bitset) -> float:
        """Return the rate of topics given as bits. The result is not cached."""
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
    """Return the utility of a neighbour.

    Args:
        shared: the rate of the shared topics.
        own: the rate of this node's topics.
        theirs: the rate of the neighbour's topics.

    Source: Vitis Equation 1.
    """
    return shared / (own + theirs - shared) if shared > 0 else 0.0


class Preference:
    """The utility of other nodes for a node with these subscriptions.

    It is the rate of the topics that two nodes share, divided by the rate of all topics of both (``rate_utility``).
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
