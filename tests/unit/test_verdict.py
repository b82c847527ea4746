"""The verdict and the limits behind it, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.certificate import check_certificate
from metrics.checks import Evidence, check_consistency, is_complete
from metrics.rundir import Check, FinalState, Manifest, Phase, RunDir
from metrics.verdict import judge
from tests.fabricate import SECOND, ZERO_NS, Fabrication


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "run_id": "r", "testbed": "emulated", "epoch_offset_ns": 0, "zero_ns": 0, "phases": (), "final_states": (),
        "counters": {}, "versions": {}, "kernel": {}, "hashes": {},
    }  # fmt: skip
    return Manifest(**(fields | changes))


def check(failed: int, severity: str) -> Check:
    return Check("plane_lateness", 30, failed, 7.25, 1.0, "ms", severity, "worst second")


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([], "valid"),
        ([check(0, "invalid")], "valid"),
        ([check(1, "suspect")], "suspect"),
        ([check(1, "suspect"), check(2, "invalid")], "invalid"),
    ],
)
def test_verdict_is_its_gravest_reason(checks: list[Check], expected: str) -> None:
    verdict, reasons = judge(manifest(), checks, 1.0, 0.0)
    assert verdict == expected
    assert bool(reasons) == (expected != "valid")


@pytest.mark.parametrize(("at_s", "expected"), [(29.9, "invalid"), (30.1, "valid")])
def test_a_peer_that_ends_in_order_before_the_plans_end_is_a_reason(at_s: float, expected: str) -> None:
    """As one does that somebody asks to end: its status is 0."""
    phases = (Phase("workload", 0, int(27e9)), Phase("cooldown", int(27e9), int(30e9)))
    ended = FinalState("peer-7", "exited", "exited", 0, int(at_s * 1e9))
    verdict, reasons = judge(manifest(phases=phases, final_states=(ended,)), [], 0.9, 0.0)
    assert verdict == expected
    if expected == "invalid":
        assert reasons == ("peer-7 exited with status 0, before the plan's end at 29.9 s, expected exited.",)


def test_verdict_reasons_are_sentences_with_numbers() -> None:
    killed = FinalState("peer-7", "exited", "signalled", 9, int(12.3e9))
    verdict, reasons = judge(manifest(final_states=(killed,)), [check(3, "suspect")], 0.5, 0.9)
    assert verdict == "invalid"
    assert reasons == (
        "peer-7 was killed by signal 9 at 12.3 s, expected exited.",
        "Check plane lateness failed (3 of 30 failed, worst 7.25 ms, tolerance 1): worst second.",
        "The delivery ratio is 0.5000, expected at least 0.9.",
    )


def test_verdict_says_a_process_s_end_once() -> None:
    killed = FinalState("peer-7", "exited", "signalled", 9)
    said = ("invalid", "peer-7 ended signalled (status 9), expected exited")
    _, reasons = judge(manifest(final_states=(killed,), problems=(said,)), [], None, 0.0)
    assert reasons == ("peer-7 ended signalled (status 9), expected exited.",)


def test_checks_know_a_complete_trace() -> None:
    assert is_complete({"lines": 10, "records": 9, "corrupt": 0})
    assert not is_complete({"lines": 9, "records": 9, "corrupt": 0})
    assert not is_complete({"lines": 10, "records": 9, "corrupt": 1})
    assert not is_complete({"lines": 10, "records": None, "corrupt": 0})
    assert not is_complete(None)


HOPS = {
    "order_tested": 40, "order_failed": 0, "order_worst_ns": 0, "sets_tested": 10, "sent_unseen": 0, "read_unseen": 0,
    "seen_unsent": 0, "read_unsent": 0, "frames_sent": 10, "frames_unread": 0, "receive_ms_p50": 0.1,
    "receive_ms_p99": 1.0,
    "send_ms_p50": 0.1, "send_ms_p99": 1.0, "received": 10, "receive_late": 0, "receive_explained": 0,
}  # fmt: skip
WIRE = {
    "steady_tested": 10, "steady_ms_p50": 0.1, "steady_ms_p99": 0.2, "steady_ms_max": 0.3, "jittered_tested": 0,
    "jittered_ms_p50": None, "jittered_ms_p99": None, "jittered_ms_max": None, "jitter_sigmas_std": None,
    "steady_late": 0, "steady_explained": 0, "jittered_late": 0, "jittered_explained": 0,
}  # fmt: skip


def evidence(fabrication: Fabrication, **changes: dict[str, Any]) -> Evidence:
    """What a sound run of the fabrication yields, but for ``changes``."""
    expected, scheduled = len(fabrication.truth.expected()), len(fabrication.schedule)
    parts: dict[str, dict[str, Any]] = {
        "hops": HOPS,
        "wire": WIRE,
        "coverage": {"coverage_tested": 4, "coverage_failed": 0, "coverage_worst_bytes": 0, "covered_bytes": 100},
        "captures": {
            "records": len(fabrication.packets), "dropped": 0, "interfaces": 2, "not_understood": 0, "truncated": 0
        },
        "deliveries": {
            "rows": expected, "delivered": 9, "both": 9, "negative": 0, "most_negative_ms": -1.0,
            "difference_ms_p50": 0.2, "difference_ms_p99": 0.5, "before_publication": 0,
            "difference_late": 0, "difference_explained": 0,
        },
        "messages": {
            "messages": scheduled, "subscribers": expected, "with_schedule": scheduled, "lag_ms_p99": 0.1,
            "lag_ms_max": 1.0, "lag_late": 0, "lag_explained": 0,
        },
        "overhead": {"identity_tested": 5, "identity_failed": 0, "identity_worst_bytes": 0, "wire_bytes": 1000},
        "conns": {"connections": 2, "only_traced": 0, "only_on_wire": 0},
    }  # fmt: skip
    merged = {name: values | changes.get(name, {}) for name, values in parts.items()}
    dropped = changes.get("dropped_frames", {})
    incomplete = list(changes.get("incomplete", {}))
    return Evidence(traces={}, incomplete=incomplete, captured=True, dropped_frames=dropped, **merged)


def row(second: int, **changes: Any) -> dict[str, Any]:
    fields = {
        "at_ns": ZERO_NS + second * SECOND, "cpu_busy_ratio": 0.4, "steal_ratio": 0.0,
    }  # fmt: skip
    return fields | changes


@pytest.fixture(scope="module")
def fabrication() -> Fabrication:
    return Fabrication(seed=3, nodes=5, topics=3, messages=20)


@pytest.fixture
def run(fabrication: Fabrication, tmp_path: Path) -> RunDir:
    return RunDir(fabrication.write(tmp_path / "run"))


def failures(run: RunDir, found: Evidence, seconds: list[dict[str, Any]]) -> dict[str, str]:
    checks = check_consistency(run, found) + check_certificate(run, found, seconds)
    return {check.name: check.severity for check in checks if check.failed}


def test_checks_of_a_sound_run_all_hold(run: RunDir, fabrication: Fabrication) -> None:
    assert failures(run, evidence(fabrication), [row(second) for second in range(4)]) == {}


@pytest.mark.parametrize(
    ("part", "change", "name", "severity"),
    [
        ("hops", {"order_failed": 1, "order_worst_ns": 5000}, "causal_order", "invalid"),
        ("hops", {"frames_unread": 1}, "frames_arrived", "suspect"),
        ("hops", {"seen_unsent": 1}, "frame_sets", "suspect"),
        ("hops", {"receive_ms_p99": 11.0}, "receive_delay", "suspect"),
        ("hops", {"receive_ms_p99": 101.0}, "receive_delay", "invalid"),
        ("hops", {"send_ms_p50": 6.0}, "send_delay", "suspect"),
        ("wire", {"steady_ms_p99": 0.6}, "wire_delay", "invalid"),
        ("wire", {"jittered_tested": 5, "jittered_ms_p99": 0.6}, "wire_delay_jittered", "invalid"),
        ("coverage", {"coverage_failed": 1, "coverage_worst_bytes": 3}, "stream_coverage", "suspect"),
        ("captures", {"records": 7}, "conservation", "invalid"),
        ("captures", {"truncated": 1}, "capture_drops", "suspect"),
        ("deliveries", {"rows": 1}, "delivery_rows", "invalid"),
        ("deliveries", {"negative": 1, "most_negative_ms": 0.5}, "delay_order", "invalid"),
        ("deliveries", {"difference_ms_p99": 10.5}, "delay_agreement", "suspect"),
        ("messages", {"with_schedule": 19}, "schedule_executed", "invalid"),
        ("messages", {"lag_ms_p99": 21.0}, "publish_lag", "suspect"),
        ("messages", {"lag_ms_p99": 201.0}, "publish_lag", "invalid"),
        ("overhead", {"identity_failed": 1, "identity_worst_bytes": 1}, "overhead_identity", "invalid"),
        ("conns", {"only_on_wire": 1}, "connections", "suspect"),
        ("dropped_frames", {"queue_full": 2}, "frames_kept", "suspect"),
        ("incomplete", {2: 0}, "traces_complete", "suspect"),
    ],
)
def test_checks_find_each_fault(
    run: RunDir, fabrication: Fabrication, part: str, change: dict[str, Any], name: str, severity: str
) -> None:
    found = failures(run, evidence(fabrication, **{part: change}), [row(second) for second in range(4)])
    assert found.get(name) == severity


@pytest.mark.parametrize(("scheduled", "traced", "sound"), [(0, 0, True), (1, 1, True), (1, 0, False), (0, 3, False)])
def test_checks_find_churn_that_the_schedule_did_not_ask_for(
    run: RunDir, fabrication: Fabrication, scheduled: int, traced: int, sound: bool
) -> None:
    leave = {"at_ns": 60 * SECOND, "node": 0, "action": "leave", "topics": []}
    with (run.path / "schedule.jsonl").open("a") as lines:
        lines.writelines(json.dumps(leave) + "\n" for _ in range(scheduled))
    found = msgspec.structs.replace(evidence(fabrication), member_changes=traced)
    expected = {} if sound else {"churn_executed": "invalid"}
    assert failures(run, found, [row(second) for second in range(4)]) == expected


def test_deliveries_that_churn_leaves_open_are_no_fault(run: RunDir, fabrication: Fabrication) -> None:
    """A node that unsubscribes 50 ms before a publication may do so after it, for all the schedule can tell."""
    lines = [json.loads(line) for line in (run.path / "schedule.jsonl").read_text().splitlines()]
    last = lines[-1]
    subscribers = fabrication.truth.subscriptions
    other = next(n for n, own in subscribers.items() if n != last["node"] and own & set(last["topics"]))
    leave = {"at_ns": last["at_ns"] - SECOND // 20, "node": other, "action": "unsubscribe", "topics": last["topics"]}
    lines.append(leave)
    lines.sort(key=lambda line: line["at_ns"])
    (run.path / "schedule.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sound = msgspec.structs.replace(evidence(fabrication), member_changes=1)
    assert failures(run, sound, [row(second) for second in range(4)]) == {}
    wrong = evidence(fabrication, deliveries={"rows": len(fabrication.truth.expected()) + 20})
    wrong = msgspec.structs.replace(wrong, member_changes=1)
    assert failures(run, wrong, [row(second) for second in range(4)]) == {"delivery_rows": "invalid"}


@pytest.mark.parametrize(
    ("change", "name", "severity"),
    [
        ({"cpu_busy_ratio": 1.0}, "cpu_busy", "suspect"),
        ({"cpu_busy_ratio": 0.955}, "cpu_busy", "suspect"),
        ({"steal_ratio": 0.3}, "steal", "suspect"),
    ],
)
def test_checks_find_an_overloaded_machine(
    run: RunDir, fabrication: Fabrication, change: dict[str, Any], name: str, severity: str
) -> None:
    assert failures(run, evidence(fabrication), [row(second, **change) for second in range(4)]) == {name: severity}


def change_plane(run: RunDir, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the lines of the data plane."""
    path = run.path / "dataplane.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("late_ms", "expected"), [(99, {}), (101, {"plane_stalls": "suspect"})])
