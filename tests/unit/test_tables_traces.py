"""Trace files to staged Parquet: lines that are no events, whole files in parts, and what is counted of each."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.tables import buckets, traces
from metrics.tables import staged as module
from metrics.tables.buckets import BucketParts, of_messages, read_bucket
from metrics.tables.shares import Share
from metrics.tables.traces import (
    EVENTS,
    FRAMES,
    HANDLED,
    MENTIONS,
    TOLD,
    Staging,
    TraceState,
    merge_states,
    parse,
    stage_files,
)

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
    b"null",
    b'{"ts_ns":1,"event":"drop","reason":"\xff"}',
    b'{"ts_ns":1,"event":"drop","score":NaN}',
]


def staged(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / name).to_pylist()
    return rows


def stage(tmp_path: Path, content: bytes, name: str = "3.jsonl") -> dict[int | None, TraceState]:
    (tmp_path / name).write_bytes(content)
    return merge_states(stage_files([tmp_path / name], Staging(tmp_path, traced=True, ahead_ns={}, addresses={}), 0))


@pytest.mark.parametrize("line", NO_EVENTS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_that_is_no_event_stands_alone(tmp_path: Path, line: bytes, place: int) -> None:
    lines = [START, SEND % 0, STOP % 2]
    lines.insert(place, line + b"\n")
    states = stage(tmp_path, b"".join(lines))
    assert states[3] == TraceState(node=3, lines=4, corrupt=1, records=2, drops=0, changes=0, crashes=0, reads=0)
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


@pytest.mark.parametrize("end", [b"", b"\n", b"\n" + SEND % 0])
@pytest.mark.parametrize("line_bytes", [20, 150, 10**6])
def test_a_line_beyond_the_limit_is_one_corrupt_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line_bytes: int, end: bytes
) -> None:
    monkeypatch.setattr(traces, "BLOCK_BYTES", 10)
    monkeypatch.setattr(traces, "LINE_BYTES", line_bytes)
    long = b'{"ts_ns":1,"node":3,"event":"drop"' + b" " * 500 + b"}"
    state = stage(tmp_path, long + end)[3]
    whole = line_bytes > len(long)
    read = 1 if b"send" in end and line_bytes > 20 else 0  # the other line is longer than 30 bytes, too
    assert state.lines == 1 + (b"send" in end)
    assert (state.corrupt, state.drops) == (state.lines - read - whole, int(whole))
    assert all(len(block) <= 10 + line_bytes + 2 for block in traces.read_blocks(tmp_path / "3.jsonl"))


def test_what_follows_a_cut_line_cannot_complete_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that is kept would be an event by itself."""
    event = b'{"ts_ns":1,"node":3,"event":"drop"}'
    monkeypatch.setattr(traces, "BLOCK_BYTES", len(event))
    monkeypatch.setattr(traces, "LINE_BYTES", 8)
    assert stage(tmp_path, event + b" " * 20 + b"junk\n")[3].corrupt == 1
    assert stage(tmp_path, event + b" " * 20 + b"\n")[3].corrupt == 0


