"""The first deliveries of pairs against loops, and sets of nodes as arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics.tables.first_deliveries import find_first, list_members
from peer.core.bitset import bitset

PAIRS = 4


@given(st.lists(st.tuples(st.integers(0, PAIRS), st.integers(0, 5)), max_size=20))
def test_the_first_delivery_of_a_pair_counts_and_later_ones_are_repeats(deliveries: list[tuple[int, int]]) -> None:
    pair, at_ns = np.array(deliveries, np.int64).reshape(-1, 2).T
    found = find_first(pair, at_ns, PAIRS)
    for number in range(PAIRS):
        rows = [row for row, (each, _) in enumerate(deliveries) if each == number]
        assert found.row[number] == min(rows, key=lambda row: deliveries[row][1], default=-1)
        assert found.repeats[number] == max(len(rows) - 1, 0)
    assert len(found.row) == len(found.repeats) == PAIRS


def test_without_pairs_there_is_no_first_delivery() -> None:
    found = find_first(np.zeros(3, np.int64), np.arange(3), 0)
    assert (len(found.row), len(found.repeats)) == (0, 0)


@given(st.sets(st.integers(0, 300)))
def test_the_members_of_a_set_are_listed_in_rising_order(nodes: set[int]) -> None:
    assert list_members(bitset(nodes)).tolist() == sorted(nodes)
