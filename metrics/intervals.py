"""Confidence intervals of means and of their differences, by Student's t distribution.

Runs are compared in pairs by Student's paired t test ("Student", The probable error of a mean, Biometrika 6, 1908), and
otherwise by Welch's t test, which does not assume that both groups vary equally (B. L. Welch, Biometrika 34, 1947).
``holm`` keeps the error rate of many tests together (S. Holm, Scandinavian Journal of Statistics 6, 1979).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import atan, comb, exp, fsum, inf, lgamma, log, log1p, pi, sqrt
from statistics import stdev
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
"""The level of every interval."""

_ROUNDING = 1e-12
"""Relative differences below this are of rounding."""

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(128)


class Interval(NamedTuple):
    """A mean over n values, and half the width of its 95 % confidence interval (None for a single value)."""

    mean: float
    half_width: float | None
    n: int


class Estimate(NamedTuple):
    """A value, its standard error and the error's degrees of freedom (None if unknown); n: the number of values."""

    value: float
    error: float | None
    degrees: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95 % confidence interval."""
        if self.error is None or self.degrees is None:
            return None
        return t_quantile(LEVEL, self.degrees) * self.error


class Difference(NamedTuple):
    """A difference, half the width of its 95 % confidence interval, and the p-value of no difference.

    The last two are None if an error is unknown.
    """

    value: float
    half_width: float | None
    p: float | None


class Chances(NamedTuple):
    """How often a difference without any variation is at least as large by chance, in its own and in any direction."""

    one_sided: float
    two_sided: float


class Contrast(NamedTuple):
    """An estimated difference, its standard error and the error's degrees of freedom (both None if unknown).

    ``sizes``: the numbers of values in each of the groups, or of pairs. ``chances`` judge the difference if its error
    is 0.
    """

    value: float
    error: float | None
    degrees: float | None
    sizes: tuple[int, ...]
    chances: Chances

    @property
    def judged(self) -> Difference:
        """The difference with its two-sided interval and p-value."""
        if self.error is None or self.degrees is None:
            return Difference(self.value, None, None)
        if self.error == 0:
            return Difference(self.value, 0.0, 1.0 if self.value == 0 else self.chances.two_sided)
        p = max(0.0, 1 - t_within(abs(self.value / self.error), self.degrees))
        return Difference(self.value, t_quantile(LEVEL, self.degrees) * self.error, p)

    @property
    def p_above(self) -> float | None:
        """The p-value of the hypothesis that the true difference is at most 0; None if the error is unknown."""
        if self.error is None or self.degrees is None:
            return None
        if self.error == 0:
            return self.chances.one_sided if self.value > 0 else 1.0
        tail = max(0.0, 1 - t_within(abs(self.value / self.error), self.degrees)) / 2
        return tail if self.value > 0 else 1 - tail


def interval(values: Sequence[float]) -> Interval:
    """Return the interval of the mean of at least one independent, normally distributed value."""
    found = estimate(values)
    return Interval(found.value, found.half_width, found.n)


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of at least one independent value."""
    n = len(values)
    mean = fsum(values) / n
    return Estimate(mean, None, None, 1) if n == 1 else Estimate(mean, stdev(values) / sqrt(n), n - 1, n)


def subtract(one: Estimate, baseline: Estimate) -> Contrast:
    """Subtract the baseline from another, independent estimate, by Welch's t test.

    If neither has any error, the chance is that of a permutation test: the share of ways to divide the values into two
    groups of the same sizes that separate the groups by as much.
    """
    value, sizes = one.value - baseline.value, (one.n, baseline.n)
    if one.error is None or baseline.error is None or one.degrees is None or baseline.degrees is None:
        return Contrast(value, None, None, sizes, Chances(0, 0))
    share = chance_of_order(*sizes)
    chances = Chances(share, share * (2 if one.n == baseline.n else 1))
    # the larger error as the unit, so that squares neither overflow nor vanish
    unit = max(one.error, baseline.error)
    if unit == 0:
        return Contrast(value, 0.0, one.degrees + baseline.degrees, sizes, chances)
    shares = (one.error / unit) ** 2, (baseline.error / unit) ** 2
    degrees = fsum(shares) ** 2 / (shares[0] ** 2 / one.degrees + shares[1] ** 2 / baseline.degrees)
    return Contrast(value, unit * sqrt(fsum(shares)), degrees, sizes, chances)


def subtract_several(one: float, several: Estimate) -> Contrast:
    """Subtract the mean of several values from another, single value that varies as they do (Student's t test).

    If the several values are equal, the chance is that of a permutation test: the single value could as well have been
    any of all values.
    """
    share = chance_of_order(1, several.n)
    error = None if several.error is None else several.error * sqrt(several.n + 1)
    return Contrast(one - several.value, error, several.degrees, (1, several.n), Chances(share, share))


def mean_of_pairs(differences: Sequence[float]) -> Contrast:
    """Return the mean of the differences of at least one pair (Student's paired t test).

    If all are equal, the chance is that of a permutation test within the pairs: both values of a pair could as well
    have been exchanged (R. A. Fisher, The Design of Experiments, 1935, section 21).
    """
    found = estimate(differences)
    share = chance_of_order(found.n)
    return Contrast(found.value, found.error, found.degrees, (found.n,), Chances(share, min(1.0, 2 * share)))


