"""Interest models: which topics a node subscribes to each time it joins."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from harness.experiment.data import require_data
from harness.experiment.sections.workload import InterestsSpec
from harness.workload.files import read_interests
from harness.workload.follower_graph import sample_followers
from peer.core.randomness import NETWORK, substream

Reals = npt.NDArray[np.float64]

Topics = tuple[int, ...]
"""A node's topics in ascending order."""

Interests = tuple[Topics, ...]
"""Every node's topics, index = node."""

NYSE_SHARE = 0.1
NYSE_MASS = 0.55
"""The most popular tenth of the topics has this share of the exponential distribution."""


def generator(seed: int, node: int, purpose: str) -> np.random.Generator:
    """Return NumPy's counterpart of ``substream``: equal arguments give equal streams on every machine."""
    return np.random.Generator(np.random.PCG64(substream(seed, node, purpose).getrandbits(128)))


class InterestModel(Protocol):
    """Draws interests. Equal arguments give equal topics, whatever was drawn before."""

    def draw(self, node: int, life: int) -> Topics:
        """Return the topics of a node when it joins for the ``life``-th time (0 = the first time)."""
        ...


class IndependentInterests:
    """Every pair of node and topic is drawn independently; a node may have no topic."""

    def __init__(self, ratio: float, topics: int, seed: int) -> None:
        self._ratio = ratio
        self._topics = topics
        self._seed = seed

    def draw(self, node: int, life: int) -> Topics:
        draws = generator(self._seed, node, f"interests/{life}").random(self._topics)
        return tuple((draws < self._ratio).nonzero()[0].tolist())


class PopularityInterests:
    """A uniform number of topics, drawn without replacement by weights that decrease with the topic's number.

    Each draw chooses among the remaining topics with probabilities proportional to their weights. All draws are made at
    once: the first k arrivals of independent exponential clocks, one per topic with its weight as the rate, are such a
    sample.

    Source: SpiderCast section 3.1; Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006.
    """

    def __init__(self, spec: InterestsSpec, topics: int, seed: int) -> None:
        self._weights = topic_weights(spec.popularity, topics, spec.zipf_exponent)
        self._fewest = spec.subscriptions_min
        self._most = spec.subscriptions_max
        self._seed = seed

    def draw(self, node: int, life: int) -> tuple[int, ...]:
        draws = generator(self._seed, node, f"interests/{life}")
        size = int(draws.integers(self._fewest, self._most, endpoint=True))
        arrivals = draws.standard_exponential(len(self._weights)) / self._weights
        first = np.argpartition(arrivals, size - 1)[:size]
        return tuple(sorted(first.tolist()))


def topic_weights(popularity: str, topics: int, zipf_exponent: float) -> Reals:
    """Return the weight of each topic, the most popular one (topic 0) first; they add up to 1.

    ``zipf``: rank to the power of -exponent. ``nyse``: exponential, see ``NYSE_MASS``. ``uniform``: all equal.
    """
    ranks = np.arange(1, topics + 1, dtype=np.float64)
    weights: Reals
    if popularity == "zipf":
        weights = ranks**-zipf_exponent
    elif popularity == "nyse":
        weights = _nyse_ratio() ** (ranks / (NYSE_SHARE * topics))
    else:
        weights = np.ones(topics)
    weights /= weights.sum()
    return weights


def _nyse_ratio() -> float:
    """Return the ratio x of the weights of successive tenths of the topics: (1 - x) / (1 - x^10) = 0.55.

    The left side falls from 1 to 0.1 as x rises from 0 to 1.
    """
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        mass = (1 - middle) / (1 - middle ** (1 / NYSE_SHARE))
        low, high = (middle, high) if mass > NYSE_MASS else (low, middle)
    return low


class GridInterests:
    """Nodes and copies of topics on random cells of a square grid; a node takes the topics within its radius.

    The number of copies of a topic (1 to ``copies_max``) and a node's radius (1 to ``radius_max`` cells) follow power
    laws, each with its exponent: P(k) is proportional to k to the power of -exponent. Distances are Euclidean, the grid
    has borders, and a cell may hold any number. A node that joins again has another cell and radius; the topics do not
    move.

    Attributes:
        topic: of each copy: its topic.
        x: of each copy: its cell's column.
        y: of each copy: its cell's row.

    Source: StAN section 3.
    """

    def __init__(self, spec: InterestsSpec, topics: int, seed: int) -> None:
        self._spec = spec
        self._seed = seed
        self._radii = power_law(spec.radius_exponent, spec.radius_max)
        draws = generator(seed, NETWORK, "topics")
        copies = 1 + np.searchsorted(power_law(spec.copies_exponent, spec.copies_max), draws.random(topics), "right")
        self.topic = np.repeat(np.arange(topics), copies)
        self.x, self.y = draws.integers(0, spec.grid_side, (2, len(self.topic)))

    def draw(self, node: int, life: int) -> tuple[int, ...]:
        draws = generator(self._seed, node, f"interests/{life}")
        x, y = draws.integers(0, self._spec.grid_side, 2)
        radius = 1 + int(np.searchsorted(self._radii, draws.random(), "right"))
        near = (self.x - x) ** 2 + (self.y - y) ** 2 <= radius**2
        return tuple(np.unique(self.topic[near]).tolist())


