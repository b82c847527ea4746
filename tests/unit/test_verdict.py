"""The verdict and the limits behind it, without a JVM."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.commands.run import describe_scope
from metrics.checks.consistency import CHURN_MARGIN
from metrics.checks.evidence import Emulation
from metrics.rundir import (
    FAILED,
    JUDGED,
    NOT_APPLICABLE,
    NOT_JUDGED,
    PASSED,
    Check,
    FinalState,
    Manifest,
    Phase,
    RunDir,
    Scope,
)
from metrics.summary import find_scope, judge
from metrics.tables.evidence import pairs_in_time, read_emulation
from metrics.tables.scheduled import read_lags
from metrics.tables.schemas import arrow_schema
from metrics.tables.traces import TraceState
from tests.fabricate import SECOND, ZERO_NS, Fabrication
from tests.sound_evidence import change, failures, of_run


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
    def is_complete(lines: int, records: int | None, corrupt: int) -> bool:
        return TraceState(0, lines, corrupt, records, drops=0, changes=0, crashes=0, reads=0).is_complete

    assert is_complete(10, 9, 0)
    assert not is_complete(9, 9, 0)
    assert not is_complete(10, 9, 1)
    assert not is_complete(10, None, 0)


@pytest.fixture(scope="module")
def fabrication() -> Fabrication:
    return Fabrication(seed=3, nodes=5, topics=3, messages=20)


@pytest.fixture
def run(fabrication: Fabrication, tmp_path: Path) -> RunDir:
    return RunDir(fabrication.write(tmp_path / "run"))


def test_checks_of_a_sound_run_all_hold(run: RunDir, fabrication: Fabrication) -> None:
    assert failures(of_run(run, fabrication)) == {}


@pytest.mark.parametrize(("scheduled", "traced", "sound"), [(0, 0, True), (1, 1, True), (1, 0, False), (0, 3, False)])
def test_checks_find_churn_that_the_schedule_did_not_ask_for(
    run: RunDir, fabrication: Fabrication, scheduled: int, traced: int, sound: bool
) -> None:
    leave = {"at_ns": 60 * SECOND, "node": 0, "action": "leave", "topics": []}
    with (run.path / "schedule.jsonl").open("a") as lines:
        lines.writelines(json.dumps(leave) + "\n" for _ in range(scheduled))
    found = change(of_run(run, fabrication), traces={"changes": traced})
    assert failures(found) == ({} if sound else {"churn_executed": "invalid"})


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
    sound = change(of_run(run, fabrication), traces={"changes": 1})
    assert failures(sound) == {}
    wrong = change(sound, deliveries=sound.deliveries + 20)
    assert failures(wrong) == {"delivery_rows": "invalid"}


def rewrite_plane(run: RunDir, rewrite: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the lines of the data plane."""
    path = run.path / "dataplane.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rewrite(lines)
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

    rewrite_plane(run, stall)
    assert failures(of_run(run, fabrication)) == expected


def test_checks_find_a_busy_plane_whatever_line_follows(run: RunDir, fabrication: Fabrication) -> None:
    def busy(lines: list[dict[str, Any]]) -> None:
        next(line for line in lines if line["at_ns"] == ZERO_NS + 2 * SECOND)["busy_ratio"] = 0.97

    rewrite_plane(run, busy)
    found = failures(of_run(run, fabrication))
    assert found == {"plane_busy": "suspect"}


def test_checks_do_not_take_a_few_busy_milliseconds_for_a_busy_second(run: RunDir, fabrication: Fabrication) -> None:
    def burst(lines: list[dict[str, Any]]) -> None:
        second = next(line for line in lines if (line["at_ns"] - ZERO_NS) % SECOND)
        second |= {"at_ns": ZERO_NS + 2 * SECOND + 5_000_000, "busy_ratio": 1.0}

    rewrite_plane(run, burst)
    assert failures(of_run(run, fabrication)) == {}


