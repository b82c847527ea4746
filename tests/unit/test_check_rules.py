"""The rules of the checks: their registry, their page, and each limit from both sides, with the number written out."""

import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from msgspec import structs

from metrics.checks import RULES, check_run
from metrics.checks.consistency import BROKEN, CHURN_MARGIN, IDLE, SETTLE, TOLD
from metrics.checks.evidence import (
    Evidence,
    Jitter,
    LateCounts,
    LinkFrames,
    Losses,
    Matching,
    Outcome,
    PressureLine,
    Timed,
    WrongLinks,
)
from metrics.checks.machine import CLOCK_ERROR
from metrics.checks.network import is_no_chance
from metrics.checks.rule import Absent, CheckRule, Judgement, Limit, at_most, few_late, share_at_most
from metrics.first_packets import RULES as COMPARED
from metrics.host_captures import HostCounts, Waits
from metrics.probing import PHASES, Extreme
from metrics.recount import Recount
from metrics.round_trips import PhaseTrips
from metrics.rundir import FAILED, INVALID, JUDGED, NOT_APPLICABLE, NOT_JUDGED, PASSED, SUSPECT, AppliedChange, Scope
from metrics.stalls import Late, is_the_hosts
from metrics.summary import find_scope
from metrics.tables.evidence import without_frames
from tests.fabricate import SECOND
from tests.sound_evidence import MS, ROUND_TRIPS, SHORT, SOUND, change, failures, span, sweep

GOLDEN = Path(__file__).parents[1] / "golden" / "fabricated-summary.json"
PAGE = Path(__file__).parents[2] / "docs" / "verdict.md"
NAMES = [rule.name for rule in RULES]

# ------------------------------------------------------------------------------------------------ the registry


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES) > 40


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_says_what_it_needs_and_why_it_is_made(rule: Any) -> None:
    parts, types = get_type_hints(Evidence), get_type_hints(rule.judge)
    assert rule.needs
    for name in rule.needs:
        kind = types[name]
        assert kind == parts[name] or kind in get_args(parts[name]), f"the part {name} is no {kind}"
    assert rule.severity in (INVALID, SUSPECT)
    fails_if, why, *late = rule.texts
    assert fails_if.startswith("Fails if") and fails_if.endswith(".") and why.endswith(".")
    assert [text.startswith("Late: ") and "; " in text for text in late] == [True] * bool(rule.things)
    assert all(str(limit) in " ".join(rule.texts) for limit in rule.limits)
    assert not rule.grave or rule.severity == SUSPECT


def test_checks_come_in_the_order_of_the_golden_summary() -> None:
    golden = json.loads(GOLDEN.read_text())["checks"]
    assert [name for name in NAMES if name in golden] == golden
    assert golden == NAMES


@pytest.mark.parametrize(("due", "outcome"), [(False, NOT_APPLICABLE), (True, NOT_JUDGED)])
def test_a_check_without_a_part_that_it_needs_says_why(due: bool, outcome: str) -> None:
    optional = [name for name, kind in get_type_hints(Evidence).items() if Absent in get_args(kind)]
    assert len(optional) > 10
    for part in optional:
        without = check_run(structs.replace(SOUND, **{part: Absent("nothing of the kind", due)}))
        found = {check.name: check.detail for check in without if check.outcome == outcome}
        expected = dict.fromkeys((rule.name for rule in RULES if part in rule.needs), "nothing of the kind")
        aside = {"churn_executed": found["churn_executed"]} if not due else {}
        assert found == expected | aside, part


def test_a_check_whose_parts_are_absent_by_design_is_not_applicable_whatever_else_is_missing() -> None:
    rule = CheckRule("both", "certificate", INVALID, lambda order, frames: Absent("never"))
    missing = structs.replace(SOUND, order=Absent("lost", due=True), frames=Absent("by design"))
    found = rule.check(missing)
    assert (found.outcome, found.detail) == (NOT_APPLICABLE, "by design")


def test_every_part_of_the_scope_has_checks() -> None:
    assert {rule.scope for rule in RULES} == set(Scope.__struct_fields__)


