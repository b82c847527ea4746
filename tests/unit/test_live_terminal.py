"""Snapshots on a terminal, and as lines."""

from io import StringIO

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from harness.live.snapshot import (
    DelayNow,
    Ended,
    FaultSpan,
    Messages,
    Peers,
    PlaneNow,
    PressureNow,
    Reason,
    Second,
    Snapshot,
)
from harness.live.terminal import MOST_REASONS, bars, describe, read_snapshots, render, show
from tests.live_snapshots import make_snapshot

KNOWN = replace(
    make_snapshot(4),
    messages=Messages(16, 100, 112, 100 / 112),
    delay_ms=DelayNow(83.25, 231.7, 100, 3.9),
    plane=PlaneNow(0.46, 0.52, {"loss": 3, "device_full": 1}, 1, 1432.0, 0.21),
    pressure=PressureNow(None, 0.43, 0.0),
    faults=(FaultSpan("cut", 3.0, 14.0), FaultSpan("pause", 9.0, None)),
)
UNKNOWN = replace(
    KNOWN, now_s=None, phase=None, phase_left_s=None, phases=(), peers=Peers(8), messages=Messages(),
    delay_ms=None, plane=None, pressure=None, faults=(), links=None, history=(),
)  # fmt: skip
REASONS = tuple(Reason("steal", f"reason {number}", "suspect") for number in range(MOST_REASONS + 2))


def picture(snapshot: Snapshot) -> str:
    console = Console(file=StringIO(), width=110)
    with console.capture() as captured:
        console.print(render(snapshot))
    return captured.get()


def test_a_line_has_the_clock_the_verdict_and_the_numbers() -> None:
    assert describe(KNOWN) == (
        "4 s, workload, 26 s left; valid so far; peers up 8 of 8; published 16; delivered 100 of 112 (89.3 %); "
        "delay of the last 10 s p50 83.2 ms, p99 231.7 ms (100 deliveries); lateness p99 0.46 ms (workload 0.52 ms); "
        "frames 1,432 per s; drops loss 3, device full 1; CPU busy 43.0 %"
    )


def test_what_is_not_known_is_no_number() -> None:
    assert describe(UNKNOWN) == "waiting; valid so far; peers up - of 8; published -; delivered -"
    assert "0" not in describe(UNKNOWN)


@pytest.mark.parametrize("snapshot", [KNOWN, UNKNOWN])
def test_the_picture_has_the_same_numbers(snapshot: Snapshot) -> None:
    lines = picture(snapshot).splitlines()
    assert lines[1].strip() == "valid so far"
    clock, _, *numbers = describe(snapshot).split("; ")
    assert clock in [line.strip() for line in lines]
    squeezed = [" ".join(line.split()) for line in lines]
    assert [number for number in numbers if number not in squeezed] == []


def test_the_picture_names_the_faults_of_now() -> None:
    text = picture(KNOWN)
    assert "fault: cut from 3 s to 14 s" in text
    assert "pause" not in text


def test_the_picture_has_as_many_reasons_as_have_room() -> None:
    text = picture(replace(KNOWN, verdict="suspect", reasons=REASONS))
    assert [f"reason {number}" in text for number in range(MOST_REASONS + 2)] == [True] * MOST_REASONS + [False] * 2
    assert "2 more reasons" in text


def test_the_end_has_the_verdict() -> None:
    ended = replace(KNOWN, ended=Ended("analysed", "suspect"))
    assert describe(ended).startswith("the run is over; suspect; ")
    assert describe(replace(KNOWN, ended=Ended("failed"))).startswith("the run is over; the running stage failed; ")


def test_text_of_a_run_cannot_move_the_cursor() -> None:
    evil = replace(KNOWN, reasons=(Reason("", "\x1b[2J[red]x", "invalid"),), remarks=("\x1b]0;x",))
    said = StringIO()
    show([evil], Console(file=said))
    assert "\x1b" not in said.getvalue() + picture(evil)
    assert "[red]x" in picture(evil)


def test_an_output_that_is_no_terminal_gets_a_line_per_snapshot_and_each_reason_once() -> None:
    said = StringIO()
    snapshots = [KNOWN, replace(KNOWN, reasons=REASONS[:1]), replace(KNOWN, reasons=REASONS[:2])]
    assert show(snapshots, Console(file=said)) == snapshots[-1]
    lines = said.getvalue().splitlines()
    assert [line for line in lines if line.startswith("  - ")] == ["  - reason 0", "  - reason 1"]
    assert len(lines) == 5


def test_a_terminal_keeps_the_last_picture() -> None:
    said = StringIO()
    console = Console(file=said, force_terminal=True, width=110)
    assert show([UNKNOWN, KNOWN], console) == KNOWN
    assert "83.2 ms" in said.getvalue()
    assert show([], console) is None


def test_bars_are_shares_of_the_largest_value() -> None:
    assert bars([0, 7, 3.5, None]) == "▁█▅ "
    assert bars([None, 0, 0]) == " ▁▁"
    assert bars([]) == ""


def test_snapshots_are_read_from_lines(tmp_path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (KNOWN, UNKNOWN)))
    with path.open("rb") as lines:
        assert list(read_snapshots(lines)) == [KNOWN, UNKNOWN]


def test_seconds_of_which_nothing_is_known_are_no_bars() -> None:
    quiet = replace(KNOWN, history=tuple(Second(second) for second in range(3)))
    assert "delivered per s" not in picture(quiet)
    assert "delivered per s" in picture(KNOWN)
