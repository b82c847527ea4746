"""Jitter: how the delay of a directed pair changes over time, with the mean and the deviation asked for, in order.

The delay of a pair is a function of time, whatever the traffic: it has a random value (a knot) every correlation time,
and is linear in between. So packets that enter one after the other have nearly the same delay, and a packet of any
pair, at any instant, has the delay that everybody who knows the seed computes: the simulator, the data plane, the
checks.

**Distribution.** A knot is between ``mean - below`` and ``mean + above``, uniform on either side of the mean, with the
probabilities that make the mean right: ``above / (below + above)`` is below it. Its variance is ``below * above / 3``.
At a random instant the delay is ``(1 - u) x + u y`` for two independent knots and a uniform u, so that its mean is
theirs and its variance is 2/3 of theirs: ``below * above`` is 9/2 of the variance asked for. Both are 3 / sqrt(2), or
2.12, deviations if the mean is as large as that. The delay then has a symmetric, bell-shaped distribution. Otherwise
``below`` is the mean, since no delay is negative, and ``above`` is larger: a tail.

**Order.** The slope is never beyond ``STEEPEST``: a pair whose knots are too far apart for the correlation time has
them more rarely. So a later packet is never due earlier, without waiting for the one before it.

**Exactness.** The levels of the knots are a shuffled table with equal distances, which each pair runs through in its
own order: over the whole table mean and deviation are those asked for, not only nearly.
"""

from functools import cached_property
from math import ceil, sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from topologies.draws import TABLE_MASK, TABLE_SIZE, start_of_pair

Ints = npt.NDArray[np.int64]

CORRELATION_MS: Final = 100.0
"""Default time between two knots of a pair's delay."""

STEEPEST: Final = 0.5
"""The largest change of a delay within a time, as a share of it. Order needs less than 1."""

REACH: Final = 3 / sqrt(2)
"""By how many deviations a delay is at most below its mean, and above it unless the mean is smaller."""

TAIL: Final = REACH**2
"""By how many deviations a delay is at most above its mean, however small that is."""

_MS = 1e6
_NO_PERIOD: Final = 1 << 63


class JitterProcess:
    """The deviation of a pair's delay from its mean, over time. ``Jitter.process`` makes it.

    Attributes:
        below_ns: the largest deviation below the mean.
        above_ns: the largest deviation above it.
        period_ns: time between two knots.
    """

    __slots__ = (
        "_bend",
        "_cursor",
        "_from_ns",
        "_levels",
        "_origin_ns",
        "_rise",
        "_share",
        "_slope",
        "_start_ns",
        "_stride",
        "above_ns",
        "below_ns",
        "period_ns",
    )

    def __init__(
        self, levels: list[float], pair: tuple[int, int, int], shape: tuple[int, float], times: tuple[int, int]
    ) -> None:
        """Begin before the first question.

        Args:
            levels: the table of levels, between 0 and 1.
            pair: where the pair begins in the table, and how far into a period it is (``topologies.draws.Start``).
            shape: mean of the delay, and its deviation.
            times: the shortest period, and the instant at which the process begins; it extends to both sides.
        """
        mean_ns, deviation_ns = shape
        correlation_ns, zero_ns = times
        self._levels = levels
        self._cursor, self._stride, phase = pair
        deviation_ns = min(deviation_ns, mean_ns)
        self.below_ns = below_ns = min(REACH * deviation_ns, mean_ns)
        self.above_ns = above_ns = (REACH * deviation_ns) ** 2 / below_ns if below_ns else 0.0
        width_ns = below_ns + above_ns
        self.period_ns = max(correlation_ns, ceil(width_ns / STEEPEST))
        self._origin_ns = zero_ns - self.period_ns * phase // TABLE_SIZE
        self._share = above_ns / width_ns if width_ns else 0.0
        # a deviation rises by ``rise - bend`` per level up to ``share``, and by ``rise + bend`` from there on
        slopes = (below_ns * width_ns / above_ns, above_ns * width_ns / below_ns) if width_ns else (0.0, 0.0)
        self._rise, self._bend = (slopes[1] + slopes[0]) / 2, (slopes[1] - slopes[0]) / 2
        self._from_ns, self._start_ns, self._slope = _NO_PERIOD, 0.0, 0.0

    def offset_ns(self, at_ns: int) -> int:
        """Return the deviation for a packet that enters at an instant. Fast if instants of one period follow."""
        since_ns = at_ns - self._from_ns
        if not 0 <= since_ns < self.period_ns:
            self._from_ns, self._start_ns, self._slope = self._segment(at_ns, self._levels)
            since_ns = at_ns - self._from_ns
        return int(self._start_ns + since_ns * self._slope)

    def offsets_ns(self, at_ns: Ints, levels: npt.NDArray[np.float64]) -> Ints:
        """Return the same for (n,) packets. ``levels``: the table as an array."""
        from_ns, start_ns, slope = self._segment(at_ns, levels)
        return np.asarray((start_ns + (at_ns - from_ns) * slope).astype(np.int64))

    def _segment(self, at_ns: Any, levels: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401 - an int or an array of them
        """Return of the period of an instant: when it begins, the deviation then, and the slope."""
        number, since_ns = divmod(at_ns - self._origin_ns, self.period_ns)
        place = self._cursor + self._stride * number
        start, end = levels[place & TABLE_MASK] - self._share, levels[(place + self._stride) & TABLE_MASK] - self._share
        start_ns = self._rise * start + self._bend * abs(start)
        slope = (self._rise * end + self._bend * abs(end) - start_ns) / self.period_ns
        return at_ns - since_ns, start_ns, slope


class Jitter:
    """The jitter of all pairs of a network.

    Args:
        seed: of the run.
        correlation_ms: the shortest time between two knots.
        zero_ns: the instant from which the processes count: the workload's zero.
    """

    def __init__(self, seed: int, correlation_ms: float = CORRELATION_MS, zero_ns: int = 0) -> None:
        self.seed = seed
        self.zero_ns = zero_ns
        self._correlation_ns = max(round(correlation_ms * _MS), 1)

    @cached_property
    def levels(self) -> npt.NDArray[np.float64]:
        """The table of levels, which only networks with jitter need."""
        order = np.random.default_rng([self.seed, 0x6A697474]).permutation(TABLE_SIZE)
        return np.asarray((order + 0.5) / TABLE_SIZE)

    @cached_property
    def _listed(self) -> list[float]:
        listed: list[float] = self.levels.tolist()
        return listed

    def process(self, source: int, destination: int, delay_ms: float, jitter_ms: float) -> JitterProcess:
        """Return the process of a directed pair of hosts, with the mean and the deviation of its delay.

        No deviation can be larger than the mean: a larger one counts as the mean.
        """
        start = start_of_pair(self.seed, source, destination)
        shape = round(delay_ms * _MS), jitter_ms * _MS
        return JitterProcess(self._listed, start, shape, (self._correlation_ns, self.zero_ns))
