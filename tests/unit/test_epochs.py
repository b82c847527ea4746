"""The ``epochs`` table's arithmetic: messages by the epoch of their publication, undelivered pairs counted."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.executors.in_process import InProcess
from metrics.tables.epochs import build_epochs
from metrics.tables.schemas import arrow_schema

ADVERSARY = 9
COLUMNS = ("node", "publish_ns", "message_id", "delivered_ns", "known")
MILLISECOND_NS = 1_000_000

ENDS = [
    {"epoch": 0, "end_ns": 100, "nodes": 3, "score_mean": 0.5},
    {"epoch": 1, "end_ns": 200, "nodes": 3, "score_mean": 0.25},
]


UNKNOWN = (8, 9)
"""Messages of which nobody knows whether they were delivered."""


def _delivered(publish_ns: int | None, latency_ms: float | None) -> int | None:
    if publish_ns is None or latency_ms is None:
        return None
    return publish_ns + round(latency_ms * MILLISECOND_NS)


def build(folder: Path, ends: list[dict[str, Any]], rows: list[tuple[Any, ...]], end_ns: int) -> list[dict[str, Any]]:
    """The epochs of deliveries (publish_ns, message_id, latency_ms) in two parts, by their message."""
    (folder / "deliveries").mkdir()
    for part in range(2):
        own = [
            (0, at_ns, message, _delivered(at_ns, late), message not in UNKNOWN)
            for at_ns, message, late in rows
            if message % 2 == part
        ]
        own.append((ADVERSARY, 10, part, 99, True))
        schema = pa.schema([(name, arrow_schema("deliveries").field(name).type) for name in COLUMNS])
        named = [dict(zip(COLUMNS, row, strict=True)) for row in own]
        pq.write_table(pa.Table.from_pylist(named, schema), folder / "deliveries" / f"part-{part}.parquet")
    with InProcess(2) as executor:
        bad = frozenset({ADVERSARY})
        return build_epochs(executor, ends, folder / "deliveries", bad, (0, end_ns), folder / "weighed")


def test_each_message_belongs_to_the_epoch_of_its_publication(tmp_path):
    rows = [(10, 1, 4.0), (10, 1, 8.0), (99, 2, None), (100, 3, 2.0), (250, 4, 1.0), (250, 4, None), (None, 5, None)]
    rows += [(20, 8, None), (120, 9, None), (120, 9, None)]
    rows = build(tmp_path, ENDS, [*rows, (300, 6, 1.0), (-1, 7, 1.0)], 300)
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert [row["messages"] for row in rows] == [3, 2, 1]
    assert [row["deliveries_expected"] for row in rows] == [4, 3, 2]
    assert [row["delivery_ratio"] for row in rows] == [pytest.approx(2 / 3), 1.0, 0.5]
    assert [row["latency_ms_mean"] for row in rows] == [6.0, 2.0, 1.0]
    assert [row["latency_ms_p50"] for row in rows] == [6.0, 2.0, 1.0]
    assert [row["score_mean"] for row in rows] == [0.5, 0.25, None]
    assert (rows[2]["from_ns"], rows[2]["to_ns"], rows[2]["nodes"]) == (200, 300, 0)


def test_an_epoch_without_messages_has_no_delay(tmp_path):
    rows = build(tmp_path, ENDS, [(10, 1, 4.0)], 200)
    assert rows[1]["messages"] == 0
    assert rows[1]["delivery_ratio"] is rows[1]["latency_ms_mean"] is None


def test_where_nobody_learns_there_are_no_epochs(tmp_path):
    assert build(tmp_path, [], [(10, 1, 4.0)], 200) == []
