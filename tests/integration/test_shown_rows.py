"""Report and replay read the rows of the messages that they show, however many messages the run has."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import cli
from metrics.analysis import analyse
from metrics.report import report
from metrics.report.replay import choose_messages
from metrics.report.run import Run
from metrics.report.spread import read_spreads
from metrics.storage.parquet import parts_of
from metrics.tables import deliveries, shares
from metrics.tables.buckets import of_messages
from metrics.totals import read_totals
from peer.core.frames import Data
from tests.fabricate import Fabrication

GROUP_ROWS = 5
"""In place of the 10,000 that a row group has."""

OF_MESSAGES = ("messages", "deliveries", "copies")
"""The tables whose rows are in the order of messages, in buckets of messages."""

OF_FRAMES = ("hops", "frames")
"""Tables with a row per frame, of which nothing is read."""


class Group(NamedTuple):
    """A row group in a file of a table."""

    part: Path
    number: int
    rows: int
    messages: set[int]


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of many messages for its row groups, in several buckets, some of which are made in pieces."""
    run_dir = Fabrication(seed=4, nodes=7, topics=3, messages=400, duration_s=20.0).write(
        tmp_path_factory.mktemp("shown") / "run"
    )
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (("MOST_ROWS", 3_000), ("LEAST_ROWS", 1_000), ("PIECE_ROWS", 400)):
            patched.setattr(shares, name, value)
        patched.setattr(deliveries, "GROUP_ROWS", GROUP_ROWS)
        analyse(run_dir, page=False)
    yield run_dir


@pytest.fixture(autouse=True)
def text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have no figures: none of them reads these tables, and they take most of the time."""
    monkeypatch.setattr(report, "FIGURES", ())


def row_groups(run_dir: Path, table: str) -> list[Group]:
    found = []
    for part in sorted((run_dir / "tables" / f"{table}.parquet").glob("*.parquet")):
        file = pq.ParquetFile(part)
        for number in range(file.num_row_groups):
            messages = file.read_row_group(number, ["message_id"])["message_id"]
            found.append(Group(part, number, len(messages), set(messages.to_pylist())))
    return found


def spoil(group: Group) -> None:
    """Overwrite the values of all columns, so that reading any of them fails."""
    metadata = pq.read_metadata(group.part).row_group(group.number)
    with group.part.open("r+b") as file:
        for column in map(metadata.column, range(metadata.num_columns)):
            first = column.dictionary_page_offset or column.data_page_offset
            file.seek(min(first, column.data_page_offset))
            file.write(b"\xff" * column.total_compressed_size)


def spoil_others(run_dir: Path, shown: set[int]) -> dict[str, tuple[int, int]]:
    """Spoil all row groups without a shown message: the rows that are left, and all rows, by table."""
    rows = {}
    for table in (*OF_MESSAGES, *OF_FRAMES):
        groups = row_groups(run_dir, table)
        left = [group for group in groups if table in OF_MESSAGES and group.messages & shown]
        for group in groups:
            if group not in left:
                spoil(group)
        rows[table] = sum(group.rows for group in left), sum(group.rows for group in groups)
    return rows


def pages(run_dir: Path) -> list[str]:
    report.write(run_dir)
    return [(run_dir / "report" / f"{name}.html").read_text() for name in ("index", "replay")]


def replay(run_dir: Path, *options: str) -> str:
    page = run_dir.parent / "page.html"
    assert cli.main(["replay", str(run_dir), *options, "--out", str(page)]) == 0
    return page.read_text()


def test_report_and_replay_read_only_the_row_groups_of_the_messages_that_they_show(
    analysed: Path, tmp_path: Path
) -> None:
    """Nor do they read a frame or a hop. What is read is bounded by what is shown, not by the table."""
    run_dir = Path(shutil.copytree(analysed, tmp_path / "run"))
    expected, page = pages(run_dir), replay(run_dir)
    shown = set(choose_messages(Run(run_dir)))
    own = {table: read_rows(run_dir, table, shown) for table in OF_MESSAGES}
    rows = spoil_others(run_dir, shown)
    for table in (*OF_MESSAGES, *OF_FRAMES):
        with pytest.raises((OSError, pa.ArrowException)):
            pq.read_table(run_dir / "tables" / f"{table}.parquet")
    for table, (left, every) in rows.items():
        assert left <= own.get(table, 0) + 2 * GROUP_ROWS * len(shown) < every / 2, table
    assert pages(run_dir) == expected
    assert replay(run_dir) == page


def read_rows(run_dir: Path, table: str, messages: set[int]) -> int:
    column = pq.read_table(run_dir / "tables" / f"{table}.parquet", columns=["message_id"])["message_id"]
    return sum(message in messages for message in column.to_pylist())


def test_the_page_of_any_message_reads_only_its_row_groups(analysed: Path, tmp_path: Path) -> None:
    totals = read_totals(Run(analysed))
    assert totals.buckets is not None and totals.buckets > 1, "there are several buckets"
    messages = pq.read_table(analysed / "tables" / "messages.parquet")["message_id"].to_pylist()
    chosen = set(choose_messages(Run(analysed)))
    first, *_, last = (message for message in sorted(messages) if message not in chosen)
    for message in (first, last):
        run_dir = Path(shutil.copytree(analysed, tmp_path / str(message)))
        expected = replay(run_dir, "--message", str(message))
        rows = spoil_others(run_dir, {message})
        assert all(left <= 4 * GROUP_ROWS for left, _ in rows.values()), rows
        assert replay(run_dir, "--message", str(message)) == expected


def test_rows_of_a_message_are_in_the_files_of_its_bucket_in_the_order_of_messages(analysed: Path) -> None:
    buckets = read_totals(Run(analysed)).buckets
    assert buckets is not None
    for table in OF_MESSAGES:
        folder = analysed / "tables" / f"{table}.parquet"
        assert any(len(parts_of(folder, bucket)) > 1 for bucket in range(buckets)), "some have pieces"
        for bucket in range(buckets):
            for part in parts_of(folder, bucket):
                messages = pq.read_table(part, columns=["message_id"])["message_id"].to_pylist()
                assert messages == sorted(messages), part
                assert set(of_messages(pa.array(messages, pa.int64()), buckets).tolist()) <= {bucket}, part


def test_copies_are_the_hops_of_the_messages(analysed: Path) -> None:
    copies = pq.read_table(analysed / "tables" / "copies.parquet")
    hops = pq.read_table(analysed / "tables" / "hops.parquet")
    known = set(pq.read_table(analysed / "tables" / "messages.parquet")["message_id"].to_pylist())

    def listed(table: pa.Table) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in table.select(copies.column_names).to_pylist()), key=str)

    sent = hops.filter(pa.array([kind == Data.kind for kind in hops["kind"].to_pylist()]))
    assert listed(copies) == [row for row in listed(sent) if row[0] in known] and len(copies) > len(known)


def test_no_message_is_looked_for_where_no_one_is_asked_for(analysed: Path) -> None:
    assert read_spreads(Run(analysed), []) == [] == read_spreads(Run(analysed), [2**62 + 1])
