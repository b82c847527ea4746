"""Stored rows in groups, against a loop over the rows."""

import tempfile
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.storage.parquet import group_parquet
from tests.examples import examples

SCHEMA = pa.schema([("node", pa.int32()), ("source", pa.string()), ("size", pa.int64())])
row = st.tuples(st.integers(0, 3), st.sampled_from(["trace", "wire"]), st.none() | st.integers(-9, 9))


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.lists(row, max_size=8), max_size=3), st.booleans())
def test_groups_are_those_of_a_loop(parts: list[list[tuple[int, str, int | None]]], restricted: bool) -> None:
    groups: dict[tuple[str, int], list[int | None]] = defaultdict(list)
    for node, source, size in (each for part in parts for each in part):
        if node != 3 or not restricted:
            groups[source, node].append(size)
    expected = []
    for (source, node), sizes in sorted(groups.items()):
        known = [size for size in sizes if size is not None]
        expected.append((source, node, len(sizes), sum(known) if known else None))
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(parts):
            columns = [list(column) for column in zip(*part, strict=True)] or [[], [], []]
            pq.write_table(pa.table(columns, schema=SCHEMA), f"{folder}/part-{number}.parquet")
        where = pc.field("node") != 3 if restricted else None
        found = group_parquet(Path(folder), SCHEMA, ["source", "node"], [("size", "sum")], where)
    assert found.column_names == ["source", "node", "count", "size"]
    assert [tuple(each.values()) for each in found.to_pylist()] == expected