def test_the_page_has_every_rule() -> None:
    found = re.findall(r"^\| (`[^|]+`) \| .* \| (?:invalid|suspect)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    rows = [name.strip("`") for names in found for name in names.split(", ")]
    for name in NAMES:
        assert [row for row in rows if re.fullmatch(row.replace("*", "[a-z]+"), name)] != [], name
    assert all(any(re.fullmatch(row.replace("*", "[a-z]+"), name) for name in NAMES) for row in rows)


def test_the_page_has_the_limits_of_first_packets() -> None:
    page = PAGE.read_text(encoding="utf-8")
    pairs, hosts = COMPARED["pairs"], COMPARED["hosts"]
    for rule, slots in ((pairs, "all"), (hosts, "first packets of a host,")):
        share = Limit(rule.share, "ratio")
        assert f"| {slots} with a control within {rule.apart_ms:g} ms | {share} | {rule.p_value:g} |" in page
    assert f"({pairs.fewest}; {hosts.fewest} of hosts)" in page


# ------------------------------------------------------------------------------------------------ judgements


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


def test_in_virtual_time_no_publication_can_be_late() -> None:
    """So a simulated run says nothing of the machine."""
    virtual = change(SOUND, publications={"lag": Absent("in virtual time no publication is late")})
    check = next(check for check in check_run(virtual) if check.name == "publish_lag")
    assert check.outcome == NOT_APPLICABLE


def test_what_is_missing_of_such_a_program_is_still_missing() -> None:
    uncaptured = structs.replace(SOUND, frame_sets=Absent("there is no capture file", due=True))
    assert without_frames(uncaptured).frame_sets == Absent("there is no capture file", due=True)


def probed(phase: str, found: Any) -> dict[str, dict[str, Any]]:
    """A change of the probes of one phase."""
    assert SOUND.emulation is not None and SOUND.emulation.sweeps is not None
    return {"emulation": {"sweeps": SOUND.emulation.sweeps | {phase: found}}}


def lost(ratio: float) -> Any:
    """A sweep of 100,000 probes of which so many were lost."""
    return structs.replace(sweep(), sent=100_000, received=100_000 - round(100_000 * ratio))


def lines(**changes: Any) -> dict[str, dict[str, Any]]:
    """Every line of the data plane with other values."""
    return {"emulation": {"spans": tuple(span(second, **changes) for second in range(5))}}


def counting(late: int = 0, waited: int = 0) -> dict[str, dict[str, Any]]:
    """Lines of 100 frames each, of which so many were late, or waited too long."""
    return lines(counts={"frames_in": 100, "frames_late": late, "frames_waited": waited})


def silent(seconds: float) -> dict[str, dict[str, Any]]:
    """A data plane that wrote nothing for so long, and a line per second before and after."""
    instants = [0, 0.5, 0.5 + seconds, 3.5, 4]
    spans = tuple(structs.replace(span(0), at_ns=round(at_s * SECOND)) for at_s in instants)
    return {"emulation": {"spans": spans}}


def throttled(last_s: float) -> dict[str, dict[str, Any]]:
    """Quotas whose last line is so many seconds before the end of the judged span."""
    return {"emulation": {"pressure": (PressureLine(0), PressureLine(round((4 - last_s) * SECOND)))}}


def busy(part: str, ratio: float, seconds: int) -> dict[str, tuple[float, ...]]:
    """A share of the processors' time in some of 100 seconds of the workload."""
    return {part: (ratio,) * seconds + (0.0,) * (100 - seconds)}


def late(samples: int, p99_ms: float = 0.2) -> Any:
    """Quantiles of 1,000 samples of which so many are late."""
    return structs.replace(SHORT, p99=p99_ms, late=Late(samples, 0))


def wired(kind: str, samples: int) -> dict[str, dict[str, Any]]:
    """1,000 packets of which the delays of so many are too far from the delay asked for."""
    return {"transits": {kind: Timed(1000, late(samples))}}


def losing(**changes: Any) -> dict[str, dict[str, Any]]:
    """As many lost packets as asked for, of pairs with two different losses."""
    return {"transits": {"losses": Losses(20_000, 200, 200.0, 198.0, pairs=9, wrong_pairs=0, values=2, **changes)}}


def lagging(samples: int, p99_ms: float = 21.0) -> dict[str, dict[str, Any]]:
    """1,000 publications of which so many come late."""
    return {"publications": {"scheduled": 1000, "messages": 1000, "with_schedule": 1000, "lag": late(samples, p99_ms)}}


def jittered(**changes: Any) -> dict[str, dict[str, Any]]:
    """10,000 packets under jitter of 2 ms, of which 2.5 ms was drawn: 0.1 ms more or less are allowed."""
    return {"transits": {"jitter": structs.replace(Jitter(10_000, 0.0, 2.0, 2.5, 2.5), **changes)}}


def extreme(**changes: Any) -> dict[str, dict[str, Any]]:
    """A sweep after the workload with another worst pair or host."""
    return probed("after", structs.replace(sweep(), **changes))


def pair(beyond: int) -> Extreme:
    return Extreme(4.0, 6.0, 80.0, "host 1 to host 2", Late(beyond, 0))


def noded(part: str, samples: int, late: int) -> dict[str, Any]:
    """One node among those in time has so many samples, and so many late ones."""
    return {part: {0: LateCounts(100, 0, 0), 7: LateCounts(samples, late, 0)}}


def linked(**found: int) -> dict[str, Any]:
    return {"connected": found}


def changed(late_ns: int, error_ns: int = 0) -> dict[str, Any]:
    """The network changes at two instants, at the second one so much later than asked."""
    asked_ns = 2 * SECOND
    applied = (AppliedChange(0, 0), AppliedChange(asked_ns, asked_ns + late_ns))
    return {"changes": {"applied": applied, "error_ns": error_ns}}


CASES = [
    # Change that is within the limit, change that is beyond it, the check and what that makes of the run.
    ({"inside": late(10)}, {"inside": late(11)}, "delay_agreement", SUSPECT),
    (lagging(10), lagging(11), "publish_lag", SUSPECT),
    (None, lagging(11, p99_ms=200.0), "publish_lag", SUSPECT),
    (None, lagging(11, p99_ms=200.1), "publish_lag", INVALID),
    ({"receive": late(10)}, {"receive": late(11)}, "receive_delay", SUSPECT),
    (None, {"receive": late(11, p99_ms=100.0)}, "receive_delay", SUSPECT),
    (None, {"receive": late(11, p99_ms=100.1)}, "receive_delay", INVALID),
    ({"send": {"p50": 5.0}}, {"send": {"p50": 5.01}}, "send_delay", SUSPECT),
    (None, {"send": {"p50": 50.0}}, "send_delay", SUSPECT),
    (None, {"send": {"p50": 50.1}}, "send_delay", INVALID),
    (wired("steady", 10), wired("steady", 11), "wire_delay", INVALID),
    (wired("jittered", 10), wired("jittered", 11), "wire_delay_jittered", INVALID),
    (wired("rated", 10), wired("rated", 11), "access_rate", INVALID),
    (wired("rated", 9), {"transits": {"wrong_rates": WrongLinks(1, "node 3 up")}}, "access_rate", INVALID),
    (wired("rated", 9), {"transits": {"wrong_queues": WrongLinks(1, "node 3 up")}}, "access_queue", SUSPECT),
    (losing(), losing(wrong_values=1), "packet_loss", INVALID),
    (jittered(bias_ms=0.149), jittered(bias_ms=0.151), "jitter", INVALID),
    (jittered(bias_ms=-0.149), jittered(bias_ms=-0.151), "jitter", INVALID),
    (jittered(found_ms=2.599), jittered(found_ms=2.601), "jitter", INVALID),
    (jittered(found_ms=2.401), jittered(found_ms=2.399), "jitter", INVALID),
    (extreme(worst_pair=pair(0)), extreme(worst_pair=pair(1)), "rtt_error_pairs_after", INVALID),
    (
        extreme(worst_host=Extreme(1.0, 0.5, 80.0, "host 1", Late(0, 0))),
        extreme(worst_host=Extreme(1.01, 0.5, 80.0, "host 1", Late(1, 0))),
        "rtt_error_hosts_after",
        INVALID,
    ),
    (probed("before", lost(0.001)), probed("before", lost(0.00101)), "probes_returned_before", SUSPECT),
    (None, probed("during", lost(0.01)), "probes_returned_during", SUSPECT),
    (None, probed("after", lost(0.0101)), "probes_returned_after", INVALID),
    (counting(late=1), counting(late=2), "plane_lateness", INVALID),
    (counting(waited=1), counting(waited=2), "plane_intake", INVALID),
    (lines(lateness_counts=[(594_000, 9)]), lines(lateness_counts=[(595_000, 9)]), "plane_lateness", INVALID),
    (lines(intake_counts=[(594_000, 9)]), lines(intake_counts=[(595_000, 9)]), "plane_intake", INVALID),
    (lines(lateness_ns={"max": 100 * MS}), lines(lateness_ns={"max": 100 * MS + 1}), "plane_stalls", SUSPECT),
    (noded("node_sends", 10, 5), noded("node_sends", 10, 6), "node_send_delay", SUSPECT),
    (noded("node_receives", 9, 9), noded("node_receives", 10, 6), "node_receive_delay", SUSPECT),
    (noded("node_handlings", 100, 50), noded("node_handlings", 100, 51), "node_handling_delay", SUSPECT),
    (None, {"accounts": {"deviations": {"copies were read without an event": 1}}}, "copies_accounted", SUSPECT),
    (None, linked(only_on_wire=1), "open_connections", SUSPECT),
    (None, linked(only_traced=1), "open_connections", SUSPECT),
    (lines(busy_ratio=0.95), lines(busy_ratio=0.951), "plane_busy", SUSPECT),
    (silent(2.0), silent(2.001), "plane_present", INVALID),
    (changed(5 * MS), changed(5 * MS + 1), "changes_applied", SUSPECT),
    (None, changed(50 * MS + 1), "changes_applied", INVALID),
    (changed(0), changed(-1), "changes_applied", SUSPECT),
    (changed(9 * MS, 4 * MS), changed(9 * MS, 4 * MS - 1), "changes_applied", SUSPECT),
    (changed(-4 * MS, 4 * MS), changed(-4 * MS - 1, 4 * MS), "changes_applied", SUSPECT),
    (None, {"changes": {"asked": 3}}, "changes_applied", SUSPECT),
    (throttled(3.0), throttled(3.001), "throttled", SUSPECT),
    (busy("busy", 0.95, 11), busy("busy", 0.951, 11), "cpu_busy", SUSPECT),
    (busy("busy", 1.0, 10), busy("busy", 1.0, 11), "cpu_busy", SUSPECT),
    (busy("steal", 0.10, 11), busy("steal", 0.101, 11), "steal", SUSPECT),
    (busy("steal", 1.0, 10), busy("steal", 1.0, 11), "steal", SUSPECT),
]  # fmt: skip


@pytest.mark.parametrize(("within", "beyond", "name", "severity"), CASES, ids=[case[2] for case in CASES])
def test_each_limit_is_found_from_both_sides(
    within: dict[str, Any] | None, beyond: dict[str, Any], name: str, severity: str
) -> None:
    assert failures(change(SOUND, **(within or {}))) == {}
    assert failures(change(SOUND, **beyond)) == {name: severity}


@pytest.mark.parametrize(("late", "explained", "nodes"), [(6, 0, 0), (7, 1, 0), (7, 2, 1)])
def test_stalls_explain_a_slow_node_whose_median_is_in_time_without_them(late: int, explained: int, nodes: int) -> None:
    found = change(SOUND, node_sends={0: LateCounts(100, 0, 0), 7: LateCounts(10, late, explained)})
    [check] = [check for check in check_run(found) if check.name == "node_send_delay"]
    assert (check.tested, check.failed, check.late, check.explained, check.allowed) == (2, 1, 1, nodes, 0)
    assert f"node 7 ({late} of 10)" in check.detail
    assert is_the_hosts(check) == bool(nodes)


@pytest.mark.parametrize("phase", ["before", "during", "after"])
def test_the_errors_of_probes_are_judged_by_phase(phase: str) -> None:
    severity = SUSPECT if phase == "during" else INVALID
    p50, p99 = f"rtt_error_p50_{phase}", f"rtt_error_p99_{phase}"
    for samples, expected in ((10, {}), (11, {p99: severity}), (500, {p99: severity})):
        assert failures(change(SOUND, **probed(phase, sweep(late=Late(samples, 0))))) == expected
    found = failures(change(SOUND, **probed(phase, sweep(late=Late(501, 0)))))
    assert found == {p50: severity, p99: severity}


@pytest.mark.parametrize(("answered", "outcome"), [(900, PASSED), (899, NOT_JUDGED)])
def test_a_sweep_of_which_too_few_pairs_answered_is_not_judged(answered: int, outcome: str) -> None:
    found = {check.name: check for check in check_run(change(SOUND, **probed("after", sweep(probes=answered))))}
    for name in ("rtt_error_p50_after", "rtt_error_p99_after", "rtt_error_pairs_after"):
        assert (found[name].outcome, found[name].tested, found[name].material) == (outcome, answered, 1000)


@pytest.mark.parametrize(("asked", "outcome"), [((), NOT_APPLICABLE), (("during",), NOT_JUDGED)])
def test_a_phase_without_probes_is_not_judged_if_the_experiment_asks_for_them(asked: Any, outcome: str) -> None:
    found = change(SOUND, emulation={"sweeps": {}, "asked_sweeps": asked})
    names = ("rtt_error_p50_during", "rtt_error_p99_during", "probes_returned_during")
    checks = [check for check in check_run(found) if check.name in names]
    assert len(checks) == 3
    assert {check.outcome for check in checks} == {outcome}


def test_lost_probes_do_not_count_where_loss_was_asked_for() -> None:
    exposed = {"exposed": 100_000, "exposed_lost": 50_000, "asked_loss_ratio": 0.1}
    none_else = structs.replace(sweep(), sent=0, received=0, **exposed)
    found = change(SOUND, **probed("before", none_else))
    assert failures(found) == {}
    check = next(check for check in check_run(found) if check.name == "probes_returned_before")
    assert check.outcome == NOT_APPLICABLE
    assert check.detail == "50,000 of 100,000 probes lost where loss was asked for (up to 10.00% per round trip)"
    for ratio, severity in ((0.001, None), (0.0011, SUSPECT), (0.011, INVALID)):
        others = structs.replace(lost(ratio), **exposed)
        found = change(SOUND, **probed("before", others))
        assert failures(found) == ({"probes_returned_before": severity} if severity else {})


def test_a_host_that_stalls_made_late_is_the_hosts() -> None:
    for explained in (0, 1):
        late = extreme(worst_host=Extreme(2.0, 1.0, 80.0, "host 1", Late(1, explained)))
        check = next(check for check in check_run(change(SOUND, **late)) if check.name == "rtt_error_hosts_after")
        assert (check.failed, check.late, check.explained, check.allowed) == (1, 1, explained, 0)
        assert is_the_hosts(check) == bool(explained)


def test_limits_that_the_experiment_sets_are_in_its_checks() -> None:
    made = change(SOUND, emulation={"lateness_p99_ms": 0.04}, transits={"limit_ms": 0.1})
    found = {check.name: check.tolerance for check in check_run(made)}
    assert {found[name] for name in ("plane_lateness", "plane_intake")} == {0.04}
    assert {found[name] for name in ("wire_delay", "wire_delay_jittered", "access_rate")} == {0.1}


@pytest.mark.parametrize(("samples", "outcome"), [(900, PASSED), (899, NOT_JUDGED), (0, NOT_JUDGED)])
def test_packets_that_were_not_timed_are_missed(samples: int, outcome: str) -> None:
    """Of 1,000 packets that have neither jitter nor an access link with a rate."""
    found = check_run(change(SOUND, transits={"steady": Timed(1000, structs.replace(SHORT, samples=samples))}))
    check = next(check for check in found if check.name == "wire_delay")
    assert (check.outcome, check.material) == (outcome, 1000)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"losses": Losses(900, 0, 9.0, 8.9, 0, 0)}, "packet_loss"),
        ({"jitter": Jitter(99, 9.0, 2.0, 9.0, 2.0), "jittered": Timed(99, SHORT)}, "jitter"),
        ({"queues": Absent("no rate")}, "access_queue"),
        ({"rated": Absent("no rate")}, "access_rate"),
        ({"steady": Absent("all have jitter")}, "wire_delay"),
        ({"jittered": Absent("no jitter")}, "wire_delay_jittered"),
        ({"plain_sent": 0}, "packets_arrive"),
    ],
)
def test_what_an_experiment_gives_too_little_of_is_said(changes: dict[str, Any], name: str) -> None:
    check = next(check for check in check_run(change(SOUND, transits=changes)) if check.name == name)
    assert (check.outcome, check.tested) == (NOT_APPLICABLE, 0)
    assert check.detail


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"losses": Losses(9000, 4500, 9.0, 8.9, pairs=1, wrong_pairs=0)}, "packet_loss"),
        ({"losses": Losses(900, 9, 9.0, 8.9, pairs=1, wrong_pairs=1)}, "packet_loss"),
        ({"plain_sent": 0, "invented": 2}, "packets_arrive"),
        ({"jitter": Jitter(100, 50.0, 2.0, 2.0, 2.0)}, "jitter"),
    ],
)
def test_what_is_wrong_is_found_although_other_tests_lack_material(changes: dict[str, Any], name: str) -> None:
    assert set(failures(change(SOUND, transits=changes))) == {name}


def test_jitter_of_packets_whose_delays_are_not_known_is_missed() -> None:
    unclear = change(SOUND, transits={"jitter": Jitter(99, 0.0, 2.0, 2.0, 2.0), "jittered": Timed(100, SHORT)})
    assert next(check for check in check_run(unclear) if check.name == "jitter").outcome == NOT_JUDGED


def test_what_nobody_recorded_is_not_said_to_be_missing() -> None:
    assert failures(change(SOUND, carried=None)) == {}


@pytest.mark.parametrize(
    ("lost", "found"), [(60, True), (139, True), (140, False), (200, False), (267, False), (268, True)]
)
def test_a_loss_may_differ_by_a_tenth_and_by_chance(lost: int, found: bool) -> None:
    """Of 20,000 packets at 1 %: if 180 are expected, one network in 1,000 loses below 140; if 220 are, above 267."""
    assert is_no_chance(lost, 20_000, 0.01) is found


def test_of_many_pairs_one_may_be_more_unlikely() -> None:
    assert is_no_chance(139, 20_000, 0.01)
    assert not is_no_chance(139, 20_000, 0.01, tests=20)


@pytest.mark.parametrize(("rows", "uncertain", "fails"), [(62, 2, False), (63, 2, True), (58, 2, False), (57, 2, True)])
def test_deliveries_may_be_off_by_what_the_documents_leave_open(rows: int, uncertain: int, fails: bool) -> None:
    found = change(SOUND, deliveries=rows, recount=Recount(60, uncertain))
    assert ("delivery_rows" in failures(found)) is fails


@pytest.mark.parametrize(
    "changes",
    [
        {"traces": {"incomplete": {2: 7}}},
        {"publications": {"messages": 21}},
        {"publications": {"messages": 19, "with_schedule": 19}},
    ],
)
def test_deliveries_of_a_run_that_is_not_as_planned_are_those_of_the_traces(changes: dict[str, Any]) -> None:
    """Then the recount, which knows the plan alone, expects what cannot be there."""
    found = change(SOUND, recount=Recount(99, 0), **changes)
    assert "delivery_rows" in failures(change(SOUND, recount=Recount(99, 0)))
    assert "delivery_rows" not in failures(found)


@pytest.mark.parametrize(
    ("frames", "outcome", "said"),
    [
        (None, NOT_APPLICABLE, "no frame of this protocol says which topics a link carries"),
        (LinkFrames(Matching(4, 0, 0), 9, 4, 2), NOT_APPLICABLE, "2 of 4 ends of connections"),
        (LinkFrames(Matching(5, 0, 0), 9, 4, 2), PASSED, ""),
        (LinkFrames(Matching(0, 0, 0), 0, 0, 0), NOT_JUDGED, "0 of 0 could be tested"),
    ],
)
def test_links_whose_frames_are_missing_or_cut_are_not_compared(
    frames: LinkFrames | None, outcome: str, said: str
) -> None:
    found = change(SOUND, links={"frames": frames})
    [check] = [check for check in check_run(found) if check.name == "logical_link_frames"]
    assert check.outcome == outcome
    assert said in check.detail


def test_links_that_copies_do_not_show_are_not_compared() -> None:
    found = change(SOUND, links={"logical": None})
    [check] = [check for check in check_run(found) if check.name == "logical_links"]
    assert (check.outcome, check.tested) == (NOT_APPLICABLE, 0)
    assert "where there is no logical link" in check.detail


def test_limits_of_evidence_have_their_values() -> None:
    """No judge compares them: they bound what the tables count."""
    assert (IDLE.ns, SETTLE.ns, BROKEN.ns, TOLD.ns) == (2 * SECOND, 100 * MS, 60 * SECOND, 2 * SECOND)
    assert CHURN_MARGIN.ns == 100 * MS


# ------------------------------------------------------------------------------------------------ parts of rules


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(0.001, "ratio"), "0.1 %"),
        (Limit(0.95, "ratio"), "95 %"),
        (Limit(10.0, "ms"), "10 ms"),
        (Limit(1, ""), "1"),
    ],
)
def test_a_limit_has_its_unit_as_text(limit: Limit, text: str) -> None:
    assert str(limit) == text


def test_a_value_at_its_limit_passes() -> None:
    limit = Limit(3.0, "ms")
    assert [at_most(limit, value, 9, "").failed for value in (2.9, 3.0, 3.1)] == [0, 0, 1]
    assert [few_late(limit, 9.0, 9, "", Late(late, 0), 2).failed for late in (2, 3)] == [0, 1]
    assert [share_at_most(limit, [value] * 4, 0).failed for value in (3.0, 3.1)] == [0, 4]
    assert [share_at_most(limit, [4.0] * late + [0.0] * (10 - late), 0.2).failed for late in (2, 3)] == [0, 3]
    assert share_at_most(limit, [], 0).worst == 0.0


@pytest.mark.parametrize(
    ("tested", "failed", "material", "floor", "outcome"),
    [
        (0, 0, None, 0.5, NOT_JUDGED),
        (1, 0, None, 0.5, PASSED),
        (0, 0, 10, 0.0, NOT_JUDGED),
        (5, 0, 10, 0.5, PASSED),
        (4, 0, 10, 0.5, NOT_JUDGED),
        (9, 0, 10, 0.9, PASSED),
        (8, 0, 10, 0.9, NOT_JUDGED),
        (0, 1, 10, 0.9, FAILED),
        (1, 1, 10, 0.9, FAILED),
    ],
)
def test_a_check_that_tests_less_than_its_floor_is_not_judged(
    tested: int, failed: int, material: int | None, floor: float, outcome: str
) -> None:
    judged = Judgement(tested, failed, failed, Limit(0, ""), "a detail", material=material)
    found = CheckRule("some", "certificate", INVALID, lambda: judged, floor=floor).check(None)
    assert (found.outcome, found.tested) == (outcome, tested)
    assert ("could be tested" in found.detail) is (outcome == NOT_JUDGED)
