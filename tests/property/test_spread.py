"""The slowest rows of a table of any parts, and the data of a page, against plain Python."""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.report.replay import embed
from metrics.report.spread import FIRST, RELAYED, Copy, Spread, find_slowest
from metrics.rundir.files import table_file
from metrics.storage.parquet import scan_parquet
from metrics.tables.schemas import arrow_schema
from tests.examples import examples

ADVERSARY = 3
row = st.tuples(st.integers(0, 9), st.integers(0, 4), st.none() | st.sampled_from([0.5, 1.0, 2.0, 2.5, 100.0]))


def write(folder: Path, parts: list[list[tuple[int, int, float | None]]]) -> Any:
    """A run whose deliveries are in parts."""
    schema = arrow_schema("deliveries")
    (folder / table_file("deliveries")).mkdir()
    for number, part in enumerate(parts):
        rows = [{"message_id": message, "node": node, "latency_ms": latency} for message, node, latency in part]
        path = folder / table_file("deliveries") / f"part-{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=2)
    return SimpleNamespace(tables=folder, adversaries=frozenset({ADVERSARY}))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.lists(row, max_size=7), max_size=3), st.integers(1, 6))
def test_the_slowest_are_the_first_of_all_in_order(parts: list[list[tuple[int, int, float | None]]], most: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = find_slowest(write(Path(folder), parts), most)
    honest = [each for part in parts for each in part if each[1] != ADVERSARY]
    expected = sorted((-latency, message, node) for message, node, latency in honest if latency is not None)[:most]
    assert [(-each.latency_ms, each.message_id, each.node) for each in found] == expected


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.lists(row, max_size=7), max_size=3))
def test_a_scan_yields_the_chosen_rows_of_all_parts(parts: list[list[tuple[int, int, float | None]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), parts).tables / table_file("deliveries")
        pieces = [*scan_parquet(path, arrow_schema("deliveries"), ["node"], pc.field("message_id") > 4)]
    found = [each for piece in pieces for each in piece["node"].to_pylist()]
    assert sorted(found) == sorted(node for part in parts for message, node, _ in part if message > 4)
    assert all(piece.num_rows for piece in pieces)


def test_of_several_first_copies_the_path_has_the_one_that_was_read_first() -> None:
    """As in the script of the replay. A node may have several: it has forgotten the message, or was started again."""
    copies = (
        Copy(0, 2, 0, None, None, 90, FIRST),
        Copy(0, 1, 1, None, None, 5, FIRST),
        Copy(1, 2, 6, None, None, 20, RELAYED),
    )
    spread = Spread(7, 0, (1,), 100, "published", 0, (), copies)
    assert (spread.path_to(1), spread.path_to(2)) == ((0, 1), (0, 1, 2))


def test_a_scan_of_a_table_that_is_missing_yields_nothing(tmp_path: Path) -> None:
    assert [*scan_parquet(tmp_path / "none.parquet", arrow_schema("deliveries"), ["node"])] == []


texts = st.text() | st.sampled_from(["</script>", "<!--", "<script>", "]]>", "\u2028"])


@settings(max_examples=examples(100))
@given(st.dictionaries(texts, texts | st.integers(-(2**53), 2**53) | st.none()))
def test_embedded_data_are_whole_and_begin_no_tag(data: dict[str, Any]) -> None:
    embedded = str(embed(data))
    assert json.loads(embedded) == data
    assert "<" not in embedded
