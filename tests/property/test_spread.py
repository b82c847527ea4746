"""The chosen rows of a table of any parts, and the data of a page, against plain Python."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.report.replay import embed
from metrics.report.spread import FIRST, RELAYED, Copy, Spread
from metrics.rundir.files import table_file
from metrics.storage.parquet import scan_parquet
from metrics.tables.schemas import arrow_schema
from tests.examples import examples

row = st.tuples(st.integers(0, 9), st.integers(0, 4), st.none() | st.sampled_from([0.5, 1.0, 2.0, 2.5, 100.0]))


def write(folder: Path, parts: list[list[tuple[int, int, float | None]]]) -> Path:
    """The table ``deliveries``, in parts."""
    schema = arrow_schema("deliveries")
    (folder / table_file("deliveries")).mkdir()
    for number, part in enumerate(parts):
        rows = [{"message_id": message, "node": node, "latency_ms": latency} for message, node, latency in part]
        path = folder / table_file("deliveries") / f"part-{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=2)
    return folder / table_file("deliveries")


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.lists(row, max_size=7), max_size=3))
def test_a_scan_yields_the_chosen_rows_of_all_parts(parts: list[list[tuple[int, int, float | None]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), parts)
        where = pc.field("message_id") > 4
        pieces = [*scan_parquet(path, arrow_schema("deliveries"), ["node"], where)]
        some = [
            [*scan_parquet(path, arrow_schema("deliveries"), ["node"], where, names)]
            for names in ([path / f"part-{number}.parquet"] for number in range(len(parts)))
        ]
    by_part = [[node for piece in each for node in piece["node"].to_pylist()] for each in some]
    assert by_part == [[node for message, node, _ in part if message > 4] for part in parts]
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
