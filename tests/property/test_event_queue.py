"""The simulator's queue gives entries in the order of instants, and of pushes at equal instants."""

import heapq

from hypothesis import given
from hypothesis import strategies as st

from harness.simulator.queue import SLOT_BITS, EventQueue

SLOT_NS = 1 << SLOT_BITS

DELAYS_NS = st.one_of(
    st.integers(0, 3),
    st.integers(SLOT_NS - 2, SLOT_NS + 2),
    st.integers(0, 20 * SLOT_NS),
)


@given(
    first=st.lists(DELAYS_NS, min_size=1, max_size=20),
    pushed=st.lists(st.lists(DELAYS_NS, max_size=3), max_size=60),
    stops=st.lists(DELAYS_NS, max_size=10),
)
def test_entries_leave_in_the_order_of_a_heap(first, pushed, stops):
    """Each entry that is taken pushes others, and taking pauses at any instants."""
    queue, heap, order = EventQueue(), [], 0

    def push(at_ns: int) -> None:
        nonlocal order
        order += 1
        queue.push(at_ns, "action", order)
        heapq.heappush(heap, (at_ns, order))

    for at_ns in first:
        push(at_ns)
    follow_ups = iter(pushed)
    until_ns = 0
    for stop_ns in (*stops, 10**12):
        until_ns += stop_ns
        for at_ns, _, action, number in queue.take(until_ns):
            assert (at_ns, number) == heapq.heappop(heap)
            assert action == "action"
            for delay_ns in next(follow_ups, ()):
                push(at_ns + delay_ns)
        assert not heap or heap[0][0] > until_ns
        assert queue.first_ns() == (heap[0][0] if heap else None)
        push(until_ns + 1)  # into a slot that may have begun, or before the one that has


def test_entries_leave_once():
    queue = EventQueue()
    for at_ns in range(0, 10 * SLOT_NS, SLOT_NS // 4):
        queue.push(at_ns, "action", None)
    assert len(list(queue.take(20 * SLOT_NS))) == 40
    assert queue.first_ns() is None
