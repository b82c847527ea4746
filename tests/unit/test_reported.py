"""What peers do not report is absent, and what they report is counted."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.reported import EVERYTHING, find_missing, hide_columns, hide_values, is_hidden
from metrics.tables.deliveries import DELIVERIES
from metrics.tables.interests import INTERESTS
from metrics.tables.published import PUBLISHED
from metrics.tables.reported_copies import build_reported
from metrics.tables.schemas import arrow_schema
from metrics.tables.shares import Share
from metrics.tables.traces import FURTHER, TOLD

HIDDEN = {
    "link": {"physical_links", "degree_p50", "components", "topics_partitioned", "topic_diameter_max", "diameter"},
    "graft": {"logical_links", "view_size_total_mean", "in_degree_max", "topic_view_components", "link_sharing_ratio"},
    "duplicate": {"duplicates_per_delivery", "copies"},
    "frame": {"control_bytes_per_peer_per_s", "logical_per_physical_link_on_wire", "redundancy", "n_frames"},
}
BOTH = {"logical_per_physical_link"}
KNOWN = {
    "nodes",
    "topics",
    "subscriptions",
    "delivery_ratio",
    "propagation_delay_ms_p50",
    "repeated_deliveries",
    "hops_mean",
}


@pytest.mark.parametrize("missing", HIDDEN)
def test_each_name_is_hidden_for_its_own_reason(missing: str):
    names = set().union(*HIDDEN.values(), KNOWN)
    assert {name for name in names if is_hidden(name, frozenset({missing}))} == HIDDEN[missing]
    assert is_hidden("logical_per_physical_link", frozenset({missing})) == (missing in ("link", "graft"))


def test_who_reports_everything_hides_nothing_and_nobody_hides_what_is_known():
    names = {*KNOWN, *BOTH, *HIDDEN["link"]}
    assert not any(is_hidden(name, frozenset()) for name in names)
    assert not any(is_hidden(name, EVERYTHING) for name in KNOWN)


def test_columns_keep_their_types_and_rows_their_keys():
    table = pa.table({"copies": pa.array([1, 2]), "node": pa.array([3, 4])})
    hidden = hide_columns(table, frozenset({"duplicate"}))
    assert hidden.schema == table.schema
    assert hidden.to_pydict() == {"copies": [None, None], "node": [3, 4]}
    assert hide_values({"degree": 0, "node": 1}, frozenset({"link"})) == {"degree": None, "node": 1}
    empty = arrow_schema("overlay").empty_table()
    assert hide_columns(empty, EVERYTHING).schema == empty.schema
    assert "copies" in DELIVERIES.names


def test_reported_copies_are_those_that_came_from_other_nodes(tmp_path: Path):
    """Message 1 << 32 is node 1's. Nodes 2 and 3 deliver it, node 4 relays it, and nodes 2 and 4 have duplicates.

    Node 1 has one, too: it subscribed when it published, and does not any longer. Node 5 has one, subscribes later, and
    has not said what its first copy was.
    """
    number = 1 << 32
    told = [
        ("publish", 1, 10, None),
        ("deliver", 1, 11, None),
        ("deliver", 2, 12, 1),
        ("deliver", 3, 13, None),
        ("relay", 4, 14, 3),
    ]
    further = [
        ("duplicate", 2, 15, 3),
        ("duplicate", 2, 16, None),
        ("duplicate", 1, 17, 2),
        ("reject", 3, 18, 1),
        ("duplicate", 4, 19, 2),
        ("duplicate", 5, 20, 2),
    ]
    names = ("event", "node", "ts_ns", "peer")
    interests = [(1, 0, 11), (2, 0, 99), (3, 0, 99), (5, 21, 99)]
    tables = {
        "told": (TOLD, [dict(zip(names, row, strict=True)) | {"message_id": number} for row in told]),
        "further": (FURTHER, [dict(zip(names, row, strict=True)) | {"message_id": number} for row in further]),
        "published": (PUBLISHED, [{"message_id": number, "topics": [7], "publish_ns": 10}]),
        "interests": (
            INTERESTS,
            [{"node": node, "topic": 7, "from_ns": since, "to_ns": to} for node, since, to in interests],
        ),
    }
    for name, (schema, rows) in tables.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / name / "part-0.parquet")
    [copies] = build_reported(tmp_path, Share())["reported"]
    columns = ("src_node", "dst_node", "log_recv_ns", "is_dup", "is_relay", "at_relay")
    assert [tuple(row[name] for name in columns) for row in copies.to_pylist()] == [
        (1, 2, 12, False, False, False),
        (None, 3, 13, False, False, False),
        (3, 4, 14, False, True, True),
        (3, 2, 15, True, False, False),
        (None, 2, 16, True, False, False),
        (2, 1, 17, True, False, False),
        (2, 4, 19, True, False, True),
        (2, 5, 20, True, False, True),
    ]


@pytest.mark.parametrize(
    ("peer", "hidden"),
    [
        ({}, set()),
        ({"events": "trace", "command": ["x"]}, set()),
        ({"events": "lines", "says": []}, {"degree_mean"}),
        ({"events": "lines", "says": ["link"]}, set()),
        ({"events": "none", "says": []}, {"degree_mean", "messages_published", "deliveries_expected"}),
    ],
)
def test_what_is_hidden_depends_on_what_peers_report(peer: dict[str, Any], hidden: set[str]):
    missing = find_missing(SimpleNamespace(experiment={"peer": peer}))
    names = ("degree_mean", "messages_published", "deliveries_expected", "topics", "wire_error_ms_p99")
    assert {name for name in names if is_hidden(name, missing)} == hidden
