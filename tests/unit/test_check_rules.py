"""The rules of the checks: their registry, their page, and each limit from both sides, with the number written out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

sys.path.insert(0, str(Path(__file__).parents[1]))
from fabricate import SECOND, ZERO_NS, Fabrication
from sound_evidence import MS, SOUND, change, failures, of_run, span, sweep

from metrics.checks import RULES, Evidence, check_run, evidence
from metrics.checks.documents import FirstPackets, PressureLine, Probes, copies_show_links
from metrics.checks.evidence import IncompleteTrace
from metrics.checks.execution import CHURN_MARGIN
from metrics.checks.links import BROKEN, IDLE, SETTLE, WORD
from metrics.checks.page import PAGE, fill
from metrics.checks.rule import Limit, allowed_beyond, at_most, each_at_most
from metrics.rundata import INVALID, SUSPECT, RunDir
from metrics.stalls import Late
from metrics.tables.evidence import _load

GOLDEN = Path(__file__).parents[1] / "golden" / "fabricated-summary.json"
NAMES = [rule.name for rule in RULES]

# ------------------------------------------------------------------------------------------------ the registry


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES) > 40


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_says_what_it_needs_and_why_it_is_made(rule: Any) -> None:
    parts, needed = get_type_hints(Evidence), get_type_hints(rule.judge)
    del needed["return"]
    assert tuple(needed) == rule.needs != ()
    for name, kind in needed.items():
        assert kind == parts[name] or kind in get_args(parts[name]), f"the part {name} is no {kind}"
    assert rule.severity in (INVALID, SUSPECT)
    assert rule.why.endswith(".")
    assert "{" not in rule.fails_if
    assert all(f"{{{number}}}" in rule.condition for number in range(len(rule.limits))), "each limit is named"
    assert all(str(limit) in rule.fails_if for limit in rule.limits)
    assert not rule.grave or rule.severity == SUSPECT


def test_rules_that_share_a_row_of_the_page_say_the_same_there() -> None:
    for row in {rule.row for rule in RULES}:
        those = [rule for rule in RULES if rule.row == row]
        assert len({(rule.section, rule.fails_if, rule.why, rule.grave, rule.samples) for rule in those}) == 1, row


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


def test_the_page_is_up_to_date() -> None:
    committed = PAGE.read_text(encoding="utf-8")
    assert committed == fill(committed), "run: python -m metrics.checks.page"


def test_the_page_has_every_rule() -> None:
    rows = re.findall(r"^\| `([\w*]+)` \| .* \| (?:invalid|suspect)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted({rule.row for rule in RULES})
    for rule in RULES:
        assert re.fullmatch(rule.row.replace("*", r"\w+"), rule.name)


@pytest.mark.parametrize("broken", ["", "<!-- table: overload -->\n\n\n\n<!-- end of table -->"])
def test_a_page_without_places_for_the_tables_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match="places for the tables"):
        fill(broken)


# ------------------------------------------------------------------------------------------------ judgements


def test_checks_of_a_sound_run_all_hold() -> None:
    assert failures(SOUND) == {}
    assert {check.name for check in check_run(SOUND)} == set(NAMES) - {"churn_executed", "captured", "certificate"}


@pytest.mark.parametrize(
    ("part", "fields", "name", "severity"),
    [
        ("traces", {"incomplete": (IncompleteTrace(2, None),)}, "traces_complete", "suspect"),
        ("publications", {"messages": 19, "with_schedule": 19}, "schedule_executed", "invalid"),
        ("deliveries", {"rows": 61}, "delivery_rows", "invalid"),
        ("order", {"failed": 1, "worst_ns": 5000}, "causal_order", "invalid"),
        ("frames", {"unread": 1}, "frames_arrived", "suspect"),
        ("traces", {"dropped": {"queue_full": 2}}, "frames_kept", "suspect"),
        ("traces", {"changes": 1}, "churn_executed", "invalid"),
        ("capture", {"found": False}, "captured", "invalid"),
        ("frame_sets", {"sent_unseen": 1}, "frame_sets", "suspect"),
        ("frame_sets", {"read_unseen": 1}, "frame_sets", "suspect"),
        ("frame_sets", {"seen_unsent": 1}, "frame_sets", "suspect"),
        ("frame_sets", {"read_unsent": 1}, "frame_sets", "suspect"),
        ("coverage", {"failed": 1, "worst_bytes": 3}, "stream_coverage", "suspect"),
        ("connections", {"only_traced": 1}, "connections", "suspect"),
        ("connections", {"only_on_wire": 1}, "connections", "suspect"),
        ("captures", {"records": 89}, "conservation", "invalid"),
        ("captures", {"truncated": 1}, "capture_drops", "suspect"),
        ("captures", {"dropped": 1}, "capture_drops", "suspect"),
        ("captures", {"not_understood": 1}, "capture_drops", "suspect"),
        ("captures", {"plane_frames": 91, "plane_dropped": 1}, "capture_drops", "suspect"),
        ("agreement", {"negative": 1, "most_negative_ms": 0.5}, "delay_order", "invalid"),
        ("agreement", {"before_publication": 1}, "delay_order", "invalid"),
        ("identity", {"failed": 1, "worst_bytes": 1}, "overhead_identity", "invalid"),
        ("links", {"physical": evidence.PhysicalLinks(9, 1, 0, 0)}, "link_agreement", "suspect"),
        ("links", {"physical": evidence.PhysicalLinks(9, 0, 1, 0)}, "link_agreement", "suspect"),
        ("links", {"logical": evidence.LogicalLinks(9, 1)}, "logical_links", "suspect"),
        ("probes", {"sweeps": None}, "certificate", "invalid"),
        ("first_packets", {"attempts": None}, "first_packet", "suspect"),
        ("plane", {"spans": tuple(span(n, intake_counts=None) for n in range(5))}, "plane_intake", "invalid"),
        ("clocks", {"unresolved": 1}, "clocks", "suspect"),
        ("pressure", {"lines": ()}, "throttled", "suspect"),
    ],
)
def test_each_fault_is_found_by_its_check_alone(part: str, fields: dict[str, Any], name: str, severity: str) -> None:
    assert failures(change(SOUND, **{part: fields})) == {name: severity}


def test_a_run_without_capture_fails_only_where_one_was_asked_for() -> None:
    assert failures(change(SOUND, capture={"found": False, "wanted": False})) == {}


def probed(phase: str, found: Any) -> dict[str, dict[str, Any]]:
    """A change of the probes of one phase."""
    assert SOUND.probes is not None and SOUND.probes.sweeps is not None
    return {"probes": {"sweeps": SOUND.probes.sweeps | {phase: found}}}


def lost(ratio: float) -> Any:
    """A sweep of 100,000 probes of which so many were lost."""
    return structs.replace(sweep(), sent=100_000, received=100_000 - round(100_000 * ratio))


def lines(**changes: Any) -> dict[str, dict[str, Any]]:
    """Every line of the data plane with other values."""
    return {"plane": {"spans": tuple(span(second, **changes) for second in range(5))}}


def silent(seconds: float) -> dict[str, dict[str, Any]]:
    """A data plane that wrote nothing for so long, and a line per second before and after."""
    instants = [0, 0.5, 0.5 + seconds, 3.5, 4]
    spans = tuple(structs.replace(span(0), at_ns=round(at_s * SECOND)) for at_s in instants)
    return {"plane": {"spans": spans}}


def throttled(last_s: float) -> dict[str, dict[str, Any]]:
    """Quotas whose last line is so many seconds before the end of the judged span."""
    return {"pressure": {"lines": (PressureLine(0), PressureLine(round((4 - last_s) * SECOND)))}}


def busy(field: str, ratio: float, seconds: int) -> dict[str, dict[str, Any]]:
    """A share of the processors' time in some of 100 seconds of the workload."""
    return {"load": {field: (ratio,) * seconds + (0.0,) * (100 - seconds)}}


