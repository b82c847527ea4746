"""Bounds of an access link against a drop-tail queue whose packets enter it at instants that the bounds do not know."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.pcap.walk import Ints
from metrics.tables.link_bounds import Bounds, Entries, bound_link
from tests.examples import examples

TOLERANCE_NS = 3
packets = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 40), st.integers(0, 40), st.integers(1, 20), st.booleans()),
    max_size=30,
)


def play(found: list[tuple[int, int, int, int, bool]], byte_ns: float, queue_ns: int) -> tuple[Entries, list[str]]:
    """Let packets pass a queue; each enters within its bounds, or is lost before. What became of each."""
    came, fates = [0] * len(found), ["lost"] * len(found)
    free_ns = 0
    for row in sorted(range(len(found)), key=lambda row: found[row][0]):
        at_ns, _, _, size, is_lost = found[row]
        if is_lost:
            continue
        fates[row] = "dropped"
        if free_ns - at_ns <= queue_ns:
            free_ns = max(at_ns, free_ns) + int(size * byte_ns)
            came[row], fates[row] = free_ns, "arrived"
    columns = np.array(found, np.int64).reshape(-1, 5)
    arrived = np.array([fate == "arrived" for fate in fates], np.bool_)
    early, late = columns[:, 0] - columns[:, 1], columns[:, 0] + columns[:, 2]
    return Entries(early, late, np.array(came, np.int64), arrived, columns[:, 3]), fates


def bounds_of(entries: Entries, byte_ns: float, queue_ns: int) -> Bounds:
    return bound_link(entries, byte_ns, queue_ns, TOLERANCE_NS)


@settings(max_examples=examples(300), deadline=None)
@given(packets, st.sampled_from([0.5, 1.0, 7.3]), st.sampled_from([0, 30, 1000]))
def test_a_queue_as_asked_for_keeps_the_bounds(
    found: list[tuple[int, int, int, int, bool]], byte_ns: float, queue_ns: int
) -> None:
    entries, fates = play(found, byte_ns, queue_ns)
    bounds = bounds_of(entries, byte_ns, queue_ns)
    inside = (bounds.earliest_ns <= entries.came_ns) & (entries.came_ns <= bounds.latest_ns)
    assert inside[entries.came].all()
    assert not bounds.is_over.any()
    assert all(bounds.may_be_full[row] for row, fate in enumerate(fates) if fate == "dropped")


@settings(max_examples=examples(100), deadline=None)
@given(packets, st.sampled_from([0.5, 7.3]), st.sampled_from([0, 30]))
def test_without_jitter_the_bounds_are_the_queue_itself(
    found: list[tuple[int, int, int, int, bool]], byte_ns: float, queue_ns: int
) -> None:
    entries, fates = play([(at_ns, 0, 0, size, is_lost) for at_ns, _, _, size, is_lost in found], byte_ns, queue_ns)
    bounds = bounds_of(entries, byte_ns, queue_ns)
    assert (bounds.earliest_ns == bounds.latest_ns).all()
    assert (bounds.latest_ns == entries.came_ns)[entries.came].all()
    alone = np.array([np.count_nonzero(entries.early_ns == at_ns) == 1 for at_ns in entries.early_ns], np.bool_)
    of_drops = {row for row, fate in enumerate(fates) if fate == "dropped"}
    full = {row for row in np.flatnonzero(bounds.may_be_full & alone).tolist() if fates[row] != "lost"}
    assert full == {row for row in of_drops if alone[row]}, "packets of one instant may have entered in any order"


def moved(entries: Entries, came_ns: Ints) -> Entries:
    """The same packets with other arrivals."""
    return Entries(entries.early_ns, entries.late_ns, came_ns, entries.came, entries.wire_bytes)


def burst(byte_ns: float, queue_ns: int = 100_000) -> Entries:
    """Twenty packets of 100 bytes, one each 50 ns, each of which may enter 30 ns earlier or later."""
    return play([(50 * row, 30, 30, 100, False) for row in range(20)], byte_ns, queue_ns)[0]


def test_another_rate_exceeds_the_bounds_of_a_busy_link() -> None:
    """The asked one needs 100 ns per packet."""
    for byte_ns, least in ((1.2, 10), (0.7, 10), (1.0, 0)):
        entries = burst(byte_ns)
        bounds = bounds_of(entries, 1.0, 100_000)
        beyond = (entries.came_ns > bounds.latest_ns + TOLERANCE_NS).sum()
        before = (entries.came_ns < bounds.earliest_ns - TOLERANCE_NS).sum()
        assert (beyond if byte_ns > 1 else before) >= least
        assert (before if byte_ns >= 1 else beyond) == 0


def test_one_packet_out_of_bounds_moves_those_behind_it() -> None:
    entries = burst(1.0)
    for shift_ns in (500, -90):
        came_ns = entries.came_ns.copy()
        came_ns[10:] += shift_ns
        bounds = bounds_of(moved(entries, came_ns), 1.0, 100_000)
        wrong = (came_ns > bounds.latest_ns + TOLERANCE_NS) | (came_ns < bounds.earliest_ns - TOLERANCE_NS)
        assert np.flatnonzero(wrong).tolist() == [10]


def test_a_packet_that_waited_longer_than_the_queue_is_over_its_end() -> None:
    """The last one waited 950 ns, and at least 920."""
    entries = burst(1.0)
    for queue_ns, over in ((920 - TOLERANCE_NS, 0), (919 - TOLERANCE_NS, 1)):
        assert bounds_of(entries, 1.0, queue_ns).is_over.sum() == over
    late = moved(entries, entries.came_ns + 10_000)
    assert bounds_of(late, 1.0, 100_000).is_over.sum() == 0
