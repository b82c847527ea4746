"""The rules of the checks: their registry, their page, and each limit from both sides, with the number written out."""

import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from metrics.checks import RULES, check_run
from metrics.checks.consistency import BROKEN, CHURN_MARGIN, IDLE, SETTLE, TOLD
from metrics.checks.evidence import Evidence, Matching, Outcome, PressureLine
from metrics.checks.rule import CheckRule, Judgement, Limit, at_most, share_at_most
from metrics.first_packets import RULES as COMPARED
from metrics.recount import Recount
from metrics.rundir import INVALID, SUSPECT, RunDir
from metrics.stalls import Late
from metrics.tables.evidence import copies_show_links, read_load
from tests.fabricate import SECOND, ZERO_NS, Fabrication
from tests.sound_evidence import MS, SHORT, SOUND, change, failures, of_run, span, sweep

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
    assert set(NAMES) - set(golden) == {"churn_executed", "captured", "wire_delay_jittered", "certificate", "clocks"}


def test_a_check_is_left_out_where_a_part_that_it_needs_is_missing() -> None:
    optional = [name for name, kind in get_type_hints(Evidence).items() if type(None) in get_args(kind)]
    assert len(optional) > 10
    made = {check.name for check in check_run(SOUND)}
    for part in optional:
        without = {check.name for check in check_run(structs.replace(SOUND, **{part: None}))}
        assert made - without == {rule.name for rule in RULES if part in rule.needs and rule.name in made}, part


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
    assert {check.name for check in check_run(SOUND)} == set(NAMES) - {"churn_executed", "captured", "certificate"}


@pytest.mark.parametrize(
    ("part", "changed", "name", "severity"),
    [
        ("traces", {"incomplete": {2: None}}, "traces_complete", "suspect"),
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
        ("captures", {"records": 89}, "conservation", "invalid"),
        ("captures", {"truncated": 1}, "capture_drops", "suspect"),
        ("captures", {"dropped": 1}, "capture_drops", "suspect"),
        ("captures", {"not_understood": 1}, "capture_drops", "suspect"),
        ("captures", {"plane_frames": 91, "plane_dropped": 1}, "capture_drops", "suspect"),
        ("delays", {"failed": 1, "worst": 0.5}, "delay_order", "invalid"),
        ("identity", {"failed": 1, "worst": 1}, "overhead_identity", "invalid"),
        ("links", {"physical": Matching(9, 1, 0)}, "link_agreement", "suspect"),
        ("links", {"physical": Matching(9, 0, 1)}, "link_agreement", "suspect"),
        ("links", {"logical": Outcome(9, 1)}, "logical_links", "suspect"),
        ("emulation", {"sweeps": None}, "certificate", "invalid"),
        ("emulation", {"first_packets": None}, "first_packet", "suspect"),
        ("emulation", {"spans": tuple(span(n, intake_counts=None) for n in range(5))}, "plane_intake", "invalid"),
        ("clocks", {"failed": 1}, "clocks", "suspect"),
        ("emulation", {"pressure": ()}, "throttled", "suspect"),
    ],
)
def test_each_fault_is_found_by_its_check_alone(part: str, changed: Any, name: str, severity: str) -> None:
    assert failures(change(SOUND, **{part: changed})) == {name: severity}


def test_a_run_without_capture_fails_only_where_one_was_asked_for() -> None:
    assert failures(change(SOUND, uncaptured=False)) == {}


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


def differing(p99_ms: float) -> dict[str, dict[str, Any]]:
    """Deliveries whose delays by traces and captures differ so much."""
    return {"inside": {"p99": p99_ms}}


def wired(kind: str, p99_ms: float) -> dict[str, dict[str, Any]]:
    """Hops whose wire delay is so far from the delay asked for."""
    return {"wire": {kind: structs.replace(SHORT, p99=p99_ms)}}


def lagging(p99_ms: float) -> dict[str, dict[str, Any]]:
    """Publications that come so late."""
    return {"publications": {"lag": structs.replace(SHORT, p99=p99_ms)}}


