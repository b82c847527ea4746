"""What the data plane's own record says about it, and which of its lateness stalls of the host explain."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from metrics.checks.evidence import Emulation
from metrics.checks.plane import RULES
from metrics.checks.rule import Absent
from metrics.recorded.dataplane import spans
from metrics.recorded.stalls import Stalls, is_the_hosts, merge
from metrics.rundir import NOT_APPLICABLE, NOT_JUDGED, PASSED, Check, Phase

MS = 1_000_000
SECOND = 1000 * MS
ZERO_NS = 50 * SECOND
WORKLOAD = Phase("workload", ZERO_NS, ZERO_NS + 4 * SECOND)
LIMIT_MS = 0.5


def lines(change: Callable[[list[dict[str, Any]]], None] | None = None) -> list[dict[str, Any]]:
    """A line per second with 100 frames, all in time, from before the workload to its end."""
    made = [
        {
            "at_ns": ZERO_NS + second * SECOND,
            "frames_in": 100 * (second + 1),
            "frames_out": 100 * (second + 1),
            "lateness_ns": {"max": 50_000},
            "lateness_counts": [[50_000, 100]],
            "intake_ns": {"max": 60_000},
            "intake_counts": [[60_000, 100]],
            "busy_ratio": 0.1,
            "frames_late": 0,
            "frames_waited": 0,
            "late": [],
            "waits": [],
        }
        for second in range(5)
    ]
    if change:
        change(made)
    return made


def checks(
    made: list[dict[str, Any]], host: list[tuple[int, int]] | None = None, unmeasured: Absent | None = None
) -> dict[str, Check]:
    emulation = Emulation(
        hosts=2,
        sweeps=None,
        asked_sweeps=(),
        first_packets=None,
        spans=tuple(spans(made)),
        pressure=(),
        judged_ns=(WORKLOAD.start_ns, WORKLOAD.end_ns),
        workload=WORKLOAD,
        stalls=Stalls(merge(np.array(host or [], np.int64).reshape(-1, 2)), np.empty((0, 2), np.int64)),
        lateness_p99_ms=LIMIT_MS,
        unmeasured=unmeasured,
    )
    evidence = SimpleNamespace(emulation=emulation, changes=Absent("no faults were asked for"))
    found = [rule.check(evidence) for rule in RULES]
    return {check.name: check for check in found if check is not None}


def failed(found: dict[str, Check]) -> set[str]:
    return {name for name, check in found.items() if check.failed}


def late(kind: str, due_ns: int, came_ns: int, frames: int) -> Callable[[list[dict[str, Any]]], None]:
    """Frames of the workload's second second that were written late, or waited to be read."""
    counts, total, largest = {
        "late": ("lateness_counts", "frames_late", "lateness_ns"),
        "waits": ("intake_counts", "frames_waited", "intake_ns"),
    }[kind]

    def change(made: list[dict[str, Any]]) -> None:
        line = made[2]
        line[counts] = [[50_000, 100 - frames], [came_ns - due_ns, frames]]
        line[largest] = {"max": came_ns - due_ns}
        line[kind] = [[due_ns, came_ns, frames]]
        for later in made[2:]:
            later[total] = frames

    return change


AT = ZERO_NS + SECOND + 300 * MS
NAMES = {"late": "plane_lateness", "waits": "plane_intake"}


def test_a_plane_in_time_passes_everything() -> None:
    found = checks(lines())
    planes = {f"plane_{name}" for name in ("lateness", "intake", "drops", "stalls", "present", "busy")}
    assert set(found) == planes | {"changes_applied"}
    assert found.pop("changes_applied").outcome == NOT_APPLICABLE
    assert {check.outcome for check in found.values()} == {PASSED}
    assert not failed(found)
    assert (found["plane_intake"].tested, found["plane_intake"].worst) == (400, 0.06)


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize(("frames", "fails"), [(4, False), (5, True)])
def test_more_than_one_frame_in_a_hundred_must_not_be_late(kind: str, frames: int, fails: bool) -> None:
    found = checks(lines(late(kind, AT, AT + 20 * MS, frames)))
    assert failed(found) == ({NAMES[kind]} if fails else set())
    assert found[NAMES[kind]].severity == "invalid"


