"""Interests by nearness: nodes and topics on a grid, so that who shares one topic is likely to share others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.experiment import InterestsSpec
from harness.workload.streams import NETWORK, generator

Chances = npt.NDArray[np.float64]


class GridInterests:
    """Nodes and copies of the topics' ids on random cells of a square grid; a node takes what lies within its radius.

    The number of copies of a topic (1 .. ``copies_max``) and a node's radius (1 .. ``radius_max`` cells) follow power
    laws, each with its exponent: P(k) is proportional to k to the power of -exponent. Distances are Euclidean, the
    grid has borders, and many may stand on one cell. A node that joins again has moved to another cell with another
    radius; the topics stay.

    Source: StAN section 3.
    """

    def __init__(self, spec: InterestsSpec, topics: int, seed: int) -> None:
        self._spec = spec
        self._seed = seed
        self._radii = power_law(spec.radius_exponent, spec.radius_max)
        draws = generator(seed, NETWORK, "topics")
        copies = 1 + np.searchsorted(power_law(spec.copies_exponent, spec.copies_max), draws.random(topics), "right")
        self._topic = np.repeat(np.arange(topics), copies)
        self._x, self._y = draws.integers(0, spec.grid_side, (2, len(self._topic)))

    def draw(self, node: int, life: int) -> tuple[int, ...]:
        """See ``InterestModel``."""
        draws = generator(self._seed, node, f"interests/{life}")
        x, y = draws.integers(0, self._spec.grid_side, 2)
        radius = 1 + int(np.searchsorted(self._radii, draws.random(), "right"))
        near = (self._x - x) ** 2 + (self._y - y) ** 2 <= radius**2
        return tuple(np.unique(self._topic[near]).tolist())


def power_law(exponent: float, largest: int) -> Chances:
    """The chances of at most 1, at most 2, ... at most ``largest``; the last one is exactly 1."""
    chances: Chances = np.cumsum(np.arange(1, largest + 1, dtype=np.float64) ** -exponent)
    chances /= chances[-1]
    return chances
