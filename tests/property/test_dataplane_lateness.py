"""The lateness histogram overstates a quantile by at most 19 %, and never understates one."""

from hypothesis import given
from hypothesis import strategies as st

from harness.planes.userspace.lateness import BUCKETS, bucket, summarise, upper_bound_ns


@given(st.integers(0, 2**62))
def test_a_bucket_bounds_its_values(value: int) -> None:
    bound = upper_bound_ns(bucket(value))
    assert value <= bound <= max(value * 2**0.25 + 1, 1)


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=200))
def test_quantiles_bound_the_exact_ones(values: list[int]) -> None:
    histogram = [0] * BUCKETS
    for value in values:
        histogram[bucket(value)] += 1
    ordered = sorted(values)
    for name, share in {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}.items():
        exact = ordered[-(-int(share * 100) * len(values) // 100) - 1]
        assert exact <= summarise(histogram)[name] <= exact * 2**0.25 + 1


def test_nothing_recorded_is_zero() -> None:
    assert summarise([0] * BUCKETS) == {"p50": 0, "p90": 0, "p99": 0, "max": 0}
