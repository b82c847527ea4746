"""Which connections count as broken by a crash: a silent one goes unnoticed for longer."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.executors.in_process import InProcess
from metrics.rundir import RunDir
from metrics.tables.churn import broken_connections, silent_crashes
from metrics.tables.hops import HOPS
from metrics.tables.traces import EVENTS
from peer.core.schedule import Action, Crash, Join, Leave, Publish, Vanish, encode_schedule
from peer.trace import CRASHED, LEFT

SECOND = 1_000_000_000
CRASH_S = 100


def write(
    folder: Path, hops: list[tuple], ends: Sequence[tuple[int, str]] = ((CRASH_S, CRASHED),)
) -> tuple[Path, Path]:
    """Write what node 1 traced, which had a link on connection ``own``, and hops: conn, src, dst, sent s, read s."""
    said = [{"event": "leave", "node": 1, "ts_ns": at_s * SECOND, "reason": reason} for at_s, reason in ends]
    said.append({"event": "remove_peer", "node": 1, "ts_ns": CRASH_S * SECOND, "reason": CRASHED, "conn": "own"})
    said.append({"event": "remove_peer", "node": 2, "ts_ns": CRASH_S * SECOND, "reason": LEFT, "conn": "other"})
    names = ("conn", "src_node", "dst_node", "log_send_ns", "log_recv_ns")
    rows = [dict(zip(names, (*hop[:3], *(s and round(s * SECOND) for s in hop[3:])), strict=True)) for hop in hops]
    for name, kept, schema in (("events", said, EVENTS), ("hops", rows, HOPS)):
        (folder / name).mkdir()
        for part in range(2):
            table = pa.Table.from_pylist(kept[part::2], schema)
            pq.write_table(table, folder / name / f"part-{part}.parquet")
    return folder / "events", folder / "hops"


def find(sources: tuple[Path, Path], silent: frozenset[tuple[int, int]]) -> pa.Array:
    with InProcess(2) as executor:
        return broken_connections(executor, *sources, silent)


@pytest.mark.parametrize(
    ("silent", "after_s"),
    [(frozenset(), 1), (frozenset({(1, 0)}), 60), (frozenset({(1, 1), (2, 0)}), 1)],
    ids=["heard", "silent", "others silent"],
)
def test_an_unread_frame_about_the_time_of_a_crash_shows_a_broken_connection(
    tmp_path: Path, silent: frozenset[tuple[int, int]], after_s: float
) -> None:
    sources = write(
        tmp_path,
        [
            ("early", 1, 2, CRASH_S - 60, None),
            ("earlier", 1, 2, CRASH_S - 60.1, None),
            ("late", 2, 1, CRASH_S + after_s, None),
            ("later", 2, 1, CRASH_S + after_s + 0.1, None),
            ("read", 2, 1, CRASH_S, CRASH_S + 0.1),
            ("elsewhere", 2, 3, CRASH_S, None),
        ],
    )
    assert set(find(sources, silent).to_pylist()) == {"own", "early", "late"}


def test_the_crashes_of_a_node_are_told_apart_by_their_order(tmp_path: Path) -> None:
    ends = [(CRASH_S + 150, CRASHED), (CRASH_S + 50, LEFT), (CRASH_S, CRASHED)]
    hops = [("first", 2, 1, CRASH_S + 30, None), ("second", 2, 1, CRASH_S + 180, None)]
    sources = write(tmp_path, hops, ends)
    for silent, found in ((0, "first"), (1, "second")):
        assert set(find(sources, frozenset({(1, silent)})).to_pylist()) == {"own", found}


def test_the_schedule_says_which_crashes_are_silent(tmp_path: Path) -> None:
    schedule: list[Action] = [
        Vanish(1, 1),
        Publish(2, 0, 7, (1,)),
        Crash(3, 2),
        Join(4, 1, ()),
        Leave(5, 1),
        Join(6, 1, ()),
        Crash(7, 1),
        Join(8, 1, ()),
        Vanish(9, 1),
        Join(10, 2, ()),
        Vanish(11, 2),
    ]
    (tmp_path / "schedule.jsonl").write_bytes(encode_schedule(schedule))
    assert silent_crashes(RunDir(tmp_path)) == {(1, 0), (1, 2), (2, 1)}