@pytest.mark.parametrize("kind", NAMES)
def test_a_stall_of_the_host_explains_frames_but_excuses_none(kind: str) -> None:
    change = late(kind, AT, AT + 20 * MS, 30)
    whole = checks(lines(change), [(AT - MS, AT + 19 * MS)])[NAMES[kind]]
    assert whole.failed
    assert (whole.late, whole.explained, whole.allowed) == (30, 30, 4)
    assert whole.detail.endswith("stalls of the host explain 30 of 30 late frames")
    assert is_the_hosts(whole)
    for host in ([], [(AT - 9 * MS, AT - 2 * MS)], [(AT + 5 * MS, AT + 8 * MS)]):
        check = checks(lines(change), host)[NAMES[kind]]
        assert (check.late, check.explained) == (30, 0)
        assert not is_the_hosts(check)


@pytest.mark.parametrize("kind", NAMES)
def test_late_frames_whose_bursts_were_not_kept_are_not_explained(kind: str) -> None:
    def change(made: list[dict[str, Any]]) -> None:
        late(kind, AT, AT + 20 * MS, 30)(made)
        made[2][kind] = [[AT, AT + 20 * MS, 20]]

    check = checks(lines(change), [(AT, AT + 20 * MS)])[NAMES[kind]]
    assert (check.late, check.explained) == (30, 20)
    assert not is_the_hosts(check)


@pytest.mark.parametrize("kind", NAMES)
def test_frames_outside_the_judged_span_do_not_count(kind: str) -> None:
    def change(made: list[dict[str, Any]]) -> None:
        late(kind, ZERO_NS - 30 * MS, ZERO_NS - 10 * MS, 30)(made[-3:])
        made[0] |= {name: made[-1][name] for name in (kind,)}
        made[:] = [*made[:-3], *lines()[-3:]]

    assert not failed(checks(lines(change)))


def spanning(since_ms: int, late_ms: int, frames: int) -> list[dict[str, Any]]:
    """A run whose last line begins half a second before the end; its late frames were due at an instant from there."""
    made = lines()
    due_ns = made[4]["at_ns"] + since_ms * MS
    made[4]["at_ns"] += SECOND // 2
    made[4] |= {"frames_late": 50, "frames_waited": 50, "lateness_ns": {"max": 200 * MS}}
    made[4] |= {name: [[due_ns, due_ns + late_ms * MS, frames]] for name in ("late", "waits")}
    made[4] |= {name: [[200 * MS, 50], [60_000, 50]] for name in ("lateness_counts", "intake_counts")}
    return made


@pytest.mark.parametrize(("since_ms", "frames", "fails"), [(-1, 4, True), (-1, 3, False), (1, 50, False)])
def test_of_the_line_that_spans_the_end_only_frames_due_before_it_are_late(
    since_ms: int, frames: int, fails: bool
) -> None:
    """The three lines before have 300 frames."""
    found = checks(spanning(since_ms, 2, frames))
    for name in ("plane_lateness", "plane_intake"):
        assert bool(found[name].failed) == fails
        assert found[name].late == (frames if since_ms < 0 else 0)


@pytest.mark.parametrize(("since_ms", "late_ms", "fails"), [(-1, 101, True), (-1, 100, False), (1, 190, False)])
def test_a_stall_that_begins_before_the_end_is_found_in_the_line_that_spans_it(
    since_ms: int, late_ms: int, fails: bool
) -> None:
    assert bool(checks(spanning(since_ms, late_ms, 1))["plane_stalls"].failed) == fails


