"""Virtual time: its order, its two directions, and what it makes of waiting."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.runtime.clock import LAST_S, UNDILATED, Clock

dilations = st.one_of(st.integers(1, 1000), st.floats(1, 1000))
instants = st.integers(0, 10**16)  # ten to the sixteenth ns are 115 days after a machine's start


def test_without_dilation_it_is_the_kernels_clock_itself() -> None:
    assert UNDILATED.now_ns is time.monotonic_ns
    assert UNDILATED.virtual_ns(123_456_789) == UNDILATED.monotonic_ns(123_456_789) == 123_456_789


def test_now_lies_between_two_readings_divided() -> None:
    clock = Clock(4)
    before = time.monotonic_ns()
    now = clock.now_ns()
    after = time.monotonic_ns()
    assert before // 4 <= now <= after // 4


def test_a_clock_never_runs_ahead_of_the_kernels() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Clock(0.5)


@given(dilations, instants, instants)
def test_the_order_of_instants_is_kept(dilation: float, one: int, other: int) -> None:
    clock, (earlier, later) = Clock(dilation), sorted((one, other))
    assert clock.virtual_ns(earlier) <= clock.virtual_ns(later)


@given(dilations, instants)
def test_there_and_back_is_the_same_instant(dilation: float, monotonic_ns: int) -> None:
    clock = Clock(dilation)
    back_ns = clock.monotonic_ns(clock.virtual_ns(monotonic_ns))
    assert abs(back_ns - monotonic_ns) <= dilation + 4  # a virtual ns, and what a double cannot tell apart at 1e16


def test_a_second_lasts_as_long_as_it_is_dilated() -> None:
    clock = Clock(3)
    assert clock.real_s(2.0) == 6.0
    assert clock.left_s(clock.now_ns() + 10**9) == pytest.approx(3.0, abs=0.5)
    assert clock.left_s(clock.now_ns() - 10**9) < -2.5


@given(st.integers(-(10**10), 10**13), dilations)
def test_a_long_wait_is_interrupted_once_shortly_before_its_end(left_ns: int, dilation: float) -> None:
    clock = Clock(dilation)
    clock.now_ns = lambda: 10**10
    due_ns = 10**10 + left_ns
    left_s, wait_s = clock.left_s(due_ns), clock.wait_s(due_ns)
    if left_s <= LAST_S:
        assert wait_s == left_s
    else:
        assert 0 < wait_s == pytest.approx(left_s - LAST_S)
