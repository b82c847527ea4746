"""Each fault of a run is found by its check alone, and what is no fault by none."""

from typing import Any

import pytest
from msgspec import structs

from metrics.checks import check_run
from metrics.checks.evidence import LinkFrames, Losses, Matching, Outcome
from metrics.checks.machine import CLOCK_ERROR
from metrics.checks.rule import Absent
from metrics.recorded.host_captures import HostCounts, Waits
from metrics.recorded.probing import PHASES
from metrics.recorded.round_trips import PhaseTrips
from metrics.recorded.stalls import Late
from metrics.rundir import JUDGED, NOT_APPLICABLE, NOT_JUDGED, PASSED, SUSPECT
from metrics.summary import find_scope
from metrics.tables.evidence import without_frames, without_messages
from tests.sound_evidence import ROUND_TRIPS, SOUND, change, failures, span


def test_checks_of_a_sound_run_all_hold() -> None:
    assert failures(SOUND) == {}
    assert {check.name for check in check_run(SOUND) if check.outcome != PASSED} == {"churn_executed"}


HOST_PACKETS = "host_capture_packets", "invalid"
THERE, BACK = ROUND_TRIPS.least_ms


def trips(phase: str, **changes: Any) -> dict[str, PhaseTrips]:
    """The round trips of all phases, those of one of them with changes."""
    return dict.fromkeys(PHASES, ROUND_TRIPS) | {phase: structs.replace(ROUND_TRIPS, **changes)}


LATE_PACKETS = Waits(samples=1000, p50_ms=0.1, p99_ms=0.6, max_ms=0.6, late=Late(11, 0))


@pytest.mark.parametrize(
    ("part", "changed", "name", "severity"),
    [
        ("traces", {"incomplete": {2: None}}, "traces_complete", "suspect"),
        ("documents", {"edited": ("plan.json", "underlay.json")}, "documents_unchanged", "invalid"),
        ("publications", {"messages": 19, "with_schedule": 19}, "schedule_executed", "invalid"),
        ("deliveries", 61, "delivery_rows", "invalid"),
        ("order", {"failed": 1, "worst": 5000}, "causal_order", "invalid"),
        ("frames", {"failed": 1}, "frames_arrived", "suspect"),
        ("traces", {"dropped": {"queue_full": 2}}, "frames_kept", "suspect"),
        ("traces", {"changes": 1}, "churn_executed", "invalid"),
        ("uncaptured", True, "captured", "invalid"),
        ("frame_sets", {"unmatched": {"read but never sent": 1}}, "frame_sets", "suspect"),
        ("coverage", {"failed": 1, "worst": 3}, "stream_coverage", "suspect"),
        ("connections", {"only_traced": 1}, "connections", "suspect"),
        ("connections", {"only_on_wire": 1}, "connections", "suspect"),
        ("bounds", {"impossible": 1, "worst_ms": 0.1}, "possible_delays", "invalid"),
        ("bounds", {"impossible": 1, "unreached": 1}, "possible_delays", "invalid"),
        ("bounds", {"lacking": 1}, "delivered_bytes", "suspect"),
        ("captures", {"records": 89}, "conservation", "invalid"),
        ("captures", {"truncated": 1}, "capture_drops", "suspect"),
        ("captures", {"dropped": 1}, "capture_drops", "suspect"),
        ("captures", {"not_understood": 1}, "capture_drops", "suspect"),
        ("captures", {"plane_frames": 91, "plane_dropped": 1}, "capture_drops", "suspect"),
        ("delays", {"failed": 1, "worst": 0.5}, "delay_order", "invalid"),
        ("identity", {"failed": 1, "worst": 1}, "overhead_identity", "invalid"),
        ("host_captures", {"counts": (HostCounts(0, 2000, unread=1),)}, *HOST_PACKETS),
        ("host_captures", {"counts": (HostCounts(0, undelivered=2, kernel_dropped=1),)}, *HOST_PACKETS),
        ("host_captures", {"outbound": LATE_PACKETS}, "host_capture_outbound", "invalid"),
        ("host_captures", {"inbound": LATE_PACKETS}, "host_capture_inbound", "invalid"),
        ("links", {"physical": Matching(9, 1, 0)}, "link_agreement", "suspect"),
        ("links", {"physical": Matching(9, 0, 1)}, "link_agreement", "suspect"),
        ("links", {"logical": Outcome(9, 1)}, "logical_links", "suspect"),
        ("links", {"frames": LinkFrames(Matching(9, 1, 0), 9, 4, 0)}, "logical_link_frames", "suspect"),
        ("links", {"frames": LinkFrames(Matching(9, 0, 1), 9, 4, 0)}, "logical_link_frames", "suspect"),
        ("emulation", {"sweeps": None}, "certificate", "invalid"),
        ("emulation", {"first_packets": None}, "first_packet", "suspect"),
        ("emulation", {"spans": tuple(span(n, intake_counts=None) for n in range(5))}, "plane_intake", "invalid"),
        ("clocks", {"unresolved": 1}, "clocks", "suspect"),
        ("measured", {"phases": trips("before", silent=(THERE,))}, "round_trips_before", "suspect"),
        ("measured", {"phases": trips("after", silent=(THERE,))}, "round_trips_after", "suspect"),
        ("measured", {"phases": trips("after", least_ms={THERE: 12.1, BACK: 10.1})}, "round_trips_kept", "suspect"),
        ("measured", {"phases": trips("after", least_ms={THERE: 7.9, BACK: 10.1})}, "round_trips_kept", "suspect"),
        ("measured", {"wire_ms": {THERE: 3.9, BACK: 4.0}}, "captured_round_trips", "suspect"),
        ("transits", {"plain_lost": 1}, "packets_arrive", "suspect"),
        ("transits", {"invented": 1}, "packets_arrive", "suspect"),
        ("transits", {"plain_lost": 2}, "packets_arrive", "invalid"),
        ("transits", {"queues": Outcome(10_000, 11)}, "access_queue", "suspect"),
        ("transits", {"queues": Outcome(10_000, 101)}, "access_queue", "invalid"),
        ("transits", {"losses": Losses(2000, 20, 20.0, 19.8, pairs=9, wrong_pairs=1)}, "packet_loss", "invalid"),
        ("transits", {"losses": Losses(20_000, 60, 200.0, 198.0, pairs=0, wrong_pairs=0)}, "packet_loss", "invalid"),
        ("transits", {"losses": Losses(20_000, 300, 200.0, 198.0, pairs=0, wrong_pairs=0)}, "packet_loss", "invalid"),
        ("emulation", {"pressure": ()}, "throttled", "suspect"),
    ],
)
def test_each_fault_is_found_by_its_check_alone(part: str, changed: Any, name: str, severity: str) -> None:
    assert failures(change(SOUND, **{part: changed})) == {name: severity}


