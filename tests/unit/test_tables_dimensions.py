"""The tables that others are joined with, and the units of all columns."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.measures.registry import OVERLAY
from metrics.rundir import SCHEMA_VERSION
from metrics.rundir.documents import Placement
from metrics.rundir.parquet import labelled, units_of, version_of
from metrics.tables.dimensions import build_instances, build_nodes, build_subscriptions
from metrics.tables.exports import MEANINGS
from metrics.tables.interests import INTERESTS, STARTERS, UPTIMES
from metrics.tables.schemas import OPTIONAL, TABLES, arrow_schema
from topologies.model import Host

ALL = TABLES | OPTIONAL
FOREVER = 2**63 - 1
START_NS, END_NS = 100, 900

IDENTIFIERS = {
    *("node", "peer", "host", "topic", "message_id", "publisher", "src_node", "dst_node", "orig_node", "resp_node"),
    *("vantage_host", "kind", "incarnation", "instance", "cpu", "epoch", "fault", "proto", "id_orig_p", "id_resp_p"),
    *("link", "src_router", "dst_router"),
}
ROW_HAS_UNIT = {"tested", "failed", "worst", "tolerance", "late", "explained", "allowed", "material"}
"""Of ``checks``."""


def test_nodes_have_their_place_and_their_part() -> None:
    placement = [Placement(1, 0, "b", "10.0.0.1", "c", "go"), Placement(0, 2, "a", "10.0.0.3", "c")]
    hosts = [Host("h0", "Rome", "IT", 41.9, 12.5), Host("h1", "Oslo"), Host("h2", "somewhere")]
    starters = pa.Table.from_pylist([{"node": 0, "topics": [], "up": False}, {"node": 1, "up": True}], STARTERS)
    table = build_nodes(placement, hosts, starters, {0: "asker"})
    assert table.schema == arrow_schema("nodes")
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0, 2, "h2", None, None, None, None, "a", "10.0.0.3", False, "asker", None),
        (1, 0, "h0", "Rome", "IT", 41.9, 12.5, "b", "10.0.0.1", True, None, "go"),
    ]


def test_subscriptions_end_with_the_run() -> None:
    rows = {
        "node": [2, 1, 1],
        "topic": [5, 7, 7],
        "from_ns": [0, 500, 0],
        "to_ns": [FOREVER, 600, 300],
        "due_ns": [0, 550, 0],
    }
    table = build_subscriptions(pa.table(rows).select(INTERESTS.names).cast(INTERESTS), START_NS, END_NS)
    assert table.schema == arrow_schema("subscriptions")
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (1, 7, 100, 300, False, 100),
        (1, 7, 500, 600, False, 550),
        (2, 5, 100, 900, True, 100),
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 800)), unique=True, max_size=30))
def test_instances_are_numbered_per_node_in_time(begins: list[tuple[int, int]]) -> None:
    rows = [{"node": node, "from_ns": at_ns, "to_ns": FOREVER if at_ns == 800 else at_ns + 1} for node, at_ns in begins]
    table = build_instances(pa.Table.from_pylist(rows, UPTIMES), START_NS, END_NS).to_pylist()
    expected = []
    for node in range(6):
        own = sorted(at_ns for other, at_ns in begins if other == node)
        expected += [
            (node, number, max(at_ns, 100), END_NS if at_ns == 800 else at_ns + 1, at_ns == 800)
            for number, at_ns in enumerate(own)
        ]
    assert [tuple(row.values()) for row in table] == expected


def test_every_number_has_a_unit_or_is_an_identifier() -> None:
    units = {name: units_of(labelled(arrow_schema(name).empty_table()).schema) for name in ALL}
    lacking = {
        column
        for name, columns in ALL.items()
        for column, kind in columns.items()
        if kind in ("bigint", "int", "smallint", "double") and column not in units[name]
    }
    assert lacking == IDENTIFIERS | ROW_HAS_UNIT
    for name, columns in ALL.items():
        assert all(columns[column] not in ("string", "boolean", "array<bigint>") for column in units[name])
    assert units["deliveries"]["latency_ms"] == units["epochs"]["latency_ms_p99"] == "ms"
    assert units["hops"]["off"] == "bytes" and units["fidelity"]["busy_ratio"] == "ratio"
    assert "opened" not in units["physical_links"] and units["overlay_degrees"]["opened"] == "links"
    assert MEANINGS.keys() == ALL.keys() | {"packets"}


def test_the_overlays_units_are_those_of_the_measures() -> None:
    units = units_of(labelled(arrow_schema("overlay").empty_table()).schema)
    measures = {each.name: each.unit for family in OVERLAY for each in family.measures if each.name in units}
    assert len(measures) > 20
    assert {name: units[name] for name in measures} == {name: unit or "1" for name, unit in measures.items()}


@pytest.mark.parametrize("table", ALL)
def test_a_file_says_its_version_and_units(table: str, tmp_path) -> None:
    pq.write_table(labelled(arrow_schema(table).empty_table()), tmp_path / "a.parquet")
    assert version_of(pq.read_metadata(tmp_path / "a.parquet")) == SCHEMA_VERSION
    read = pq.read_schema(tmp_path / "a.parquet")
    assert read.equals(arrow_schema(table))
    assert units_of(read) == units_of(labelled(arrow_schema(table).empty_table()).schema)
