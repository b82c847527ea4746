"""Trace files: what is written is what each event says, however many events are held together."""

from pathlib import Path

import msgspec
import pytest

from peer.runtime.tracefile import HELD_EVENTS, TraceFile
from peer.trace import VERSION, TraceEvent

NODE = 7


def relays(count: int) -> list[TraceEvent]:
    return [
        TraceEvent("relay", number, NODE, number % 5, message_id=1 << 40 | number, topics=(2, 3))
        for number in range(count)
    ]


def events_of(path: Path) -> list[TraceEvent]:
    return [msgspec.json.decode(line, type=TraceEvent) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("count", [0, 1, HELD_EVENTS - 2, HELD_EVENTS - 1, HELD_EVENTS, 3 * HELD_EVENTS + 5])
def test_a_file_has_a_line_for_each_event_in_order(count: int, tmp_path: Path) -> None:
    path, told = tmp_path / "7.jsonl", relays(count)
    file = TraceFile(path, NODE, (2,), 5)
    for event in told:
        file.write(event)
    assert len(events_of(path)) >= count + 1 - HELD_EVENTS, "more events are held than one may lose"
    file.close(9)
    start, *found, stop = events_of(path)
    assert start == TraceEvent("start", 5, NODE, topics=(2,), version=VERSION)
    assert found == told
    assert stop == TraceEvent("stop", 9, NODE, records=count + 1)
    assert path.read_bytes().count(b"\n") == count + 2


def test_the_next_process_of_a_node_goes_on_with_the_file(tmp_path: Path) -> None:
    path, told = tmp_path / "7.jsonl", relays(6)
    killed = TraceFile(path, NODE, (), 5)
    for event in told[:3]:
        killed.write(event)
    killed.flush()
    killed.write(told[5])  # it is held when the process is killed
    file = TraceFile(path, NODE, (), 6, resume=True)
    file.write(told[4])
    file.close(9)
    assert [event.event for event in events_of(path)] == ["start", *["relay"] * 4, "stop"]
    assert events_of(path)[1:-1] == [*told[:3], told[4]]
    assert events_of(path)[-1].records == 5


def test_every_event_is_observed_once_and_before_it_is_written(tmp_path: Path) -> None:
    path, told = tmp_path / "7.jsonl", relays(HELD_EVENTS + 3)
    observed: list[TraceEvent] = []
    file = TraceFile(path, NODE, (), 5)

    def observe(events: list[TraceEvent]) -> None:
        assert len(events_of(path)) == len(observed)
        observed.extend(events)

    file.observe = observe
    for event in told:
        file.write(event)
    file.flush()
    file.flush()
    assert observed[1:] == told
    file.close(9)
    assert observed == events_of(path)