def differing(p99_ms: float) -> dict[str, dict[str, Any]]:
    """Deliveries whose delays by traces and captures differ so much."""
    return {"agreement": {"difference_ms_p99": p99_ms}}


def wired(kind: str, p99_ms: float) -> dict[str, dict[str, Any]]:
    """Hops whose wire delay is so far from the delay asked for."""
    return {"wire": {kind: evidence.HopErrors(1000, 0.1, p99_ms, p99_ms, Late(0, 0))}}


CASES = [
    # Change that is within the limit, change that is beyond it, the check and what that makes of the run.
    (differing(10.0), differing(10.01), "delay_agreement", SUSPECT),
    ({"publications": {"lag_ms_p99": 20.0}}, {"publications": {"lag_ms_p99": 20.01}}, "publish_lag", SUSPECT),
    (None, {"publications": {"lag_ms_p99": 200.0}}, "publish_lag", SUSPECT),
    (None, {"publications": {"lag_ms_p99": 200.1}}, "publish_lag", INVALID),
    ({"hosts": {"receive_ms_p99": 10.0}}, {"hosts": {"receive_ms_p99": 10.01}}, "receive_delay", SUSPECT),
    (None, {"hosts": {"receive_ms_p99": 100.0}}, "receive_delay", SUSPECT),
    (None, {"hosts": {"receive_ms_p99": 100.1}}, "receive_delay", INVALID),
    ({"hosts": {"send_ms_p50": 5.0}}, {"hosts": {"send_ms_p50": 5.01}}, "send_delay", SUSPECT),
    (None, {"hosts": {"send_ms_p50": 50.0}}, "send_delay", SUSPECT),
    (None, {"hosts": {"send_ms_p50": 50.1}}, "send_delay", INVALID),
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
    (busy("cpu_busy", 0.95, 11), busy("cpu_busy", 0.951, 11), "cpu_busy", SUSPECT),
    (busy("cpu_busy", 1.0, 10), busy("cpu_busy", 1.0, 11), "cpu_busy", SUSPECT),
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
    found = change(SOUND, probes={"sweeps": {"before": lost(0.5)}, "asked_loss_ratio": 0.1})
    assert failures(found) == {}
    [check] = [check for check in check_run(found) if check.name.startswith("probes_returned")]
    assert (check.tested, check.worst, check.unit, check.severity) == (0, 50_000, "probes", SUSPECT)


def test_limits_that_the_experiment_sets_are_those_of_its_checks() -> None:
    tight = change(SOUND, limits={"lateness_p99_ms": 0.04, "wire_error_p99_ms": 0.1})
    assert set(failures(tight)) == {"plane_lateness", "plane_intake", "wire_delay", "wire_delay_jittered"}


@pytest.mark.parametrize(("rows", "uncertain", "fails"), [(62, 2, False), (63, 2, True), (58, 2, False), (57, 2, True)])
def test_deliveries_may_be_off_by_what_the_documents_leave_open(rows: int, uncertain: int, fails: bool) -> None:
    found = change(SOUND, deliveries={"rows": rows, "uncertain": uncertain})
    assert ("delivery_rows" in failures(found)) is fails


@pytest.mark.parametrize(
    "changes",
    [
        {"traces": {"incomplete": (IncompleteTrace(2, 7),)}},
        {"publications": {"messages": 21}},
        {"publications": {"messages": 19, "with_schedule": 19}},
    ],
)
def test_deliveries_of_a_run_that_is_not_as_planned_are_those_of_the_traces(changes: dict[str, Any]) -> None:
    """Then the recount, which knows the plan alone, expects what cannot be there."""
    found = change(SOUND, **{"deliveries": {"expected": 99}, **changes})
    assert "delivery_rows" in failures(change(SOUND, deliveries={"expected": 99}))
    assert "delivery_rows" not in failures(found)


def test_links_that_copies_do_not_show_are_not_compared() -> None:
    found = change(SOUND, links={"logical": None})
    [check] = [check for check in check_run(found) if check.name == "logical_links"]
    assert (check.tested, check.failed) == (0, 0)
    assert "nothing was compared" in check.detail


def test_limits_of_evidence_have_their_values() -> None:
    """No judge compares them: they bound what the tables count."""
    assert (IDLE.ns, SETTLE.ns, BROKEN.ns, WORD.ns) == (2 * SECOND, 100 * MS, 60 * SECOND, 2 * SECOND)
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


@pytest.mark.parametrize("samples", [0, 1, 99, 100, 199, 200, 12_345_678])
def test_one_sample_in_a_hundred_may_exceed_a_99th_percentile(samples: int) -> None:
    assert allowed_beyond(samples) == samples // 100
    assert allowed_beyond(samples, 0.5) == samples // 2


def test_a_value_at_its_limit_passes() -> None:
    limit = Limit(3.0, "ms")
    assert [at_most(limit, value, 9, "").failed for value in (2.9, 3.0, 3.1)] == [0, 0, 1]
    assert [each_at_most(limit, [value] * 4).failed for value in (3.0, 3.1)] == [0, 4]
    assert [each_at_most(limit, [4.0] * late + [0.0] * (10 - late), share=0.2).failed for late in (2, 3)] == [0, 3]
    assert each_at_most(limit, []).worst == 0.0


# ------------------------------------------------------------------------------------------------ the evidence


@pytest.fixture(scope="module")
def fabrication() -> Fabrication:
    return Fabrication(seed=3, nodes=5, topics=3, messages=20)


@pytest.fixture
def run(fabrication: Fabrication, tmp_path: Path) -> RunDir:
    return RunDir(fabrication.write(tmp_path / "run"))


def test_the_documents_of_a_run_are_read_as_they_are(run: RunDir, fabrication: Fabrication) -> None:
    found = of_run(run, fabrication)
    assert (found.schedule.publications, found.schedule.changes) == (20, 0)
    assert (found.capture.wanted, found.capture.found) == (True, True)
    assert found.probes is not None and found.probes.sweeps is not None
    assert {phase: each.sent for phase, each in found.probes.sweeps.items()} == dict.fromkeys(
        ("before", "during", "after"), 40
    )
    errors = found.probes.sweeps["before"].errors
    assert (errors["p99"].limit_ms, errors["p99"].limit_ratio, errors["p50"].probes) == (1.5, 0.01, 20)
    assert 0 < errors["p50"].ms < errors["p99"].ms < 0.2
    assert found.pressure is not None and len(found.pressure.lines) == 11


def test_a_run_without_its_files_has_parts_that_say_so(run: RunDir, fabrication: Fabrication) -> None:
    for name in ("achieved.parquet", "first_packets.parquet", "capture/plane.pcapng"):
        (run.path / name).unlink()
    found = of_run(run, fabrication)
    assert found.probes == Probes(None, 0.0)
    assert found.first_packets == FirstPackets(None)
    assert not found.capture.found


def test_seconds_outside_the_workload_and_the_cool_down_do_not_count(run: RunDir) -> None:
    """The workload begins at ``ZERO_NS``, the cool-down ends 7 s later."""
    rows = [
        {"at_ns": ZERO_NS + second * SECOND, "cpu_busy_ratio": ratio, "steal_ratio": None}
        for second, ratio in ((-1, 0.9), (0, 0.1), (3, None), (6, 0.2), (7, 0.9))
    ]
    types = [("at_ns", pa.int64()), ("cpu_busy_ratio", pa.float64()), ("steal_ratio", pa.float64())]
    run.tables.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), run.tables / "fidelity.parquet")
    found = _load(run)
    assert found is not None
    assert (found.cpu_busy, found.steal) == ((0.1, 0.2), ())
    silent_rows = [row | {"cpu_busy_ratio": None} for row in rows]
    pq.write_table(pa.Table.from_pylist(silent_rows, pa.schema(types)), run.tables / "fidelity.parquet")
    assert _load(run) is None