CASES = [
    # Change that is within the limit, change that is beyond it, the check and what that makes of the run.
    (differing(10.0), differing(10.01), "delay_agreement", SUSPECT),
    (lagging(20.0), lagging(20.01), "publish_lag", SUSPECT),
    (None, lagging(200.0), "publish_lag", SUSPECT),
    (None, lagging(200.1), "publish_lag", INVALID),
    ({"receive": {"p99": 10.0}}, {"receive": {"p99": 10.01}}, "receive_delay", SUSPECT),
    (None, {"receive": {"p99": 100.0}}, "receive_delay", SUSPECT),
    (None, {"receive": {"p99": 100.1}}, "receive_delay", INVALID),
    ({"send": {"p50": 5.0}}, {"send": {"p50": 5.01}}, "send_delay", SUSPECT),
    (None, {"send": {"p50": 50.0}}, "send_delay", SUSPECT),
    (None, {"send": {"p50": 50.1}}, "send_delay", INVALID),
    (wired("steady", 0.5), wired("steady", 0.501), "wire_delay", INVALID),
    (wired("jittered", 0.5), wired("jittered", 0.501), "wire_delay_jittered", INVALID),
    (probed("before", lost(0.001)), probed("before", lost(0.00101)), "probes_returned_before", SUSPECT),
    (None, probed("during", lost(0.01)), "probes_returned_during", SUSPECT),
    (None, probed("after", lost(0.0101)), "probes_returned_after", INVALID),
    (lines(lateness_counts=[(500_000, 9)]), lines(lateness_counts=[(500_001, 9)]), "plane_lateness", INVALID),
    (lines(intake_counts=[(500_000, 9)]), lines(intake_counts=[(500_001, 9)]), "plane_intake", INVALID),
    (lines(lateness_ns={"max": 100 * MS}), lines(lateness_ns={"max": 100 * MS + 1}), "plane_stalls", SUSPECT),
    (lines(busy_ratio=0.95), lines(busy_ratio=0.951), "plane_busy", SUSPECT),
    (silent(2.0), silent(2.001), "plane_present", INVALID),
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


@pytest.mark.parametrize("phase", ["before", "during", "after"])
def test_the_errors_of_probes_are_judged_by_phase(phase: str) -> None:
    severity = SUSPECT if phase == "during" else INVALID
    assert failures(change(SOUND, **probed(phase, sweep(of_limit=1.0)))) == {}
    expected = {f"rtt_error_p50_{phase}": severity, f"rtt_error_p99_{phase}": severity}
    assert failures(change(SOUND, **probed(phase, sweep(of_limit=1.001)))) == expected


def test_lost_probes_do_not_count_where_loss_was_asked_for() -> None:
    found = change(SOUND, emulation={"sweeps": {"before": structs.replace(lost(0.5), asked_loss_ratio=0.1)}})
    assert failures(found) == {}
    [check] = [check for check in check_run(found) if check.name.startswith("probes_returned")]
    assert (check.tested, check.worst, check.unit, check.severity) == (0, 50_000, "probes", SUSPECT)


def test_limits_that_the_experiment_sets_are_those_of_its_checks() -> None:
    tight = change(SOUND, emulation={"lateness_p99_ms": 0.04}, wire={"limit_ms": 0.1})
    assert set(failures(tight)) == {"plane_lateness", "plane_intake", "wire_delay", "wire_delay_jittered"}


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


def test_links_that_copies_do_not_show_are_not_compared() -> None:
    found = change(SOUND, links={"logical": None})
    [check] = [check for check in check_run(found) if check.name == "logical_links"]
    assert (check.tested, check.failed) == (0, 0)
    assert "nothing was compared" in check.detail


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
    assert [share_at_most(limit, [value] * 4, 0).failed for value in (3.0, 3.1)] == [0, 4]
    assert [share_at_most(limit, [4.0] * late + [0.0] * (10 - late), 0.2).failed for late in (2, 3)] == [0, 3]
    assert share_at_most(limit, [], 0).worst == 0.0


# ------------------------------------------------------------------------------------------------ the evidence


@pytest.fixture(scope="module")
def fabrication() -> Fabrication:
    return Fabrication(seed=3, nodes=5, topics=3, messages=20)


@pytest.fixture
def run(fabrication: Fabrication, tmp_path: Path) -> RunDir:
    return RunDir(fabrication.write(tmp_path / "run"))


def test_the_documents_of_a_run_are_read_as_they_are(run: RunDir, fabrication: Fabrication) -> None:
    found = of_run(run, fabrication).emulation
    assert found is not None and found.sweeps is not None
    sent = dict.fromkeys(("before", "during", "after"), 40)
    assert {phase: each.sent for phase, each in found.sweeps.items()} == sent
    errors = found.sweeps["before"].errors
    assert (errors["p99"].limit_ms, errors["p99"].limit_ratio, errors["p50"].probes) == (1.5, 0.01, 20)
    assert 0 < errors["p50"].ms < errors["p99"].ms < 0.2
    assert len(found.pressure) == 11
    assert found.judged_ns == run.judged_ns


def test_a_run_without_its_files_has_parts_that_say_so(run: RunDir, fabrication: Fabrication) -> None:
    for name in ("achieved.parquet", "first_packets.parquet"):
        (run.path / name).unlink()
    found = of_run(run, fabrication)
    assert found.emulation is not None
    assert found.emulation.sweeps is None
    assert found.emulation.first_packets is None
    assert failures(found) == {"certificate": INVALID}


def test_seconds_outside_the_workload_and_the_cool_down_do_not_count(run: RunDir) -> None:
    """The workload begins at ``ZERO_NS``, the cool-down ends 7 s later."""
    rows = [
        {"at_ns": ZERO_NS + second * SECOND, "cpu_busy_ratio": ratio, "steal_ratio": None}
        for second, ratio in ((-1, 0.9), (0, 0.1), (3, None), (6, 0.2), (7, 0.9))
    ]
    types = [("at_ns", pa.int64()), ("cpu_busy_ratio", pa.float64()), ("steal_ratio", pa.float64())]
    run.tables.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), run.tables / "fidelity.parquet")
    assert read_load(run) == ((0.1, 0.2), ())
    silent_rows = [row | {"cpu_busy_ratio": None} for row in rows]
    pq.write_table(pa.Table.from_pylist(silent_rows, pa.schema(types)), run.tables / "fidelity.parquet")
    assert read_load(run) == (None, None)


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ({"dissemination": {"name": "flood"}}, True),
        ({"dissemination": {"name": "topic-flood"}, "interests": "private"}, True),
        ({"dissemination": {"name": "flood"}, "interests": "private"}, False),
        ({"dissemination": {"name": "mesh"}}, False),
        ({"dissemination": {"name": "flood"}, "behaviour": {"name": "asker"}}, False),
    ],
)
def test_copies_show_links_where_all_honest_nodes_flood_along_them(
    run: RunDir, node: dict[str, Any], shown: bool
) -> None:
    (run.path / "overlay.json").write_text(json.dumps({"nodes": [{"dissemination": {"name": "flood"}}, node]}))
    assert copies_show_links(run) is shown