def chance_of_order(*sizes: int) -> float:
    """Return how often equal groups of two sizes, or the values of this many pairs, are in one order by chance."""
    return 0.5 ** sizes[0] if len(sizes) == 1 else 1 / comb(sum(sizes), sizes[0])


def difference(one: Estimate, baseline: Estimate) -> Difference:
    """Judge whether two independent estimates differ, by Welch's t test or, without errors, a permutation test."""
    return subtract(one, baseline).judged


def difference_of_pairs(differences: Sequence[float]) -> Difference:
    """Judge whether the mean of the differences of at least one pair is 0 (Student's paired t test)."""
    return mean_of_pairs(differences).judged


def quotient_ends(ones: Sequence[float], others: Sequence[float]) -> tuple[float, float] | None:
    """Return the ends of the 95 % confidence interval of mean(ones) / mean(others), for values in pairs.

    A number b is in the interval if Student's paired t test finds no difference between ones and b x others (E. C.
    Fieller, Some problems in interval estimation, Journal of the Royal Statistical Society B 16, 1954). The interval is
    not symmetric. Its ends are infinite if the mean of the others may be 0, unless all pairs have the same quotient.

    Args:
        ones: the values above the line.
        others: the value below it of each pair.

    Returns:
        None if there are fewer than two pairs.
    """
    n = len(ones)
    if n < 2:
        return None
    above, below = fsum(ones) / n, fsum(others) / n
    if not below:
        return -inf, inf
    quotient = above / below
    # x is added to the quotient where the test of ones - (quotient + x) others is at its level
    rests = [one - quotient * other for one, other in zip(ones, others, strict=True)]
    if max(map(abs, rests)) <= _ROUNDING * abs(above):
        return quotient, quotient
    factor = t_quantile(LEVEL, n - 1) ** 2 / (n * (n - 1))
    mean_rest = fsum(rests) / n
    spread = factor * fsum((rest - mean_rest) ** 2 for rest in rests)
    common = factor * fsum((rest - mean_rest) * (other - below) for rest, other in zip(rests, others, strict=True))
    certain = below**2 - factor * fsum((other - below) ** 2 for other in others)
    if certain <= 0:
        return -inf, inf
    root = sqrt(common**2 + certain * spread)
    return quotient + (-common - root) / certain, quotient + (-common + root) / certain


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that, if none of the differences is real, one is below 0.05 in at most 5 % of the cases.

    The bound holds for any dependence between the tests. The result has the order of the arguments.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def binomial_tails(successes: int, trials: int, p: float) -> tuple[float, float]:
    """Return P(K <= successes) and P(K >= successes) for K ~ binomial(trials, p).

    The terms of a tail fall faster than a geometric series once they fall, so few of them are added up.

    Args:
        successes: k, from 0 to ``trials``.
        trials: the number of trials.
        p: the probability of a success.
    """
    if not 0 < p < 1:
        certain = 0 if p <= 0 else trials
        return float(certain <= successes), float(certain >= successes)
    logarithm = lgamma(trials + 1) - lgamma(successes + 1) - lgamma(trials - successes + 1)
    at = exp(logarithm + successes * log(p) + (trials - successes) * log1p(-p))
    odds = p / (1 - p)
    if successes <= trials * p:
        low = _add_up(at, ((k / (trials - k + 1)) / odds for k in range(successes, 0, -1)))
        return low, min(1.0, 1 - low + at)
    high = _add_up(at, ((trials - k) / (k + 1) * odds for k in range(successes, trials)))
    return min(1.0, 1 - high + at), high


def proportion_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a proportion, by the tails of the binomial distribution.

    C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits illustrated in the case of the binomial,
    Biometrika 26, 1934. Raises ValueError without trials.
    """
    if not 0 <= successes <= trials or not trials:
        raise ValueError(f"{successes} of {trials}")
    rare = (1 - LEVEL) / 2
    low = _first(lambda p: binomial_tails(successes, trials, p)[1] > rare) if successes else 0.0
    high = _first(lambda p: binomial_tails(successes, trials, p)[0] < rare) if successes < trials else 1.0
    return low, high


def _first(holds: Callable[[float], bool]) -> float:
    """Return the smallest p in [0, 1] from which a condition holds, by bisection."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _add_up(term: float, ratios: Iterator[float]) -> float:
    """Return the sum of terms, from the first term and the ratio of each other term to the one before it."""
    total = term
    for ratio in ratios:
        term *= ratio
        total += term
        if term < total * 1e-17:
            break
    return min(1.0, total)


@cache
def t_quantile(level: float, degrees: float) -> float:
    """Return t with P(|T| <= t) = level, for T with ``degrees`` >= 1 degrees of freedom."""
    low, high = 0.0, 2.0
    while t_within(high, degrees) < level:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_within(middle, degrees) < level else (low, middle)
    return low


def t_within(t: float, degrees: float) -> float:
    """Return P(|T| <= t) for T with ``degrees`` >= 1 degrees of freedom, which need not be an integer.

    With t = sqrt(degrees) tan(a), the density of a is proportional to cos(a) ** (degrees - 1), which is smooth:
    Gauss-Legendre integration with 128 points is exact to 10 digits.
    """
    if t == inf:
        return 1.0
    half = atan(t / sqrt(degrees)) / 2
    total = float(_WEIGHTS @ np.exp((degrees - 1) * np.log(np.cos(half * (_POINTS + 1))))) * half
    whole = exp(lgamma(degrees / 2) - lgamma((degrees + 1) / 2) + log(pi) / 2) / 2
    return min(1.0, total / whole)
