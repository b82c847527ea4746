"""The relative publication rates of the topics. Workloads draw from them, and protocols may weigh topics by them."""

from functools import lru_cache

from msgspec import Struct

from peer.core.randomness import NETWORK, substream


class RateLaw(Struct, frozen=True):
    """A power law: the topic of rank r, from 1, has a rate proportional to r to the power of -exponent.

    The seed draws the topics' ranks, so that rates depend neither on the topics' popularity nor on their buckets.

    Attributes:
        topics: number of topics.
        exponent: 0 = equal rates.
        seed: the seed of the run, which is the same for all nodes and instances.

    Source: Vitis section IV-D, which leaves the order of the topics open.
    """

    topics: int
    exponent: float
    seed: int


@lru_cache(maxsize=8)
def topic_rates(law: RateLaw) -> tuple[float, ...]:
    """Return each topic's share of the messages while nodes can publish on it. The shares add up to 1.

    All nodes of a process share the result.
    """
    ranks = substream(law.seed, NETWORK, "rates").sample(range(1, law.topics + 1), law.topics)
    weights = [rank**-law.exponent for rank in ranks]
    total = sum(weights)
    return tuple(weight / total for weight in weights)