@pytest.mark.parametrize(("topics", "shown"), [(1, True), (2, False)])
def test_copies_on_several_topics_do_not_show_links(run: RunDir, topics: int, shown: bool) -> None:
    plan = json.loads((run.path / "plan.json").read_bytes())
    plan["experiment"]["workload"]["topics_per_message"] = topics
    (run.path / "plan.json").write_text(json.dumps(plan))
    node = {"dissemination": {"name": "topic-flood", "whole": True}}
    (run.path / "overlay.json").write_text(json.dumps({"nodes": [node]}))
    assert copies_show_links(run) is shown


@pytest.mark.parametrize(
    ("judged", "detail"),
    [
        (
            Judgement(1, 0, 0.3, Limit(0.5, "ms"), "p99 0.3 ms", Late(1200, 3), 10),
            "p99 0.3 ms; {} 3 of 1,200 late hops",
        ),
        (Judgement(1, 0, 0.3, Limit(0.5, "ms"), "", Late(2, 1), 10), "{} 1 of 2 late hops"),
        (Judgement(1, 0, 0.3, Limit(0.5, "ms"), "p99 0.3 ms", Late(0, 0), 10), "p99 0.3 ms"),
    ],
)
def test_a_check_says_how_much_stalls_explain(judged: Judgement, detail: str) -> None:
    check = CheckRule("wire_delay", "certificate", INVALID, lambda: judged, things="hops").check(None)
    assert check is not None and judged.late is not None
    assert check.detail == detail.format("stalls of the host explain")
    assert (check.late, check.explained, check.allowed, check.failed) == (*judged.late, 10, 0)


def test_stalls_change_no_verdict() -> None:
    """What they explain is in the detail, and in ``explained``."""
    late = change(SOUND, receive={"p99": 20.0, "late": Late(40, 40)})
    assert failures(late) == {"receive_delay": SUSPECT}
    [check] = [check for check in check_run(late) if check.name == "receive_delay"]
    assert (check.late, check.explained, check.allowed) == (40, 40, 10)
    assert check.detail.endswith("stalls of the host explain 40 of 40 late frames")