def power_law(exponent: float, largest: int) -> Reals:
    """Return the probabilities of at most 1, at most 2, ... at most ``largest``; the last one is exactly 1."""
    chances: Reals = np.cumsum(np.arange(1, largest + 1, dtype=np.float64) ** -exponent)
    chances /= chances[-1]
    return chances


class BucketInterests:
    """Topics from a few buckets: the fewer buckets a node draws from, the more topics similar nodes share.

    The topics are divided into buckets of equal size by their numbers. A node draws some buckets, and some topics from
    each of them, uniformly and without replacement. All topics are equally popular on average.

    Source: Vitis section IV-A.
    """

    def __init__(self, spec: InterestsSpec, topics: int, seed: int) -> None:
        self._spec = spec
        self._size = topics // spec.buckets
        self._seed = seed

    def draw(self, node: int, life: int) -> Topics:
        spec, draws = self._spec, generator(self._seed, node, f"interests/{life}")
        chosen = draws.choice(spec.buckets, spec.buckets_per_node, replace=False)
        within = [draws.choice(self._size, spec.topics_per_bucket, replace=False) for _ in chosen]
        return tuple(sorted((chosen[:, None] * self._size + np.stack(within)).ravel().tolist()))


class FixedInterests:
    """Interests from a file, the same at every join."""

    def __init__(self, interests: Interests) -> None:
        self._interests = interests

    def draw(self, node: int, life: int) -> Topics:
        return self._interests[node]


class ExpectedDraws(NamedTuple):
    """What an interest model draws on average.

    Attributes:
        subscriptions: topics of one instance of a node.
        numbers: random numbers, or distances, for one instance of a node.
        common: numbers that are drawn once for all nodes.
    """

    subscriptions: float = 0.0
    numbers: float = 0.0
    common: float = 0.0


def expected_draws(spec: InterestsSpec, topics: int) -> ExpectedDraws:
    """Return what the model of an experiment draws; nothing for interests from a file."""
    if spec.kind == "independent":
        return ExpectedDraws(spec.ratio * topics, topics)
    if spec.kind == "popularity":
        return ExpectedDraws((spec.subscriptions_min + spec.subscriptions_max) / 2, topics)
    if spec.kind == "buckets":
        chosen = spec.buckets_per_node * spec.topics_per_bucket
        return ExpectedDraws(chosen, spec.buckets + spec.buckets_per_node * (topics // spec.buckets))
    if spec.kind == "grid":
        copies = topics * mean_power(spec.copies_exponent, spec.copies_max, 1)
        covered = math.pi * mean_power(spec.radius_exponent, spec.radius_max, 2) / spec.grid_side**2
        return ExpectedDraws(min(topics, copies * covered), copies, copies)
    return ExpectedDraws()


def mean_power(exponent: float, largest: int, power: int) -> float:
    """Return the mean of a power of a number that follows ``power_law``."""
    chances = np.diff(power_law(exponent, largest), prepend=0.0)
    return float(chances @ np.arange(1, largest + 1, dtype=np.float64) ** power)


def make_model(spec: InterestsSpec, topics: int, nodes: int, seed: int, folder: Path) -> InterestModel:
    """Make the interest model of an experiment.

    Args:
        spec: the section ``[interests]``.
        topics: number of topics.
        nodes: number of nodes.
        seed: the seed of the run.
        folder: the folder of the experiment file; ``spec.path`` is relative to it.

    Raises:
        ExperimentError: a file is missing or invalid.
    """
    recipes: dict[str, Callable[[], InterestModel]] = {
        "independent": lambda: IndependentInterests(spec.ratio, topics, seed),
        "popularity": lambda: PopularityInterests(spec, topics, seed),
        "grid": lambda: GridInterests(spec, topics, seed),
        "buckets": lambda: BucketInterests(spec, topics, seed),
        "follower-graph": lambda: FixedInterests(
            sample_followers(require_data(spec, "interests", folder), nodes, substream(seed, NETWORK, "follower graph"))
        ),
        "file": lambda: FixedInterests(read_interests(require_data(spec, "interests", folder), nodes, topics)),
    }
    return recipes[spec.kind]()
