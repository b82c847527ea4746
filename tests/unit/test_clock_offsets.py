"""Two readings of a machine's clocks become one offset, whose error covers what either clock has moved."""

from hypothesis import given
from hypothesis import strategies as st

from harness.deployment.clock import merge_offsets
from metrics.rundir import ClockOffset

NS = st.integers(-(10**15), 10**15)
ERRORS = st.integers(0, 10**9)
OFFSETS = st.builds(ClockOffset, NS, NS, ERRORS)


@given(before=OFFSETS, after=OFFSETS)
def test_the_merged_offset_is_right_to_within_its_error_at_both_readings(
    before: ClockOffset, after: ClockOffset
) -> None:
    merged = merge_offsets(before, after)
    for reading in (before, after):
        for name in ("realtime_ns", "monotonic_ns"):
            distance_ns = abs(getattr(merged, name) - getattr(reading, name))
            assert distance_ns + reading.error_ns <= merged.error_ns + 1


def test_a_clock_that_was_set_meanwhile_is_in_the_error() -> None:
    before, after = ClockOffset(0, 7, 100), ClockOffset(5_000_000, 7, 100)
    assert merge_offsets(before, after).error_ns == 2_500_100
