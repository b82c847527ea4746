"""Each limit of the checks from both sides, with the number written out."""

from typing import Any

import pytest
from msgspec import structs

from metrics.checks import check_run
from metrics.checks.evidence import Jitter, LateCounts, Losses, PressureLine, Timed, WrongLinks
from metrics.checks.network import is_no_chance
from metrics.recorded.probing import Extreme
from metrics.recorded.stalls import Late, is_the_hosts
from metrics.recount import Recount
from metrics.rundir import INVALID, NOT_APPLICABLE, NOT_JUDGED, PASSED, SUSPECT, AppliedChange
from tests.fabricate import SECOND
from tests.sound_evidence import MS, SHORT, SOUND, change, failures, span, sweep


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
    (wired("overtaken", 10), wired("overtaken", 11), "wire_delay_overtaken", INVALID),
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
    assert {found[name] for name in ("wire_delay", "wire_delay_jittered", "wire_delay_overtaken", "access_rate")} == {
        0.1
    }


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