@pytest.mark.parametrize(
    "changes",
    [
        {"phases": trips("after", least_ms={THERE: 11.9, BACK: 8.2})},
        {"wire_ms": {THERE: 4.1, BACK: 4.0}},
        {"wire_ms": {THERE: 50.0, BACK: 60.0}},
        {"phases": trips("during", received=1)},
    ],
)
def test_what_a_real_network_may_do_is_no_fault(changes: dict[str, Any]) -> None:
    assert failures(change(SOUND, measured=changes)) == {}


def test_short_delays_are_no_fault_where_round_trips_were_measured_and_clocks_agree() -> None:
    near = {"unresolved": 1, "has_round_trips": True, "error_ns": round(CLOCK_ERROR.ns)}
    assert failures(change(SOUND, clocks=near)) == {}
    assert failures(change(SOUND, clocks=near | {"error_ns": round(CLOCK_ERROR.ns) + 1})) == {"clocks": SUSPECT}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"phases": None}, {*(f"round_trips_{phase}" for phase in PHASES), "round_trips_kept", "captured_round_trips"}),
        ({"phases": {"before": ROUND_TRIPS}}, {"round_trips_during", "round_trips_after", "round_trips_kept"}),
        ({"pairs": 3}, {"round_trips_before", "round_trips_after", "round_trips_kept"}),
        ({"wire_ms": {THERE: 7.0}}, {"captured_round_trips"}),
    ],
)
def test_a_network_that_was_not_measured_is_not_judged(changes: dict[str, Any], names: set[str]) -> None:
    checks = check_run(change(SOUND, measured=changes))
    assert {check.name for check in checks if check.outcome == NOT_JUDGED} == names
    assert find_scope(checks).network == NOT_JUDGED


def test_a_run_without_capture_fails_only_where_one_was_asked_for() -> None:
    assert failures(change(SOUND, uncaptured=Absent("the experiment asks for no capture"))) == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"publications": {"messages": 0}}, "no message was published"),
        ({"deliveries": 0}, "no delivery was expected"),
        ({"carried": 0}, "no frame was sent"),
    ],
)
def test_a_run_in_which_nothing_happened_says_so(changes: dict[str, Any], said: str) -> None:
    found = {check.name: check for check in check_run(change(SOUND, **changes))}["workload_carried"]
    assert (found.failed, found.severity) == (1, SUSPECT)
    assert said in found.detail


def test_a_program_whose_frames_are_not_known_is_judged_without_them() -> None:
    """Its network, its machine and its deliveries are judged as always."""
    checks = check_run(without_frames(SOUND))
    assert failures(without_frames(SOUND)) == {}
    named = {check.name for check in checks if "writes nor traces frames" in check.detail}
    assert {"causal_order", "frame_sets", "stream_coverage", "copies_accounted", "node_send_delay"} <= named
    assert not {"wire_delay", "packets_arrive", "schedule_executed", "workload_carried", "cpu_busy"} & named
    assert {check.outcome for check in checks if check.name in named} == {NOT_APPLICABLE}
    scope = find_scope(checks)
    assert (scope.frames, scope.packets, scope.deliveries) == (NOT_APPLICABLE, JUDGED, JUDGED)


def test_programs_that_report_no_messages_are_judged_without_them() -> None:
    """Nothing says that deliveries are judged, although the documents are compared with their hashes."""
    one_clock = structs.replace(SOUND, connected=Absent("no links"), clocks=Absent("one clock"))
    silent = without_messages(without_frames(one_clock))
    checks = check_run(silent)
    assert failures(silent) == {}
    scope = find_scope(checks)
    assert (scope.network, scope.machine, scope.packets) == (JUDGED, JUDGED, JUDGED)
    assert (scope.frames, scope.deliveries) == (NOT_APPLICABLE, NOT_APPLICABLE)
    named = {check.name for check in checks if "report no messages" in check.detail}
    assert {"traces_complete", "workload_carried", "schedule_executed", "delivery_rows", "publish_lag"} <= named
    assert "documents_unchanged" not in named


def test_in_virtual_time_no_publication_can_be_late() -> None:
    """So a simulated run says nothing of the machine."""
    virtual = change(SOUND, publications={"lag": Absent("in virtual time no publication is late")})
    check = next(check for check in check_run(virtual) if check.name == "publish_lag")
    assert check.outcome == NOT_APPLICABLE


def test_what_is_missing_of_such_a_program_is_still_missing() -> None:
    uncaptured = structs.replace(SOUND, frame_sets=Absent("there is no capture file", due=True))
    assert without_frames(uncaptured).frame_sets == Absent("there is no capture file", due=True)
