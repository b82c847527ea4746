"""The verdict so far: the checks of the verdict, over what is there."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.live.judging import (
    CHECKS,
    Recorded,
    find_verdict,
    judge_manifest,
    judge_recorded,
    judge_summary,
    list_limits,
    sort_reasons,
)
from harness.live.snapshot import Reason
from metrics.checks import RULES
from metrics.checks.plane import PLANE_BUSY, STALL
from metrics.checks.rule import Absent
from metrics.reasons import describe
from metrics.recorded.dataplane import PlaneInterval
from metrics.rundir import FAILED, Check, FinalState, Manifest, Phase, Summary, Timeline
from tests.sound_evidence import NO_STALLS, SECOND, span

TIMELINE = Timeline(0, (Phase("workload", 0, 4 * SECOND), Phase("cooldown", 4 * SECOND, 6 * SECOND)))
NOW_NS = 3 * SECOND
LATE: dict[str, Any] = {"lateness_counts": [(5_000_000, 100)]}
LIMITS = {"lateness_p99_ms": 0.5}


def load(second: int, **changes: float) -> dict[str, Any]:
    return {"at_ns": second * SECOND, "cpu_busy_ratio": 0.5, "steal_ratio": 0.0} | changes


def judge(
    spans: Sequence[PlaneInterval],
    pressure: Sequence[Mapping[str, Any]] | None = None,
    now_ns: int = NOW_NS,
    unmeasured: Absent | None = None,
) -> dict[str, str]:
    """The names of the checks that fail so far, with what they make of the run."""
    lines = [load(second) for second in range(4)] if pressure is None else pressure
    recorded = Recorded(5, tuple(spans), lines, NO_STALLS, 0.5, unmeasured)
    return {reason.check: reason.severity for reason in judge_recorded(recorded, TIMELINE, now_ns)}


SOUND = [span(second) for second in range(-1, 4)]


def test_a_sound_run_is_valid_so_far() -> None:
    assert judge(SOUND) == {}
    assert find_verdict(()) == "valid so far"


@pytest.mark.parametrize(
    ("changes", "check", "severity"),
    [
        (LATE, "plane_lateness", "invalid"),
        ({"intake_counts": [(5_000_000, 100)]}, "plane_intake", "invalid"),
        ({"drops": {"overload": 1}}, "plane_drops", "invalid"),
        ({"lateness_ns": {"max": STALL.ns + 1}}, "plane_stalls", "suspect"),
        ({"busy_ratio": PLANE_BUSY.value + 0.01}, "plane_busy", "suspect"),
    ],
)
def test_each_check_of_the_plane_is_made(changes: dict[str, Any], check: str, severity: str) -> None:
    assert judge([*SOUND[:3], span(2, **changes), span(3)]) == {check: severity}


@pytest.mark.parametrize(
    ("changes", "check"),
    [({"cpu_busy_ratio": 1.0}, "cpu_busy"), ({"steal_ratio": 0.5}, "steal"), ({"throttled_periods": 1}, "throttled")],
)
def test_each_check_of_the_machine_is_made(changes: dict[str, float], check: str) -> None:
    assert judge(SOUND, [load(0), load(1, **changes), load(2), load(3)]) == {check: "suspect"}


def test_a_plane_that_is_silent_is_noticed_before_it_speaks_again() -> None:
    assert judge([span(-1), span(0)], now_ns=NOW_NS) == {"plane_present": "invalid"}


def test_before_the_workload_nothing_is_judged() -> None:
    assert judge([span(-1, **LATE)], [load(-1, cpu_busy_ratio=1.0)], now_ns=0) == {}


def test_what_was_late_before_the_workload_does_not_count() -> None:
    assert judge([span(-1, **LATE), span(0, **LATE), *SOUND[2:]]) == {}


def test_a_plane_that_cannot_say_how_late_it_is_is_not_blamed() -> None:
    late = [*SOUND[:3], span(2, **LATE), span(3)]
    assert judge(late, unmeasured=Absent("the kernel does not say")) == {}


def test_only_checks_of_the_verdict_are_made() -> None:
    assert set(CHECKS) <= {rule.name for rule in RULES}


def test_limits_are_those_of_the_rules_and_of_the_experiment() -> None:
    limits = {limit.check: limit for limit in list_limits(LIMITS)}
    assert (limits["plane_lateness"].value, limits["plane_lateness"].unit) == (0.5, "ms")
    assert limits["plane_stalls"].value == STALL.value
    assert {name: limit.severity for name, limit in limits.items()} == {
        rule.name: rule.severity for rule in RULES if rule.name in limits
    }
    assert "delivery_ratio" not in limits


def test_a_least_delivery_ratio_is_a_limit_from_below() -> None:
    *_, limit = list_limits({**LIMITS, "delivery_ratio_min": 0.9})
    assert (limit.check, limit.value, limit.at_least) == ("delivery_ratio", 0.9, True)


def test_the_gravest_reasons_come_first_and_each_once() -> None:
    suspect, invalid = Reason("steal", "b", "suspect"), Reason("", "a", "invalid")
    assert sort_reasons([suspect, invalid, suspect]) == (invalid, suspect)
    assert find_verdict([suspect]) == "suspect"
    assert find_verdict([suspect, invalid]) == "invalid"


MANIFEST = Manifest(
    "run", "emulated", 0, 0, TIMELINE.phases,
    (FinalState("peer-0", "exited", "signalled", 9), FinalState("peer-1", "exited", "exited", 0)),
    {}, {}, {}, {}, problems=(("suspect", "3 of 9 scrapes failed"),),
)  # fmt: skip


def test_the_manifest_tells_what_the_stage_has_found() -> None:
    assert list(judge_manifest(MANIFEST)) == [
        Reason("", "3 of 9 scrapes failed.", "suspect"),
        Reason("", "peer-0 was killed by signal 9, expected exited.", "invalid"),
    ]


def test_the_reasons_of_a_summary_name_their_checks() -> None:
    failed = Check("steal", 9, 2, 0.3, 0.1, "ratio", "suspect", outcome=FAILED)
    reasons = (f"{describe(failed)}.", "3 of 9 scrapes failed.", "The delivery ratio is 0.5, expected at least 0.9.")
    summary = Summary("suspect", reasons, {}, (failed,), "run", "name", 1, "random")
    found = list(judge_summary(summary, MANIFEST))
    assert tuple(each.text for each in found) == reasons
    assert [(each.check, each.severity) for each in found] == [("steal", "suspect"), ("", "suspect"), ("", "suspect")]
