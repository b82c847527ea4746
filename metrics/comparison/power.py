"""Estimate how many more runs are likely to decide what the present runs leave open."""

from math import ceil
from statistics import NormalDist

from metrics.intervals import Contrast, chance_of_order

POWER = 0.8
"""The probability that the advised number of runs decides, if difference and variance are as estimated."""

MOST_ADVISED = 100
"""The largest number that is reported: with larger ones, the difference is too close to the bound."""


def more_needed(excess: Contrast, error_rate: float) -> int | None:
    """Estimate how many more pairs, or runs in each of two groups, a one-sided t test needs to find a difference.

    With d as the difference over the standard deviation of the differences of pairs, and z as quantiles of the normal
    distribution, n pairs are needed:

        n = (z(1 - error rate) + z(power))^2 / d^2 + z(1 - error rate)^2 / 2

    With two groups, d is over the root of the sum of both variances, and the last term is halved.

    Source: W. C. Guenther, Sample size formulas for normal theory t tests, The American Statistician 35, 1981.

    Args:
        excess: the difference from the value against which it is tested, with an error.
        error_rate: the error rate of the test.

    Returns:
        At least 1; None if more than ``MOST_ADVISED`` are needed.
    """
    assert excess.error is not None, "the caller has checked"
    if excess.error == 0:
        return _more_without_variation(excess, error_rate)
    # both groups will have the same number: the smaller one counts, and the error shrinks with its root
    now = min(excess.sizes)
    deviation = excess.error * now**0.5
    quantile = NormalDist().inv_cdf
    critical = quantile(1 - error_rate)
    if abs(excess.value) * MOST_ADVISED < deviation / MOST_ADVISED:
        return None
    needed = ((critical + quantile(POWER)) * deviation / excess.value) ** 2 + critical**2 / (2 * len(excess.sizes))
    more = max(1, ceil(needed) - now)
    return more if more <= MOST_ADVISED else None


def _more_without_variation(excess: Contrast, error_rate: float) -> int:
    """Return the smallest number with which the permutation test finds a difference that is the same in every run."""
    now, more = min(excess.sizes), 1
    while chance_of_order(*[now + more] * len(excess.sizes)) >= error_rate:
        more += 1
    return more
