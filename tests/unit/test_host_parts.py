"""A table in a folder per host: nothing is lost, and every reader finds it."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metrics.storage.parquet import list_parts, open_dataset, read_parquet
from metrics.tables import buckets, staged
from metrics.tables.buckets import HostParts
from metrics.tables.staged import remove_attempts

SCHEMA = pa.schema([("ts_ns", pa.int64()), ("host", pa.int32()), ("tap", pa.string())])
ROWS = [{"ts_ns": (7 * number) % 90, "host": [0, 1, None, 12][number % 4], "tap": f"{number}"} for number in range(90)]


def written(folder: Path, rows: list[dict[str, object]], part: int = 0) -> Path:
    parts = HostParts(folder, part, SCHEMA)
    for start in range(0, len(rows), 30):
        parts.add(pa.Table.from_pylist(rows[start : start + 30], SCHEMA))
    parts.close()
    return folder


def in_order(table: pa.Table) -> list[dict[str, object]]:
    return table.select(SCHEMA.names).sort_by("tap").to_pylist()


def test_all_readers_have_all_rows_with_their_hosts(tmp_path: Path) -> None:
    folder = written(written(tmp_path / "packets", ROWS[:40]), ROWS[40:], part=1)
    expected = in_order(pa.Table.from_pylist(ROWS, SCHEMA))
    assert {part.parent.name for part in list_parts(folder)} == {
        "host=0", "host=1", "host=12", "host=__HIVE_DEFAULT_PARTITION__"
    }  # fmt: skip
    assert in_order(open_dataset(folder, SCHEMA).to_table()) == expected
    assert in_order(read_parquet(folder)) == expected
    files = f"'{folder}/*/*.parquet', hive_partitioning = true, hive_types = {{'host': INTEGER}}"
    found = duckdb.sql(f"SELECT ts_ns, host, tap FROM read_parquet({files}) ORDER BY tap").fetchall()
    assert found == [tuple(row.values()) for row in expected]
    of_host = open_dataset(folder, SCHEMA).to_table(filter=pc.field("host") == 12)
    assert len(of_host) == sum(row["host"] == 12 for row in ROWS)


def test_row_groups_are_in_the_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "FEWEST_ROWS", 5)
    monkeypatch.setattr(staged, "GROUP_ROWS", 5)
    for part in list_parts(written(tmp_path, ROWS)):
        file = pq.ParquetFile(part)
        assert "host" not in file.schema_arrow.names
        for group in range(file.num_row_groups):
            instants = file.read_row_group(group)["ts_ns"].to_pylist()
            assert instants == sorted(instants) and len(instants) <= 5


def test_few_files_are_open_and_few_rows_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "MOST_WAITING", 10)
    monkeypatch.setattr(buckets, "MOST_OPEN", 1)
    monkeypatch.setattr(staged, "FEWEST_ROWS", 5)
    monkeypatch.setattr(staged, "GROUP_ROWS", 5)
    folder = written(tmp_path, ROWS)
    assert in_order(read_parquet(folder)) == in_order(pa.Table.from_pylist(ROWS, SCHEMA))
    assert len(list_parts(folder)) > 4, "files that were closed early have successors"


def test_attempts_in_the_folders_of_hosts_are_removed(tmp_path: Path) -> None:
    folder = written(tmp_path, ROWS)
    left = folder / "host=1" / ".part-3.parquet.0123"
    left.write_bytes(b"of a task that was killed")
    assert left not in list_parts(folder)
    remove_attempts(folder)
    assert not left.exists() and len(list_parts(folder)) == 4
