"""Bytes and connections of traces and captures, where the end of a node cut some streams off."""

from typing import Any

import pyarrow as pa
import pytest

from metrics.checks.evidence import Matching, Outcome
from metrics.pcap.schemas import CONNS
from metrics.tables.completeness import cover_streams, match_connections
from metrics.tables.hop_evidence import CUT
from metrics.tables.schemas import schema_of

STREAMS = schema_of("conn string, incarnation int, direction string, logged_bytes bigint, end_bytes bigint")
WHOLE = {"orig": 500, "resp": 300}


def streams(**changes: Any) -> pa.Table:
    rows = [
        {"conn": "c", "incarnation": 0, "direction": side, "logged_bytes": size, "end_bytes": size}
        for side, size in WHOLE.items()
    ]
    return pa.Table.from_pylist([row | changes for row in rows], STREAMS)


def conns(orig_bytes: int = 500, resp_bytes: int = 300, missed_bytes: int = 0, views: int = 2) -> pa.Table:
    row = {"conn": "c", "orig_bytes": orig_bytes, "resp_bytes": resp_bytes, "missed_bytes": missed_bytes}
    return pa.Table.from_pylist([row] * views, CONNS)


def cut(**offsets: int) -> pa.Table:
    rows = [{"conn": "c", "incarnation": 0, "direction": side, "off": off} for side, off in offsets.items()]
    return pa.Table.from_pylist(rows, CUT)


def test_every_byte_is_seen_where_no_node_ended() -> None:
    assert cover_streams(streams(), conns(), cut()) == Outcome(4, 0, 0, 1600)


@pytest.mark.parametrize(
    ("seen", "offsets", "failed", "worst"),
    [
        ({"orig_bytes": 499}, {}, 2, 1),
        ({"orig_bytes": 501}, {}, 2, 1),
        ({"missed_bytes": 3}, {}, 4, 3),
        ({"orig_bytes": 400}, {"orig": 400}, 0, 0),
        ({"orig_bytes": 450}, {"orig": 400}, 0, 0),
        ({"orig_bytes": 399}, {"orig": 400}, 2, 1),
        ({"orig_bytes": 501}, {"orig": 400}, 2, 1),
        ({"resp_bytes": 200}, {"orig": 400}, 2, 100),
        ({"missed_bytes": 100}, {"orig": 400}, 0, 0),
        ({"missed_bytes": 101}, {"orig": 400}, 4, 1),
    ],
)
def test_only_what_was_lost_with_a_node_may_be_missing(
    seen: dict[str, int], offsets: dict[str, int], failed: int, worst: int
) -> None:
    found = cover_streams(streams(), conns(**seen), cut(**offsets))
    assert (found.tested, found.failed, found.worst) == (4, failed, worst)


def test_frames_that_leave_a_gap_in_the_traces_are_found_on_a_stream_that_was_cut_off_too() -> None:
    assert cover_streams(streams(logged_bytes=200), conns(), cut(orig=0, resp=0)).failed == 4


def test_a_connection_may_be_missing_only_if_all_of_it_was_lost() -> None:
    for offsets, missing in (({}, 1), ({"orig": 0}, 1), ({"orig": 0, "resp": 1}, 1), ({"orig": 0, "resp": 0}, 0)):
        assert match_connections(streams(), conns(views=0), cut(**offsets)) == Matching(1, missing, 0)
    assert match_connections(streams(), conns(), cut(orig=0, resp=0)) == Matching(1, 0, 0)
    assert match_connections(streams().slice(0, 0), conns(), cut()) == Matching(1, 0, 1)
