"""How late things happened: a histogram with logarithmic buckets that costs a loop next to nothing.

The bucket of a lateness is the bit length of its fourth power, so that a bucket's bounds are 2 ** (1/4) apart: a
quantile is overstated by at most 19 %, never understated.
"""

from __future__ import annotations

from collections.abc import Sequence

BUCKETS = 256
"""Enough for every 64-bit number of nanoseconds."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def bucket(lateness_ns: int) -> int:
    """The bucket of a lateness (>= 0). The forwarding loop has this expression inline."""
    square = lateness_ns * lateness_ns
    return (square * square).bit_length()


def upper_bound_ns(index: int) -> int:
    """The least lateness that is beyond the bucket."""
    return int(2 ** (index / 4)) if index else 0


def summarise(histogram: Sequence[int]) -> dict[str, int]:
    """p50, p90, p99 and max as upper bounds of their buckets; all 0 when nothing was recorded."""
    total = sum(histogram)
    if not total:
        return {**dict.fromkeys(QUANTILES, 0), "max": 0}
    summary = {name: _quantile_ns(histogram, quantile * total) for name, quantile in QUANTILES.items()}
    last = max(index for index, count in enumerate(histogram) if count)
    return {**summary, "max": upper_bound_ns(last)}


def counts(histogram: Sequence[int]) -> list[tuple[int, int]]:
    """The buckets that are not empty, earliest first: upper bound in ns, count."""
    return [(upper_bound_ns(index), count) for index, count in enumerate(histogram) if count]


def _quantile_ns(histogram: Sequence[int], rank: float) -> int:
    seen = 0
    for index, count in enumerate(histogram):
        seen += count
        if seen >= rank:
            return upper_bound_ns(index)
    raise AssertionError("a rank within the total is reached")
