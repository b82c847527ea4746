"""Rows of columns as dense numbers, whatever the columns' ranges, against a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics.pcap.flows import factorise

LEAST, MOST = -(2**63), 2**63 - 1
values = st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, 2, 65535, 2**31, 2**32 + 5, 2**61, 2**62, MOST])
columns = st.integers(1, 5).flatmap(lambda width: st.lists(st.tuples(*[values] * width), max_size=40))


@given(columns)
def test_rows_are_numbered_in_order_of_appearance(rows: list[tuple[int, ...]]) -> None:
    numbers: dict[tuple[int, ...], int] = {}
    expected = [numbers.setdefault(row, len(numbers)) for row in rows]
    table = np.array(rows, np.int64).reshape(len(rows), -1 if rows else 1)
    found, count = factorise(*table.T)
    assert found.tolist() == expected
    assert count == len(numbers)
