"""The ``epochs`` table's arithmetic: messages by the epoch of their publication, undelivered pairs counted."""

import pyarrow as pa
import pytest

from metrics.tables.epochs import build_epochs

ENDS = [
    {"epoch": 0, "end_ns": 100, "nodes": 3, "score_mean": 0.5},
    {"epoch": 1, "end_ns": 200, "nodes": 3, "score_mean": 0.25},
]


def deliveries(*rows: tuple[int, int, float | None]) -> pa.Table:
    names = ("publish_ns", "message_id", "latency_ms")
    types = (pa.int64(), pa.int64(), pa.float64())
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(values, kind) for name, values, kind in zip(names, columns, types, strict=True)})


def test_each_message_belongs_to_the_epoch_of_its_publication():
    table = deliveries((10, 1, 4.0), (10, 1, 8.0), (99, 2, None), (100, 3, 2.0), (250, 4, 1.0), (250, 4, None))
    rows = build_epochs(ENDS, table, 0, 300)
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert [row["messages"] for row in rows] == [2, 1, 1]
    assert [row["deliveries_expected"] for row in rows] == [3, 1, 2]
    assert [row["delivery_ratio"] for row in rows] == [pytest.approx(2 / 3), 1.0, 0.5]
    assert [row["latency_ms_mean"] for row in rows] == [6.0, 2.0, 1.0]
    assert [row["score_mean"] for row in rows] == [0.5, 0.25, None]
    assert (rows[2]["from_ns"], rows[2]["to_ns"], rows[2]["nodes"]) == (200, 300, 0)


def test_an_epoch_without_messages_has_no_delay():
    rows = build_epochs(ENDS, deliveries((10, 1, 4.0)), 0, 200)
    assert rows[1]["messages"] == 0
    assert rows[1]["delivery_ratio"] is rows[1]["latency_ms_mean"] is None


def test_where_nobody_learns_there_are_no_epochs():
    assert build_epochs([], deliveries((10, 1, 4.0)), 0, 200) == []