def test_a_drop_in_the_line_that_spans_the_end_counts_and_one_after_it_does_not() -> None:
    for late_by, failed in ((SECOND // 2, 1), (SECOND + 1, 0)):
        made = lines()
        made[4]["at_ns"] += late_by
        if late_by > SECOND:
            made.insert(4, made[3] | {"at_ns": WORKLOAD.end_ns})
        made[-1]["drops"] = {"overload": 1}
        assert checks(made)["plane_drops"].failed == failed


def test_waits_that_some_or_all_lines_do_not_count_fail() -> None:
    def forget_one(made: list[dict[str, Any]]) -> None:
        del made[2]["intake_counts"]

    def forget_all(made: list[dict[str, Any]]) -> None:
        for line in made:
            del line["intake_counts"]

    assert failed(checks(lines(forget_one))) == {"plane_intake"}
    assert failed(checks(lines(forget_all))) == {"plane_intake"}


@pytest.mark.parametrize(
    ("host", "kept", "explained"),
    [
        ([(AT, AT + 150 * MS)], True, 1),
        ([(AT, AT + 150 * MS)], False, 0),
        ([(AT, AT + 40 * MS)], True, 0),
        ([], True, 0),
    ],
)
def test_a_plane_that_stood_still_is_explained_by_stalls_that_are_long_enough(
    host: list[tuple[int, int]], kept: bool, explained: int
) -> None:
    def change(made: list[dict[str, Any]]) -> None:
        late("late", AT, AT + 160 * MS, 1)(made)
        if not kept:
            made[2]["late"] = [[AT, AT + 2 * MS, 1]]

    check = checks(lines(change), host)["plane_stalls"]
    assert (check.failed, check.late, check.explained, check.allowed) == (1, 1, explained, 0)
    assert is_the_hosts(check) == bool(explained)


@pytest.mark.parametrize(("stalled_s", "explained"), [(1.5, 1), (0.5, 0)])
def test_a_silent_plane_is_explained_by_a_stall_of_as_long_as_it_was_too_silent(
    stalled_s: float, explained: int
) -> None:
    def silence(made: list[dict[str, Any]]) -> None:
        del made[1:3]

    begin_ns = ZERO_NS + SECOND
    check = checks(lines(silence), [(begin_ns, begin_ns + int(stalled_s * SECOND))])["plane_present"]
    assert (check.failed, check.late, check.explained) == (1, 1, explained)


@pytest.mark.parametrize("cause", ["overload", "device_full", "unknown_destination", "not_ip", "another"])
@pytest.mark.parametrize(
    ("frames", "severity"), [(1, "suspect"), (4, "suspect"), (5, "invalid")]
)  # of 4,000: up to 0.1 % are suspect
def test_frames_that_nobody_asked_to_drop_are_a_fault(cause: str, frames: int, severity: str) -> None:
    def drop(made: list[dict[str, Any]]) -> None:
        for number, line in enumerate(made):
            line |= {"frames_in": 1000 * number, "drops": {"loss": 50, cause: 7 + frames * (number >= 2)}}

    check = checks(lines(drop))["plane_drops"]
    assert (check.failed, check.tested, check.severity) == (frames, 4000, severity)
    assert f"{frames:,} of 4,000 frames were dropped as {cause}" in check.detail


def test_frames_that_were_to_be_dropped_or_came_too_early_to_be_judged_are_no_fault() -> None:
    def drop(made: list[dict[str, Any]]) -> None:
        for number, line in enumerate(made):
            line |= {"frames_in": 1000 * number, "drops": {"loss": 5 * number, "queue": number, "not_ip": 3}}

    assert not checks(lines(drop))["plane_drops"].failed


def test_a_plane_whose_lines_do_not_count_late_frames_is_judged_by_its_histograms() -> None:
    def forget(made: list[dict[str, Any]]) -> None:
        late("late", AT, AT + 20 * MS, 5)(made)
        for line in made:
            line.pop("frames_late", None)

    assert failed(checks(lines(forget))) == {"plane_lateness"}


def test_no_stall_explains_a_busy_plane() -> None:
    def busy(made: list[dict[str, Any]]) -> None:
        made[2]["busy_ratio"] = 0.97

    check = checks(lines(busy), [(ZERO_NS, ZERO_NS + 4 * SECOND)])["plane_busy"]
    assert check.failed
    assert not is_the_hosts(check)


@pytest.mark.parametrize(("due", "outcome"), [(False, NOT_APPLICABLE), (True, NOT_JUDGED)])
def test_a_plane_that_does_not_record_its_lateness_is_not_judged_by_it(due: bool, outcome: str) -> None:
    """What it does record is judged: its frames, drops and lines."""
    bare = ("at_ns", "frames_in", "frames_out", "bytes_in", "bytes_out", "drops")
    made = [{name: line[name] for name in bare if name in line} for line in lines()]
    assert failed(checks(made)) == {"plane_lateness", "plane_intake"}
    reason = "the kernel does not say"
    found = checks(made, unmeasured=Absent(reason, due=due))
    assert failed(found) == set()
    silent = {name for name, check in found.items() if (check.outcome, check.detail) == (outcome, reason)}
    assert silent == {"plane_lateness", "plane_intake", "plane_stalls", "plane_busy"}
    made[2]["drops"] = {"overload": 1}
    assert failed(checks(made, unmeasured=Absent(""))) == {"plane_drops"}