@pytest.mark.parametrize(
    ("node", "several", "shown"),
    [
        ({"dissemination": {"name": "flood"}}, False, True),
        ({"dissemination": {"name": "topic-flood"}, "interests": "silent"}, True, True),
        ({"dissemination": {"name": "topic-flood", "whole": True}}, True, False),
        ({"dissemination": {"name": "topic-flood", "whole": True}}, False, True),
        ({"dissemination": {"name": "flood"}, "interests": "silent"}, False, False),
        ({"dissemination": {"name": "flood", "ttl": 0}, "interests": "silent"}, False, True),
        ({"dissemination": {"name": "mesh"}}, False, False),
        ({"dissemination": {"name": "flood"}, "behaviour": {"name": "asker"}}, False, False),
    ],
)
def test_copies_show_links_where_all_nodes_flood_along_them(
    run: RunDir, node: dict[str, Any], several: bool, shown: bool
) -> None:
    plan = json.loads((run.path / "plan.json").read_bytes())
    plan["experiment"]["workload"]["topics_per_message"] = 2 if several else 1
    (run.path / "plan.json").write_text(json.dumps(plan))
    (run.path / "overlay.json").write_text(json.dumps({"nodes": [{"dissemination": {"name": "flood"}}, node]}))
    assert copies_show_links(run) is shown


def test_stalls_change_no_verdict() -> None:
    """What they explain is in the detail, and in ``explained``."""
    late = change(SOUND, hosts={"receive_ms_p99": 20.0, "late": Late(40, 40)})
    assert failures(late) == {"receive_delay": SUSPECT}
    [check] = [check for check in check_run(late) if check.name == "receive_delay"]
    assert (check.late, check.explained, check.allowed) == (40, 40, 10)
    assert check.detail.endswith("stalls of the host explain 40 of 40 late frames")
