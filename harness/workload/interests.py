"""Interest models: which topics a node subscribes to each time it joins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from harness.errors import ExperimentError
from harness.experiment import InterestsSpec
from harness.workload.grid import GridInterests
from harness.workload.interest_file import read_interests
from harness.workload.popularity import PopularityInterests
from harness.workload.streams import generator

Topics = tuple[int, ...]
"""A node's topics in rising order."""

Interests = tuple[Topics, ...]
"""Every node's topics, index = node."""


class InterestModel(Protocol):
    """Draws interests; the same arguments always give the same topics, whatever was drawn before."""

    def draw(self, node: int, life: int) -> Topics:
        """The topics that a node takes when it joins for the ``life``-th time (0 = the first time)."""
        ...


class IndependentInterests:
    """Every pair of node and topic is drawn independently; a node may have no topic at all."""

    def __init__(self, ratio: float, topics: int, seed: int) -> None:
        self._ratio = ratio
        self._topics = topics
        self._seed = seed

    def draw(self, node: int, life: int) -> Topics:
        """See ``InterestModel``."""
        draws = generator(self._seed, node, f"interests/{life}").random(self._topics)
        return tuple((draws < self._ratio).nonzero()[0].tolist())


class FixedInterests:
    """What a file says; the same at every join."""

    def __init__(self, interests: Interests) -> None:
        self._interests = interests

    def draw(self, node: int, life: int) -> Topics:
        """See ``InterestModel``."""
        return self._interests[node]


def make_model(spec: InterestsSpec, topics: int, nodes: int, seed: int, folder: Path) -> InterestModel:
    """The model that an experiment asks for.

    Args:
        spec: the section ``[interests]``.
        topics: number of topics.
        nodes: number of nodes.
        seed: the run's.
        folder: where the experiment file is; ``spec.path`` is relative to it.

    Raises:
        ExperimentError: a file is missing or wrong.
    """
    recipes: dict[str, Callable[[], InterestModel]] = {
        "independent": lambda: IndependentInterests(spec.ratio, topics, seed),
        "popularity": lambda: PopularityInterests(spec, topics, seed),
        "grid": lambda: GridInterests(spec, topics, seed),
        "file": lambda: FixedInterests(read_interests(_path(spec, folder), nodes, topics)),
    }
    return recipes[spec.kind]()


def draw_interests(model: InterestModel, nodes: int) -> Interests:
    """Every node's first topics."""
    return tuple(model.draw(node, 0) for node in range(nodes))


def _path(spec: InterestsSpec, folder: Path) -> Path:
    if spec.path is None:
        raise ExperimentError("$.interests.path", 'missing: kind = "file" needs it')
    return folder / Path(spec.path).expanduser()
