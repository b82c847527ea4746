"""The phases of a run so far, from the lines that the running stage writes."""

import pytest

from harness.live.phases import ANALYSIS, finished_course, follow_course
from metrics.rundir import BegunPhase, Phase

S = 1_000_000_000
BEGUN = [BegunPhase("boot", 1 * S), BegunPhase("deploy", 4 * S)]
PLANNED = [
    BegunPhase("warmup", 10 * S, 12 * S),
    BegunPhase("workload", 12 * S, 20 * S),
    BegunPhase("cooldown", 20 * S, 22 * S),
]


def shown(begun: list[BegunPhase], now_s: float) -> list[tuple[str, float | None, float | None, str]]:
    course = follow_course(begun, round(now_s * S))
    zero_ns = None if course.timeline is None else course.timeline.zero_ns
    return [(each.name, each.begin_s, each.end_s, each.state) for each in course.describe(zero_ns)]


def test_a_phase_without_a_plan_runs_until_the_next_one_begins() -> None:
    assert shown(BEGUN[:1], 3) == [("boot", None, None, "running")]
    assert shown(BEGUN, 5) == [("boot", None, None, "over"), ("deploy", None, None, "running")]


def test_planned_phases_count_from_the_start_of_the_workload() -> None:
    assert shown([*BEGUN, *PLANNED], 13)[1:] == [
        ("deploy", -8.0, -2.0, "over"),
        ("warmup", -2.0, 0.0, "over"),
        ("workload", 0.0, 8.0, "running"),
        ("cooldown", 8.0, 10.0, "planned"),
    ]


def test_before_its_planned_begin_a_phase_does_not_run() -> None:
    assert follow_course(PLANNED, 9 * S).running is None
    assert [state for *_, state in shown(PLANNED, 9)] == ["planned"] * 3


def test_after_its_planned_end_a_phase_is_over_also_if_no_other_has_begun() -> None:
    course = follow_course(PLANNED, 23 * S)
    assert (course.running, course.over) == (None, 3)


def test_a_run_that_is_cut_short_ends_its_planned_phases() -> None:
    found = shown([*PLANNED, BegunPhase("stop", 15 * S), BegunPhase("collect", 17 * S)], 18)
    assert found == [
        ("warmup", -2.0, 0.0, "over"),
        ("workload", 0.0, 3.0, "over"),
        ("stop", 3.0, 5.0, "over"),
        ("collect", 5.0, None, "running"),
    ]


@pytest.mark.parametrize(("stops_s", "until_s"), [([], 22), ([15], 15), ([23], 23)])
def test_hosts_are_judged_until_the_stop(stops_s: list[int], until_s: int) -> None:
    timeline = follow_course([*PLANNED, *(BegunPhase("stop", at_s * S) for at_s in stops_s)], 24 * S).timeline
    assert timeline is not None
    assert timeline.judged_ns == (12 * S, until_s * S)


def test_there_is_no_timeline_before_the_peers_start() -> None:
    assert follow_course(BEGUN, 5 * S).timeline is None
    assert follow_course([], 5 * S).spans == ()


@pytest.mark.parametrize("analysing", [True, False])
def test_a_run_with_a_manifest_is_over_but_for_its_analysis(analysing: bool) -> None:
    course = finished_course([Phase("warmup", 2, 3), Phase("boot", 0, 1)], 9, analysing=analysing)
    assert [each.name for each in course.spans] == ["boot", "warmup", *([ANALYSIS] if analysing else [])]
    assert (course.running is None, course.over) == (not analysing, 2)
