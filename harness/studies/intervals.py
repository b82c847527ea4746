"""Confidence intervals over a few seeds, by Student's t distribution."""

from collections.abc import Sequence
from functools import cache
from math import atan, cos, fsum, pi, sin, sqrt
from statistics import stdev
from typing import NamedTuple


class Interval(NamedTuple):
    """A mean over n values, and half the width of its 95 % confidence interval (None for a single value)."""

    mean: float
    half_width: float | None
    n: int


def interval(values: Sequence[float]) -> Interval:
    """Return the interval of the mean of at least one independent, normally distributed value."""
    n = len(values)
    mean = fsum(values) / n
    if n == 1:
        return Interval(mean, None, 1)
    return Interval(mean, t_quantile(0.95, n - 1) * stdev(values) / sqrt(n), n)


@cache
def t_quantile(level: float, degrees: int) -> float:
    """Return t with P(|T| <= t) = level, for T with ``degrees`` >= 1 degrees of freedom; exact to 12 digits."""
    low, high = 0.0, 2.0
    while t_within(high, degrees) < level:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_within(middle, degrees) < level else (low, middle)
    return low


def t_within(t: float, degrees: int) -> float:
    """Return P(|T| <= t), by the finite series for integer degrees of freedom.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = atan(t / sqrt(degrees))
    square = cos(angle) ** 2
    term = cos(angle) if degrees % 2 else 1.0
    terms = []
    for k in range(3 if degrees % 2 else 2, degrees + 1, 2):
        terms.append(term)
        term *= square * (k - 1) / k
    total = sin(angle) * fsum(terms)
    return (2 / pi) * (angle + total) if degrees % 2 else total