def test_states_count_rare_events_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "BLOCK_BYTES", 10)
    rare = [("join", "joined"), ("leave", "left"), ("leave", "crashed"), ("drop", "queue"), ("leave", None)]
    lines = [
        f'{{"ts_ns":5,"node":3,"event":"{event}"' + (f',"reason":"{reason}"' if reason else "") + "}\n"
        for event, reason in rare
    ]
    content = START + "".join(lines).encode() + (SEND % 0).replace(b"send", b"receive") + STOP % 7
    assert stage(tmp_path, content)[3] == TraceState(
        node=3, lines=8, corrupt=0, records=7, drops=1, changes=4, crashes=1, reads=1
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
    stage_files(files, Staging(tmp_path, traced=True, ahead_ns={4: -(10**15)}, addresses={}), 0)
    for name in ("events", "frames", "beginnings", "traced"):
        rows = staged(tmp_path, name)
        assert len(rows) % 2 == 0, "the two files say the same"
        ours, theirs = sorted(row["ts_ns"] for row in rows)[: len(rows) // 2], sorted(row["ts_ns"] for row in rows)
        assert theirs[len(rows) // 2 :] == [ts_ns + 10**15 for ts_ns in ours], name


ADDRESSES = {0: "10.0.0.1", 1: "10.0.0.2", 2: "10.0.0.3", 3: "10.0.0.4"}
BUCKETS = 3


def test_rows_are_in_the_buckets_in_which_they_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames and what became of the copies of the same two nodes in one, messages by their number."""
    monkeypatch.setattr(traces, "BLOCK_BYTES", 10)
    lines = []
    for peer, at_ns in ((0, 5), (1, 6), (2, 7)):
        conn = f"{ADDRESSES[peer]}:7-{ADDRESSES[3]}:9" if peer % 2 else f"{ADDRESSES[3]}:7-{ADDRESSES[peer]}:9"
        frame = f'"message_id":{peer},"conn":"{conn}","direction":"orig","off":0,"len_bytes":1'
        lines.append(f'{{"ts_ns":{at_ns},"node":3,"event":"receive","peer":{peer},{frame}}}')
        lines.append(f'{{"ts_ns":{at_ns},"node":3,"event":"deliver","peer":{peer},"message_id":{peer},"hops":1}}')
        lines.append(f'{{"ts_ns":{at_ns + 90},"node":3,"event":"duplicate","peer":{2 - peer},"message_id":{peer}}}')
    lines.append('{"ts_ns":99,"node":3,"event":"relay","peer":2,"message_id":0}')
    lines.append('{"ts_ns":98,"node":3,"event":"deliver","message_id":2}')
    (tmp_path / "3.jsonl").write_text("\n".join(lines) + "\n")
    stage_files([tmp_path / "3.jsonl"], Staging(tmp_path, True, {}, ADDRESSES, BUCKETS), 0)
    places: dict[str, dict[int, set[int]]] = {"frames": {}, "handled": {}, "told": {}}
    handled = []
    for number in range(BUCKETS):
        for name, schema in (("frames", FRAMES), ("handled", HANDLED), ("told", TOLD)):
            rows = read_bucket(tmp_path / name, schema, Share(number, BUCKETS)).to_pylist()
            for row in rows:
                places[name].setdefault(row["message_id" if name == "told" else "peer"], set()).add(number)
            handled += rows if name == "handled" else []
    assert places["told"] == {number: set(of_messages(pa.array([number]), BUCKETS).tolist()) for number in range(3)}
    assert places["handled"] == places["frames"]
    assert all(len(numbers) == 1 for numbers in places["frames"].values())
    assert len(set.union(*places["frames"].values())) > 1, "not all in one"
    found = {(row["peer"], row["message_id"]): row for row in handled}
    assert len(handled) == 7
    assert {key: row["first_peer"] for key, row in found.items()} == {
        (0, 0): 0, (2, 0): 0, (1, 1): 1, (2, 2): 2, (0, 2): 2
    }  # fmt: skip
    assert found[2, 0]["first_event"] == "deliver"
    assert found[2, 0]["first_ns"] == 5
    assert [key for key, row in found.items() if row["is_own"]] == [(2, 2), (0, 2)]


@pytest.mark.parametrize("count", [2, 7, 30, 64])
@pytest.mark.parametrize("each", [1, 2, 500])
def test_messages_are_spread_over_buckets_however_few_each_publisher_sends(count: int, each: int) -> None:
    sent = [publisher << 32 | number for publisher in range(20_000 // each) for number in range(each)]
    bucket = of_messages(pa.array(sent), count)
    fullest = np.bincount(bucket, minlength=count).max()
    assert fullest < 1.25 * len(sent) / count
    assert of_messages(pa.array([None, None], pa.int64()), count).tolist() in [[number] * 2 for number in range(count)]


def test_copies_of_a_large_trace_are_handled_some_messages_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        f'{{"ts_ns":{at_ns},"node":3,"event":"{event}","peer":{at_ns % 4},"message_id":{at_ns % 9},"hops":1}}\n'
        for at_ns, event in enumerate(["deliver", "duplicate", "relay", "duplicate"] * 10)
    ]
    made = []
    for folder, limit in ((tmp_path / "whole", 1 << 20), (tmp_path / "divided", 500)):
        monkeypatch.setattr(traces, "COPIES_BYTES", limit)
        folder.mkdir()
        stage(folder, "".join(lines).encode())
        made.append(sorted(map(str, staged(folder, "handled"))))
    assert made[0] == made[1]
    assert len(made[0]) == len(lines)


@pytest.mark.parametrize(
    ("most_open", "most_waiting", "most_groups", "group_rows"),
    [(2, 10**6, 10**6, 10), (9, 30, 10**6, 50), (9, 10**6, 1, 10)],
)
def test_buckets_have_all_rows_whatever_is_open_or_waits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_open: int,
    most_waiting: int,
    most_groups: int,
    group_rows: int,
) -> None:
    monkeypatch.setattr(buckets, "MOST_OPEN", most_open)
    monkeypatch.setattr(buckets, "MOST_WAITING", most_waiting)
    monkeypatch.setattr(module, "MOST_GROUPS", most_groups)
    monkeypatch.setattr(module, "FEWEST_ROWS", group_rows)
    monkeypatch.setattr(module, "GROUP_ROWS", group_rows)
    parts = BucketParts(tmp_path, 4, MENTIONS, 7)
    ids = pa.array(range(900))
    for first in range(0, 900, 90):
        some = ids.slice(first, 90)
        parts.add(pa.table([some, some], MENTIONS), np.arange(first, first + 90) % 7)
        assert len(list(tmp_path.glob(".*"))) <= most_open, "files that have not appeared"
        assert parts.waiting <= most_waiting
    parts.close()
    for number in range(7):
        rows = read_bucket(tmp_path, MENTIONS, Share(number, 7))["message_id"].to_pylist()
        assert sorted(rows) == list(range(number, 900, 7))
    assert max(pq.read_metadata(path).num_row_groups for path in tmp_path.glob("*.parquet")) <= max(most_groups, 13)
    assert len(list(tmp_path.glob("*.parquet"))) > 7, "some buckets have several files"
