"""The overlay at an instant, from the intervals of links."""

import pyarrow as pa
import pytest

from metrics.overlay.nodes import count_links
from metrics.tables.overlay import Intervals

NODES = [0, 1, 2]


def overlay(opened: list[bool | None]) -> Intervals:
    """Three nodes in a row, each link reported by both ends from 0 to 10."""
    lasts = {"from_ns": [0] * 4, "to_ns": [10] * 4}
    return Intervals(
        instances=pa.table({"node": NODES, "from_ns": [0] * 3, "to_ns": [10] * 3}),
        interests=pa.table({"node": NODES, "topic": [7] * 3, "from_ns": [0] * 3, "to_ns": [10] * 3}),
        physical=pa.table(
            {"node": [0, 1, 1, 2], "peer": [1, 0, 2, 1], "opened": pa.array(opened, pa.bool_()), **lasts}
        ),
        logical=pa.table({name: pa.array([], pa.int64()) for name in ("node", "peer", "topic", "from_ns", "to_ns")}),
    )


@pytest.mark.parametrize("at_ns", [0, 9])
def test_links_count_if_it_is_not_reported_who_opened_them(at_ns: int) -> None:
    """Programs report links without it (``link``), so the column is null, or was hidden."""
    for opened in ([None] * 4, [True, False, True, False]):
        nodes, snapshot = overlay(opened).at(at_ns)
        assert nodes.tolist() == NODES
        assert count_links(snapshot).degree.tolist() == [1, 2, 1]


def test_a_link_counts_for_the_node_that_opened_it_and_no_longer_than_it_lasts() -> None:
    _, snapshot = overlay([True, False, True, False]).at(5)
    assert count_links(snapshot).opened.tolist() == [1, 1, 0]
    _, later = overlay([True, False, True, False]).at(10)
    assert later.count == 0
