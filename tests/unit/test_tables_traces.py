"""Trace files to staged Parquet: lines that are no events, whole files in parts, and what is counted of each."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from metrics.tables import traces
from metrics.tables.traces import EVENTS, TraceState, merge_states, parse, stage_files

START = b'{"ts_ns":1,"node":3,"event":"start","version":1}\n'
SEND = (
    b'{"ts_ns":2,"node":3,"event":"send","peer":4,"message_id":7,"topics":[5,6],"kind":16,'
    b'"conn":"a-b","direction":"orig","off":%d,"len_bytes":9,"hops":1,"ttl":1}\n'
)
STOP = b'{"ts_ns":9,"node":3,"event":"stop","records":%d}\n'
NO_EVENTS = [
    b"nonsense",
    b'{"ts_ns":1,"event":"le',
    b"[1]",
    b'{"ts_ns":"1","event":"leave"}',
    b'{"ts_ns":1,"event":7}',
    b'{"ts_ns":1,"event":"drop","peer":3000000000}',
    b'{"ts_ns":1,"event":"drop"}{"ts_ns":2,"event":"drop"}',
    b'{"event":"drop"}',
    b'{"ts_ns":1}',
    b"\x00\xff",
]


def staged(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / name).to_pylist()
    return rows


def stage(tmp_path: Path, content: bytes, name: str = "3.jsonl") -> dict[int | None, TraceState]:
    (tmp_path / name).write_bytes(content)
    return merge_states(stage_files([tmp_path / name], tmp_path, 0, traced=True, ahead_ns={}))


@pytest.mark.parametrize("line", NO_EVENTS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_that_is_no_event_stands_alone(tmp_path: Path, line: bytes, place: int) -> None:
    lines = [START, SEND % 0, STOP % 2]
    lines.insert(place, line + b"\n")
    states = stage(tmp_path, b"".join(lines))
    assert states[3] == TraceState(node=3, lines=4, corrupt=1, records=2, drops=0, changes=0, crashes=0)
    events = staged(tmp_path, "events")
    assert [row["event"] for row in events if row["event"]] == ["start", "stop"]
    assert [row["node"] for row in events if row["event"] is None] == [3]
    assert [row["off"] for row in staged(tmp_path, "frames")] == [0]


def test_an_object_over_two_lines_is_two_lines_that_are_no_events() -> None:
    rows = parse(b'{"ts_ns":1,\n"event":"drop"}\n')
    assert rows.column("event").to_pylist() == [None, None]


def test_blank_lines_and_empty_files_are_nothing(tmp_path: Path) -> None:
    assert parse(b"\n  \n\r\n").equals(EVENTS.empty_table())
    assert stage(tmp_path, b"") == {}
    assert stage(tmp_path, b"\n" + START + b"\n")[3].lines == 1


def test_a_file_without_a_node_for_its_name_has_its_lines_nodes(tmp_path: Path) -> None:
    states = stage(tmp_path, START + b"nonsense\n", "other.jsonl")
    assert {node: state.lines for node, state in states.items()} == {3: 1, None: 1}


def test_states_count_rare_events_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "BLOCK_BYTES", 10)
    rare = [("join", "joined"), ("leave", "left"), ("leave", "crashed"), ("drop", "queue"), ("leave", None)]
    lines = [
        f'{{"ts_ns":5,"node":3,"event":"{event}"' + (f',"reason":"{reason}"' if reason else "") + "}\n"
        for event, reason in rare
    ]
    content = START + "".join(lines).encode() + SEND % 0 + STOP % 7
    assert stage(tmp_path, content)[3] == TraceState(
        node=3, lines=8, corrupt=0, records=7, drops=1, changes=4, crashes=1
    )
    assert len(staged(tmp_path, "events")) == 7


def test_traced_frames_are_located_sends_in_stream_order(tmp_path: Path) -> None:
    received = (SEND % 5).replace(b"send", b"receive")
    unlocated = (SEND % 6).replace(b'"conn":"a-b",', b"")
    stage(tmp_path, SEND % 9 + SEND % 0 + received + unlocated)
    assert [row["off"] for row in staged(tmp_path, "traced")] == [0, 9]
    assert len(staged(tmp_path, "frames")) == 4


def test_what_an_earlier_attempt_left_is_replaced(tmp_path: Path) -> None:
    stage(tmp_path, START + STOP % 1)
    stage(tmp_path, START)
    assert len(staged(tmp_path, "events")) == 1


def test_instants_become_those_of_our_clock(tmp_path: Path) -> None:
    files = [tmp_path / f"{node}.jsonl" for node in (3, 4)]
    for path in files:
        path.write_bytes(b"".join((START, SEND % 0, SEND % 9, STOP % 3)))
    stage_files(files, tmp_path, 0, traced=True, ahead_ns={4: -(10**15)})
    for name in ("events", "frames", "beginnings", "traced"):
        rows = staged(tmp_path, name)
        assert len(rows) % 2 == 0, "the two files say the same"
        ours, theirs = sorted(row["ts_ns"] for row in rows)[: len(rows) // 2], sorted(row["ts_ns"] for row in rows)
        assert theirs[len(rows) // 2 :] == [ts_ns + 10**15 for ts_ns in ours], name
