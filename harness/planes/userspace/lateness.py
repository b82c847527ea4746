"""A cheap histogram of lateness with logarithmic buckets.

The bucket of a lateness is the bit length of its fourth power, so the ratio of a bucket's bounds is 2 ** (1/4): a
quantile is overstated by at most 19 %, never understated.
"""

from collections.abc import Sequence

BUCKETS = 256
"""Enough for every 64-bit number of nanoseconds."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def bucket(lateness_ns: int) -> int:
    """Return the bucket of a lateness (>= 0). The forwarding loop has this expression inline."""
    square = lateness_ns * lateness_ns
    return (square * square).bit_length()


def upper_bound_ns(index: int) -> int:
    """Return the least lateness above the bucket."""
    return int(2 ** (index / 4)) if index else 0


def summarise(histogram: Sequence[int]) -> dict[str, int]:
    """Return p50, p90, p99 and max as upper bounds of their buckets; all 0 if the histogram is empty."""
    total = sum(histogram)
    if not total:
        return {**dict.fromkeys(QUANTILES, 0), "max": 0}
    summary = {name: _quantile_ns(histogram, quantile * total) for name, quantile in QUANTILES.items()}
    last = max(index for index, count in enumerate(histogram) if count)
    return {**summary, "max": upper_bound_ns(last)}


def counts(histogram: Sequence[int]) -> list[tuple[int, int]]:
    """Return the non-empty buckets in ascending order: upper bound in ns, count."""
    return [(upper_bound_ns(index), count) for index, count in enumerate(histogram) if count]


def _quantile_ns(histogram: Sequence[int], rank: float) -> int:
    seen = 0
    for index, count in enumerate(histogram):
        seen += count
        if seen >= rank:
            return upper_bound_ns(index)
    raise AssertionError("a rank within the total is reached")
