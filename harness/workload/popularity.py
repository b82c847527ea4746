"""Interests by the topics' popularity: every node draws its topics by their weights, each topic once at most."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.experiment import InterestsSpec
from harness.workload.streams import generator

NYSE_SHARE = 0.1
NYSE_MASS = 0.55
"""Of the exponential distribution, the most popular tenth of the topics has this mass."""

Weights = npt.NDArray[np.float64]


class PopularityInterests:
    """A uniform number of topics, drawn without replacement by weights that fall with the topic's number.

    Each draw chooses among the topics not yet drawn with probabilities proportional to their weights. All draws are
    made at once: the first k arrivals of independent exponential clocks, one a topic with its weight as the rate, are
    such a sample.

    Source: SpiderCast section 3.1; Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006.
    """

    def __init__(self, spec: InterestsSpec, topics: int, seed: int) -> None:
        self._weights = topic_weights(spec.popularity, topics, spec.zipf_exponent)
        self._fewest = spec.subscriptions_min
        self._most = spec.subscriptions_max
        self._seed = seed

    def draw(self, node: int, life: int) -> tuple[int, ...]:
        """See ``InterestModel``."""
        draws = generator(self._seed, node, f"interests/{life}")
        size = int(draws.integers(self._fewest, self._most, endpoint=True))
        arrivals = draws.standard_exponential(len(self._weights)) / self._weights
        first = np.argpartition(arrivals, size - 1)[:size]
        return tuple(sorted(first.tolist()))


def topic_weights(popularity: str, topics: int, zipf_exponent: float) -> Weights:
    """The weight of each topic, the most popular one (topic 0) first; they add up to 1.

    ``zipf``: rank to the power of -exponent. ``nyse``: exponential, see ``NYSE_MASS``. ``uniform``: all equal.
    """
    ranks = np.arange(1, topics + 1, dtype=np.float64)
    weights: Weights
    if popularity == "zipf":
        weights = ranks**-zipf_exponent
    elif popularity == "nyse":
        weights = _nyse_ratio() ** (ranks / (NYSE_SHARE * topics))
    else:
        weights = np.ones(topics)
    weights /= weights.sum()
    return weights


def _nyse_ratio() -> float:
    """By what factor an exponential weight falls from one tenth of the topics to the next: (1 - x) / (1 - x^10) = 0.55.

    The left side falls from 1 to 0.1 while x rises from 0 to 1.
    """
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        mass = (1 - middle) / (1 - middle ** (1 / NYSE_SHARE))
        low, high = (middle, high) if mass > NYSE_MASS else (low, middle)
    return low