def test_checks_add_short_spans_of_a_busy_plane_up(run: RunDir, fabrication: Fabrication) -> None:
    """Many short lines are as busy as the seconds that they make."""

    def chop(lines: list[dict[str, Any]]) -> None:
        short = [lines[-1] | {"at_ns": ZERO_NS + SECOND + step * SECOND // 10} for step in range(1, 10)]
        lines += [line | {"busy_ratio": 0.97} for line in short]
        lines.sort(key=lambda line: line["at_ns"])

    rewrite_plane(run, chop)
    found = failures(of_run(run, fabrication))
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

    rewrite_plane(run, delay)
    assert failures(of_run(run, fabrication)) == expected


def test_checks_find_seconds_whose_lateness_was_not_counted(run: RunDir, fabrication: Fabrication) -> None:
    start_ns, end_ns = run.judged_ns

    def forget(lines: list[dict[str, Any]]) -> None:
        del next(line for line in lines if start_ns < line["at_ns"] <= end_ns)["lateness_counts"]

    rewrite_plane(run, forget)
    found = failures(of_run(run, fabrication))
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
    assert failures(of_run(run, fabrication)) == expected


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
    assert failures(of_run(run, fabrication)) == expected


def test_checks_find_a_data_plane_that_stopped(run: RunDir, fabrication: Fabrication) -> None:
    path = run.path / "dataplane.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:4] + lines[7:]) + "\n")
    assert failures(of_run(run, fabrication))["plane_present"] == "invalid"


def test_checks_find_a_network_that_is_not_what_was_asked(run: RunDir, fabrication: Fabrication) -> None:
    path = run.path / "achieved.parquet"
    table = pq.read_table(path).to_pandas()
    table.loc[table["phase"] == "before", "rtt_ms"] += 3.0
    table.loc[(table["phase"] == "after") & (table["src"] == 0), "received"] = 0
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path)
    underlay = json.loads((run.path / "underlay.json").read_bytes())
    (run.path / "underlay.json").write_text(json.dumps(underlay | {"loss_ratio": 0.0}))
    found = failures(of_run(run, fabrication))
    assert found == {
        "rtt_error_p50_before": "invalid",
        "rtt_error_p99_before": "invalid",
        "rtt_error_hosts_before": "invalid",
        "probes_returned_after": "invalid",
    }


def outcome(name: str, result: str, scope: str, detail: str = "") -> Check:
    return Check(name, 1, int(result == FAILED), 0.0, 0.0, "", "invalid", detail, outcome=result, scope=scope)


def test_checks_that_were_not_judged_make_a_run_suspect_with_a_sentence_per_reason() -> None:
    checks = [
        outcome("wire_delay", NOT_JUDGED, "network", "no packet arrived"),
        outcome("clocks", NOT_APPLICABLE, "deliveries", "one clock"),
        outcome("frame_sets", NOT_JUDGED, "frames", "0 of 9 could be tested"),
        outcome("packets_arrive", NOT_JUDGED, "network", "no packet arrived"),
    ]
    verdict, reasons = judge(manifest(), checks, 1.0, 0.0)
    assert verdict == "suspect"
    assert reasons == (
        "Checks wire delay, packets arrive were not judged: no packet arrived.",
        "Check frame sets was not judged: 0 of 9 could be tested.",
    )


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([PASSED, NOT_APPLICABLE], JUDGED),
        ([FAILED], JUDGED),
        ([PASSED, NOT_JUDGED], NOT_JUDGED),
        ([NOT_APPLICABLE, NOT_APPLICABLE], NOT_APPLICABLE),
        ([], NOT_APPLICABLE),
    ],
)
def test_a_part_of_the_scope_is_judged_if_all_its_checks_are(outcomes: list[str], expected: str) -> None:
    others = [outcome(part, PASSED, part) for part in ("machine", "frames", "deliveries", "packets")]
    found = find_scope([*others, *(outcome(f"check_{n}", each, "network") for n, each in enumerate(outcomes))])
    assert found == Scope(network=expected, machine=JUDGED, frames=JUDGED, deliveries=JUDGED, packets=JUDGED)
    said = describe_scope(found)
    assert (
        said
        == {
            JUDGED: "judged: network, machine, frames, deliveries, packets",
            NOT_JUDGED: "judged: machine, frames, deliveries, packets; not judged: network",
            NOT_APPLICABLE: "judged: machine, frames, deliveries, packets; not applicable: network",
        }[expected]
    )


def test_probes_of_pairs_whose_packets_were_in_time_accuse_nobody(run: RunDir) -> None:
    """During the workload only, and only if both directions were in time."""
    path = run.path / "achieved.parquet"
    table = pq.read_table(path).to_pandas()
    table["rtt_ms"] += 9.0
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path)
    hosts = run.underlay.size
    one_way = np.zeros((hosts, hosts), np.bool_)
    one_way[0, :] = True
    late: dict[str, dict[str, int]] = {}
    for name, in_time in (("none", None), ("one way", one_way), ("all", np.ones((hosts, hosts), np.bool_))):
        found = read_emulation(run, in_time)
        assert isinstance(found, Emulation) and found.sweeps is not None
        late[name] = {phase: sweep.errors["p99"].late.samples for phase, sweep in found.sweeps.items()}
    assert late["none"] == late["one way"] == dict.fromkeys(("before", "during", "after"), 10)
    assert late["all"] == {"before": 10, "during": 0, "after": 10}


def test_only_publications_that_came_late_have_a_lag(run: RunDir) -> None:
    lags_ns = {1: CHURN_MARGIN.ns, 2: CHURN_MARGIN.ns + 1, 3: None, 4: -5}
    rows = [
        {"message_id": each, "scheduled_ns": 7, "publish_ns": None if lag_ns is None else 7 + lag_ns}
        for each, lag_ns in lags_ns.items()
    ]
    (run.tables / "messages.parquet").mkdir(parents=True)
    table = pa.Table.from_pylist(rows, arrow_schema("messages"))
    pq.write_table(table, run.tables / "messages.parquet" / "part-0.parquet")
    assert read_lags(run) == {2: CHURN_MARGIN.ns + 1}


def test_pairs_are_in_time_if_few_packets_were_late_and_none_was_lost(run: RunDir) -> None:
    rows = [
        (0, 1, 100, 1, 0, 0.0, 0.1),
        (1, 0, 100, 2, 0, 0.0, 0.1),
        (2, 0, 100, 0, 1, 0.0, 0.1),
        (3, 0, 100, 0, 1, 0.1, 0.1),
        (4, 0, 100, 0, 1, 0.1, None),  # none of its packets could be timed
    ]
    names = ("src_node", "dst_node", "packets", "late", "lost", "asked_loss_ratio", "error_ms_mean")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    schema = arrow_schema("pairs")
    nothing = {name: [None] * len(rows) for name in schema.names}
    (run.tables / "pairs.parquet").mkdir(parents=True)
    pq.write_table(pa.table(nothing | columns, schema), run.tables / "pairs.parquet" / "part-0.parquet")
    assert np.argwhere(pairs_in_time(run)).tolist() == [[0, 1], [3, 0]]
