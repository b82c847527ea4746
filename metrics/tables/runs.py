"""Find exact quantiles of values in many files: each file is sorted, and no process reads them all.

A task writes its values sorted, as a *sorted run*. Quantiles are found by bisection of the values themselves: a step
asks every run how many of its values are at most the middle, which reads a few of them. Floats have the order of their
bits, apart from the sign, so both kinds are bisected as integers.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from metrics.measures.distribution import Distribution, kept_ranks
from metrics.measures.measure import Values
from metrics.pcap.walk import Ints
from metrics.storage import Place
from metrics.storage.attempts import whole
from metrics.storage.copies import map_array

_MOST: int = np.iinfo(np.int64).max


class SortedRun(NamedTuple):
    """The sorted values of a task."""

    path: Place
    total: float  # the sum of the values, exact for integers


def write_run(path: Place, values: Values) -> SortedRun:
    """Write (n,) integers, or floats without NaN, as a sorted run."""
    _save(path, np.sort(values))
    return SortedRun(path, values.sum().item())


class LabelledRun(NamedTuple):
    """A sorted run each of whose values has a label, an integer. Labels of equal values rise."""

    values: SortedRun
    labels: Place


def write_labelled_run(path: Place, values: Values, labels: Ints) -> LabelledRun:
    """Write (n,) values as ``write_run`` does, and their (n,) labels beside them."""
    beside = path.with_name(f"labels-{path.name}")
    _save(beside, labels[np.lexsort((labels, values))])
    return LabelledRun(write_run(path, values), beside)


def find_label(runs: Iterable[LabelledRun], share: float) -> int | None:
    """Return the least label of the value that is a quantile (``SortedRuns.quantile``); None if there are no values."""
    runs = list(runs)
    every = SortedRuns(run.values for run in runs)
    if not every.count:
        return None
    wanted = every.quantile(share)
    found: list[int] = []
    for run in runs:
        values = map_array(run.values.path)
        first, last = np.searchsorted(values, wanted, "left"), np.searchsorted(values, wanted, "right")
        found += map_array(run.labels)[first : min(first + 1, last)].tolist()
    return min(found)


def _save(path: Place, values: npt.NDArray[Any]) -> None:
    with whole(path) as attempt, attempt.open("wb") as file:
        np.save(file, values)


class SortedRuns:
    """The values of several runs, all of integers or all of floats."""

    def __init__(self, runs: Iterable[SortedRun]) -> None:
        runs = list(runs)
        self._runs = [found for run in runs if len(found := map_array(run.path))]
        self._kind = self._runs[0].dtype if self._runs else np.dtype(np.int64)
        self.count = sum(map(len, self._runs))
        self.total = sum(run.total for run in runs)

    def at_ranks(self, ranks: Sequence[int]) -> Values:
        """Return the values, (n,), at ranks: the number of values before each when all are sorted. They must exist."""
        wanted = np.array(ranks, np.int64)
        low = np.full(len(wanted), min(self._code(run[:1])[0] for run in self._runs))
        high = np.full(len(wanted), max(self._code(run[-1:])[0] for run in self._runs))
        while (low < high).any():
            middle = (low & high) + ((low ^ high) >> 1)  # their sum may be too large for 64 bits
            middles = self._value(middle)
            below = np.sum([np.searchsorted(run, middles, "right") for run in self._runs], axis=0)
            low, high = np.where(below > wanted, low, middle + 1), np.where(below > wanted, middle, high)
        return self._value(low)

    def at_rank(self, rank: int) -> float:
        """Return the value at a rank: the number of values before it when all are sorted."""
        value: float = self.at_ranks([rank])[0].item()  # an integer if the values are integers
        return value

    def quantile(self, share: float) -> float:
        """Return the least value that at least this share of all values does not exceed; 0 if there are no values."""
        return self.at_rank(max(math.ceil(self.count * share) - 1, 0)) if self.count else 0.0

    def distribution(self, unit: float = 1.0) -> Distribution:
        """Return the distribution of the values, divided by ``unit``."""
        ranks = kept_ranks(self.count)
        values = self.at_ranks(ranks) / unit if ranks else np.empty(0)
        return Distribution(self.count, self.total / unit, tuple(ranks), tuple(values.tolist()))

    def _code(self, values: Values) -> Ints:
        """Return integers in the order of the values."""
        bits: Ints = np.ascontiguousarray(values).view(np.int64)
        return bits if self._kind.kind == "i" else _turned(bits)

    def _value(self, codes: Ints) -> npt.NDArray[np.generic]:
        """Return the values of such integers."""
        return codes if self._kind.kind == "i" else _turned(codes).view(self._kind)


def _turned(bits: Ints) -> Ints:
    """Turn the bits of floats to integers in the order of the floats, or back: negative floats are in reverse order."""
    turned: Ints = bits ^ (bits >> 63 & _MOST)
    return turned
