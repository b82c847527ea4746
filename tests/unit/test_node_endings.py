"""When nodes ended, and which frames that were sent and never read their end explains."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.changes import BREAK_NS
from metrics.checks.consistency import TOLD
from metrics.rundir import RunDir
from metrics.tables.churn import SILENCE, Ending, excuse_unread, read_endings, silent_crashes
from metrics.tables.schemas import arrow_schema
from metrics.tables.traces import EVENTS
from peer.core.schedule import Action, Crash, Join, Leave, Publish, Vanish, encode_schedule
from peer.trace import CRASHED, LEFT
from tests.fabricate import Fabrication

SECOND = 1_000_000_000
END_NS = 100 * SECOND
TRIP_NS = SECOND // 5
BOUND_NS = TRIP_NS + TOLD.ns

LEAVES = Ending(1, END_NS, crashed=False, silent=False)
CRASHES = Ending(1, END_NS, crashed=True, silent=False)
VANISHES = Ending(1, END_NS, crashed=True, silent=True)


OFF = 100


def excuses(
    end: Ending, src: int, dst: int, sent_ns: int, moving_ns: int = 0, read_off: int = -1, **taps_ns: int
) -> bool:
    """Whether an end excuses a frame; ``taps_ns``: ``tap_tx_ns`` and ``tap_rx_ns`` of the captures."""
    row = {"src_node": src, "dst_node": dst, "log_send_ns": sent_ns, "off": OFF, **taps_ns}
    unread = pa.Table.from_pylist([row], arrow_schema("hops"))
    found = excuse_unread(unread, np.array([moving_ns]), np.array([read_off]), np.array([TRIP_NS]), [end])
    return bool(found[0])


@pytest.mark.parametrize("end", [LEAVES, CRASHES, VANISHES], ids=["leaves", "crashes", "vanishes"])
def test_a_frame_is_lost_with_its_receiver_for_a_while_before_and_after(end: Ending) -> None:
    after_ns = SILENCE.ns if end.silent else BOUND_NS
    instants = (END_NS - BOUND_NS - 1, END_NS - BOUND_NS, END_NS + after_ns, END_NS + after_ns + 1)
    assert [excuses(end, 2, 1, at_ns) for at_ns in instants] == [False, True, True, False]
    assert not excuses(end, 2, 3, END_NS)


@pytest.mark.parametrize("end", [LEAVES, CRASHES, VANISHES], ids=["leaves", "crashes", "vanishes"])
def test_what_a_node_has_sent_is_lost_with_it_only_if_it_crashes(end: Ending) -> None:
    instants = (END_NS - BOUND_NS - 1, END_NS - BOUND_NS, END_NS, END_NS + 1)
    expected = [False, end.crashed, end.crashed, False]
    assert [excuses(end, 1, 2, at_ns) for at_ns in instants] == expected


def test_a_frame_that_waited_for_others_counts_from_the_last_one_that_was_read() -> None:
    sent_ns = END_NS - 30 * SECOND
    assert [excuses(CRASHES, 2, 1, sent_ns, END_NS - each) for each in (BOUND_NS, BOUND_NS + 1)] == [True, False]


@pytest.mark.parametrize("end", [LEAVES, CRASHES, VANISHES], ids=["leaves", "crashes", "vanishes"])
def test_a_frame_that_was_repeated_counts_from_its_arrival_at_the_receiver(end: Ending) -> None:
    """After a lost SYN, TCP waits 3 s before it repeats anything."""
    sent_ns = END_NS - 20 * SECOND
    for came_ns, expected in ((END_NS - BOUND_NS - 1, False), (END_NS - BOUND_NS, True), (END_NS + SECOND, True)):
        assert excuses(end, 2, 1, sent_ns, tap_tx_ns=sent_ns, tap_rx_ns=came_ns) is expected
        assert not excuses(end, 1, 2, sent_ns, tap_tx_ns=sent_ns, tap_rx_ns=came_ns)
    assert not excuses(end, 2, 1, sent_ns, read_off=OFF + 1, tap_tx_ns=sent_ns, tap_rx_ns=END_NS)


@pytest.mark.parametrize("end", [LEAVES, CRASHES, VANISHES], ids=["leaves", "crashes", "vanishes"])
def test_a_frame_that_left_and_never_arrived_was_under_way_as_long_as_tcp_repeats_it(end: Ending) -> None:
    for sent_ns, expected in ((END_NS - BREAK_NS - 1, False), (END_NS - BREAK_NS, True)):
        assert excuses(end, 2, 1, sent_ns, tap_tx_ns=sent_ns) is expected
        assert excuses(end, 1, 2, sent_ns, tap_tx_ns=sent_ns) is (expected and end.crashed)
        assert not excuses(end, 2, 1, sent_ns)  # nothing shows that it left


@pytest.mark.parametrize("end", [LEAVES, CRASHES, VANISHES], ids=["leaves", "crashes", "vanishes"])
def test_a_frame_before_one_that_was_read_is_not_lost_with_a_node(end: Ending) -> None:
    assert [excuses(end, 2, 1, END_NS, END_NS, off) for off in (-1, OFF - 1, OFF + 1)] == [True, True, False]


def write(folder: Path, ends: Sequence[tuple[int, str]]) -> Path:
    """Write what node 1 traced, in two parts."""
    said: list[dict[str, Any]] = [
        {"event": "leave", "node": 1, "ts_ns": at_s * SECOND, "reason": reason} for at_s, reason in ends
    ]
    said.append({"event": "leave", "node": 1, "ts_ns": 1, "reason": None, "topics": [1]})
    said.append({"event": "remove_peer", "node": 2, "ts_ns": END_NS, "reason": LEFT, "conn": "other"})
    (folder / "events").mkdir()
    for part in range(2):
        table = pa.Table.from_pylist(said[part::2], EVENTS)
        pq.write_table(table, folder / "events" / f"part-{part}.parquet")
    return folder / "events"


def test_the_crashes_of_a_node_are_told_apart_by_their_order(tmp_path: Path) -> None:
    events = write(tmp_path, [(250, CRASHED), (150, LEFT), (100, CRASHED)])
    for silent in (0, 1):
        found = read_endings(events, frozenset({(1, silent)}))
        assert found == (
            Ending(1, 100 * SECOND, crashed=True, silent=silent == 0),
            Ending(1, 150 * SECOND, crashed=False, silent=False),
            Ending(1, 250 * SECOND, crashed=True, silent=silent == 1),
        )


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
    run_dir = Fabrication(messages=1).write(tmp_path / "run")
    (run_dir / "schedule.jsonl").write_bytes(encode_schedule(schedule))
    assert silent_crashes(RunDir(run_dir)) == {(1, 0), (1, 2), (2, 1)}
