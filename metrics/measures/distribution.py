"""Distributions of many values: how many there are, their sum, and the values at some ranks."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

SHARES: Final = (0.5, 0.9, 0.99)
"""The quantiles that a distribution has."""

STEPS: Final = 400
"""How many values are kept for a curve, if there are so many."""


class Distribution(Struct, frozen=True):
    """The distribution of too many values to keep. It gives the same measures as an array of the values.

    ``ranks`` come from ``kept_ranks``: the quantiles of ``SHARES``, the smallest and the largest value are exact.
    """

    count: int
    total: float  # the sum of all values, also of the values that are not kept
    ranks: tuple[int, ...]  # from 0, in rising order
    values: tuple[float, ...]  # the values at these ranks when all are sorted

    def __len__(self) -> int:
        return self.count

    def mean(self) -> float:
        """Return the mean of all values, of which there must be at least one."""
        return self.total / self.count

    def max(self) -> float:
        """Return the largest value; there must be at least one."""
        return self.values[-1]

    def quantile(self, share: float) -> float:
        """Return a quantile, interpolated between two values as ``numpy.quantile`` does; there must be a value.

        Raises:
            ValueError: the values around it are not kept.
        """
        place = (self.count - 1) * share
        low = math.floor(place)
        kept = dict(zip(self.ranks, self.values, strict=True))
        try:
            before, after = kept[low], kept[min(low + 1, self.count - 1)]
        except KeyError:
            raise ValueError(f"the quantile {share} of {self.count} values is not kept") from None
        part = place - low
        return before + (after - before) * part if part < 0.5 else after - (after - before) * (1 - part)

    @property
    def steps(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """(n,) values in rising order, and how many of all values there are up to each: a curve of their shares."""
        return np.array(self.values, np.float64), np.array(self.ranks, np.int64) + 1


def pool(several: Sequence[Distribution]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the curve of several distributions together, as ``Distribution.steps`` does.

    Between two values that a distribution keeps, fewer than n / (``STEPS`` - 1) of its n values are not counted.
    """
    curves = [each.steps for each in several]
    values = np.concatenate([np.empty(0), *(values for values, _ in curves)])
    steps = np.concatenate([np.empty(0, np.int64), *(np.diff(upto, prepend=0) for _, upto in curves)])
    order = np.argsort(values, kind="stable")
    return values[order], np.cumsum(steps[order])


def of_counts(values: Sequence[int], counts: Sequence[int]) -> Distribution:
    """Return the distribution of integers: each of some rising values, and how often it occurs."""
    until = np.cumsum(np.array(counts, np.int64))
    ranks = kept_ranks(int(until[-1]) if len(until) else 0)
    places = np.searchsorted(until, np.array(ranks, np.int64), "right")
    total = sum(value * count for value, count in zip(values, counts, strict=True))
    return Distribution(sum(counts), total, tuple(ranks), tuple(values[place] for place in places.tolist()))


def kept_ranks(count: int) -> list[int]:
    """Return the ranks that are kept of ``count`` values: evenly spread ones, and the neighbours of the quantiles."""
    if not count:
        return []
    around = {math.floor((count - 1) * share) + step for share in SHARES for step in (0, 1)}
    spread: Sequence[int] = np.linspace(0, count - 1, min(count, STEPS)).astype(int).tolist()
    return sorted({min(rank, count - 1) for rank in (*around, *spread)})
