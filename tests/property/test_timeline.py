"""The instants of runs, as planned and as recorded."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.experiment.form import WorkloadSpec
from metrics.rundir import Phase, Timeline

SECOND_NS = 1_000_000_000

spans = st.floats(0, 1000)
instants = st.integers(0, 2**62)


@given(instants, spans, st.floats(1e-3, 1000), spans)
def test_a_plan_lays_the_phases_of_a_workload_end_to_end(
    start_ns: int, warmup_s: float, duration_s: float, cooldown_s: float
) -> None:
    workload = WorkloadSpec(warmup_s=warmup_s, duration_s=duration_s, cooldown_s=cooldown_s)
    planned = Timeline.plan(start_ns, workload.spans_s | {"stop": 31.0})
    assert [phase.name for phase in planned.phases] == ["warmup", "workload", "cooldown", "stop"]
    assert all(before.end_ns == after.start_ns for before, after in pairwise(planned.phases))
    assert planned.start_ns == start_ns
    assert planned.zero_ns == start_ns + round(warmup_s * SECOND_NS)
    assert planned.published_ns == planned.zero_ns + round(duration_s * SECOND_NS)
    assert planned.stop_ns == planned.published_ns + round(cooldown_s * SECOND_NS)
    assert planned.end_ns == planned.stop_ns + 31 * SECOND_NS
    assert planned.judged_ns == (planned.zero_ns, planned.stop_ns)


def test_without_a_stop_the_plan_ends_when_the_peers_are_to_stop() -> None:
    planned = Timeline.plan(7, WorkloadSpec(warmup_s=1, duration_s=2, cooldown_s=3).spans_s)
    assert planned.stop_ns == planned.end_ns == 7 + 6 * SECOND_NS


@given(instants, spans, st.floats(1e-3, 1000), spans)
def test_the_grid_has_the_full_seconds_from_start_to_cooldown(
    start_ns: int, warmup_s: float, duration_s: float, cooldown_s: float
) -> None:
    spans_s = {"boot": 5.0, "warmup": warmup_s, "workload": duration_s, "cooldown": cooldown_s, "stop": 9.0}
    planned = Timeline.plan(start_ns, spans_s)
    zero_ns, first, last = planned.grid
    assert zero_ns == planned.zero_ns
    assert planned.start_ns == start_ns + 5 * SECOND_NS
    assert 0 <= zero_ns + first * SECOND_NS - planned.start_ns < SECOND_NS
    assert 0 <= planned.stop_ns - (zero_ns + last * SECOND_NS) < SECOND_NS


def test_a_run_that_was_cut_short_lacks_what_it_did_not_reach() -> None:
    recorded = Timeline(
        90, (Phase("boot", 1, 10), Phase("warmup", 40, 60), Phase("stop", 61, 65), Phase("collect", 66, 70))
    )
    assert recorded.phase("workload") is None
    assert (recorded.start_ns, recorded.published_ns, recorded.stop_ns, recorded.end_ns) == (40, 90, 61, 70)
    assert recorded.judged_ns == (90, 61)
    empty = Timeline(90, ())
    assert (empty.start_ns, empty.published_ns, empty.stop_ns, empty.end_ns) == (90, 90, 90, 90)
    assert empty.grid == (90, 0, 0)


def test_an_instant_is_in_the_phase_that_began_before_it_and_ends_after_it() -> None:
    recorded = Timeline(20, (Phase("warmup", 10, 20), Phase("workload", 20, 30), Phase("stop", 35, 40)))
    assert [recorded.phase_at(at) for at in (9, 10, 19, 20, 30, 35, 40)] == [
        None, "warmup", "warmup", "workload", None, "stop", None
    ]  # fmt: skip