def test_checks_find_a_stall_in_either_of_two_lines_of_a_second(
    run: RunDir, fabrication: Fabrication, place: int, late_ms: int, expected: dict[str, str]
) -> None:
    def stall(lines: list[dict[str, Any]]) -> None:
        of_second = [line for line in lines if (line["at_ns"] - ZERO_NS) // SECOND == 2]
        assert len(of_second) == 2
        of_second[place]["lateness_ns"]["max"] = late_ms * 1_000_000

    change_plane(run, stall)
    assert failures(run, evidence(fabrication), [row(second) for second in range(4)]) == expected


def test_checks_find_a_busy_plane_whatever_line_follows(run: RunDir, fabrication: Fabrication) -> None:
    def busy(lines: list[dict[str, Any]]) -> None:
        next(line for line in lines if line["at_ns"] == ZERO_NS + 2 * SECOND)["busy_ratio"] = 0.97

    change_plane(run, busy)
    found = failures(run, evidence(fabrication), [row(second) for second in range(4)])
    assert found == {"plane_busy": "suspect"}


def test_checks_do_not_take_a_few_busy_milliseconds_for_a_busy_second(run: RunDir, fabrication: Fabrication) -> None:
    def burst(lines: list[dict[str, Any]]) -> None:
        second = next(line for line in lines if (line["at_ns"] - ZERO_NS) % SECOND)
        second |= {"at_ns": ZERO_NS + 2 * SECOND + 5_000_000, "busy_ratio": 1.0}

    change_plane(run, burst)
    assert failures(run, evidence(fabrication), [row(second) for second in range(4)]) == {}


def test_checks_add_short_spans_of_a_busy_plane_up(run: RunDir, fabrication: Fabrication) -> None:
    """Many short lines are as busy as the seconds that they make."""

    def chop(lines: list[dict[str, Any]]) -> None:
        short = [lines[-1] | {"at_ns": ZERO_NS + SECOND + step * SECOND // 10} for step in range(1, 10)]
        lines += [line | {"busy_ratio": 0.97} for line in short]
        lines.sort(key=lambda line: line["at_ns"])

    change_plane(run, chop)
    found = failures(run, evidence(fabrication), [row(second) for second in range(4)])
    assert found == {"plane_busy": "suspect"}


@pytest.mark.parametrize(
    ("late_ns", "late", "expected"),
    [
        (600_000, 1, {}),
        (600_000, 2, {"plane_lateness": "invalid"}),
        (400_000, 50, {}),
    ],
)
def test_checks_find_more_than_one_late_frame_in_a_hundred(
    run: RunDir, fabrication: Fabrication, late_ns: int, late: int, expected: dict[str, str]
) -> None:
    """However the late frames are spread over the seconds."""
    start_ns, end_ns = run.judged_ns

    def delay(lines: list[dict[str, Any]]) -> None:
        judged = [line for line in lines if start_ns < line["at_ns"] <= end_ns]
        for line in judged:
            line["lateness_counts"] = [[90_000, 100]]
        judged[0]["lateness_counts"] = [[90_000, 100 - late * len(judged)], [late_ns, late * len(judged)]]

    change_plane(run, delay)
    assert failures(run, evidence(fabrication), [row(second) for second in range(4)]) == expected


def test_checks_find_seconds_whose_lateness_was_not_counted(run: RunDir, fabrication: Fabrication) -> None:
    start_ns, end_ns = run.judged_ns

    def forget(lines: list[dict[str, Any]]) -> None:
        del next(line for line in lines if start_ns < line["at_ns"] <= end_ns)["lateness_counts"]

    change_plane(run, forget)
    found = failures(run, evidence(fabrication), [row(second) for second in range(4)])
    assert found == {"plane_lateness": "invalid"}


@pytest.mark.parametrize(
    ("second", "later_s", "found"),
    [(-1, 0, False), (0, 0, False), (0, 0.5, True), (1, 0, True), (7, 0, True), (7, 0.5, True), (7, 1, False)],
)
def test_checks_find_a_quota_that_was_used_up_in_the_judged_span(
    run: RunDir, fabrication: Fabrication, second: int, later_s: float, found: bool
) -> None:
    """A line is of the second that ends at it; one that the judged span only touches counts."""
    start_ns, end_ns = run.judged_ns
    path = run.path / "pressure.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (lines[0]["at_ns"] - start_ns, end_ns - start_ns) == (-3 * SECOND, 7 * SECOND)
    for line in lines:
        line["at_ns"] += round(later_s * SECOND)
    lines[3 + second] |= {"throttled_periods": 1, "throttled_us": 40_000}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = {"throttled": "suspect"} if found else {}
    assert failures(run, evidence(fabrication), [row(number) for number in range(4)]) == expected


@pytest.mark.parametrize(("lines_left_out", "found"), [(3, False), (4, True), (11, True)])
def test_checks_find_a_record_of_quotas_that_ended_early(
    run: RunDir, fabrication: Fabrication, lines_left_out: int, found: bool
) -> None:
    path = run.path / "pressure.jsonl"
    lines = path.read_text().splitlines()
    assert len(lines) == 11
    assert json.loads(lines[-1])["at_ns"] == run.judged_ns[1]
    path.write_text("".join(f"{line}\n" for line in lines[: len(lines) - lines_left_out]))
    expected = {"throttled": "suspect"} if found else {}
    assert failures(run, evidence(fabrication), [row(number) for number in range(4)]) == expected


def test_checks_find_a_data_plane_that_stopped(run: RunDir, fabrication: Fabrication) -> None:
    path = run.path / "dataplane.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:4] + lines[7:]) + "\n")
    assert failures(run, evidence(fabrication), [row(second) for second in range(4)])["plane_present"] == "invalid"


def test_checks_find_a_network_that_is_not_what_was_asked(run: RunDir, fabrication: Fabrication) -> None:
    path = run.path / "achieved.parquet"
    table = pq.read_table(path).to_pandas()
    table.loc[table["phase"] == "before", "rtt_ms"] += 3.0
    table.loc[(table["phase"] == "after") & (table["src"] == 0), "received"] = 0
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path)
    found = failures(run, evidence(fabrication), [row(second) for second in range(4)])
    assert found == {
        "rtt_error_p50_before": "invalid",
        "rtt_error_p99_before": "invalid",
        "probes_returned_after": "invalid",
    }
