"""The invariants that a run's tables must keep, judged from a few numbers over them. docs/verdict.md explains each."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, field

from metrics.recount import count_changes, recount
from metrics.rundata import INVALID, SUSPECT, Check, RunDir
from metrics.stalls import blame
from peer.protocols.registry import copies_follow_links

JITTER_SIGMAS = 3.0
"""Where jitter was asked for, a delay within this many standard deviations of the mean is no error."""

DELAY_AGREEMENT_P99_MS = 10.0
"""Acceptable 99th percentile of (delay by the traces - delay by the captures), the time spent inside two hosts."""


MARGIN_MS = 100.0
"""Where nodes come and go: two scheduled instants closer than this, or than the latest publication was late, may have
changed places in the run."""


class Evidence(Struct, frozen=True):
    """Numbers over the tables (``metrics.tables.evidence``). A part is empty where the run has nothing of the kind."""

    traces: dict[int, dict[str, Any]]
    incomplete: list[int]
    captured: bool
    hops: dict[str, Any]
    wire: dict[str, Any]
    coverage: dict[str, Any]
    captures: dict[str, Any]
    deliveries: dict[str, Any]
    messages: dict[str, Any]
    overhead: dict[str, Any]
    conns: dict[str, Any]
    dropped_frames: dict[str, int] = field(default_factory=dict)
    member_changes: int = 0
    links: dict[str, dict[str, Any]] = field(default_factory=dict)


def is_complete(state: dict[str, Any] | None) -> bool:
    """Whether a trace has only whole lines and ends with a ``stop`` that counts the lines before it."""
    if state is None or state["records"] is None or state["corrupt"]:
        return False
    return bool(state["records"] == state["lines"] - 1)


def check_consistency(run: RunDir, evidence: Evidence) -> list[Check]:
    """Every invariant between logs, captures and tables."""
    checks = [_traces(run, evidence), _published(run, evidence), _delivery_rows(run, evidence), _causal_order(evidence)]
    checks += [_frames_arrived(evidence), _frames_kept(evidence), *_churn(run, evidence)]
    if not evidence.captured:
        wanted = bool(run.experiment.get("capture", {}).get("enabled", False)) and run.manifest.testbed == "emulated"
        missing = "no capture file in the run directory: nothing was checked on the wire"
        return [*checks, _check("captured", 1, int(wanted), 0, 0, "", INVALID, missing)]
    checks += [_frame_sets(evidence), _coverage(evidence), _connections(evidence), _conservation(run, evidence)]
    checks += [
        _capture_drops(run, evidence),
        _delay_order(evidence),
        _delay_agreement(evidence),
        *_wire_delay(run, evidence),
    ]
    return [*checks, _overhead(evidence), *_links(run, evidence)]


def _check(
    name: str,
    tested: int | None,
    failed: int | None,
    worst: float | None,
    tolerance: float,
    unit: str,
    severity: str,
    detail: str = "",
) -> Check:
    return Check(name, int(tested or 0), int(failed or 0), float(worst or 0), float(tolerance), unit, severity, detail)


def _listed(items: list[str]) -> str:
    return ", ".join(items[:5]) + (f" and {len(items) - 5} more" if len(items) > 5 else "")


def _traces(run: RunDir, evidence: Evidence) -> Check:
    lines = []
    for node in evidence.incomplete:
        state = evidence.traces.get(node)
        if state is None:
            lines.append(f"trace/{node}.jsonl is missing or empty")
        else:
            lines.append(f"trace/{node}.jsonl was cut off after {state['lines']:,} lines")
    worst = len(evidence.incomplete) / max(len(run.nodes), 1)
    return _check("traces_complete", len(run.nodes), len(lines), worst, 0, "ratio", SUSPECT, _listed(lines))


def _published(run: RunDir, evidence: Evidence) -> Check:
    scheduled = sum(1 for action in run.lines("schedule.jsonl") if action["action"] == "publish")
    missing = scheduled - (evidence.messages["with_schedule"] or 0)
    detail = f"{missing:,} of {scheduled:,} scheduled messages were never published" if missing else ""
    return _check("schedule_executed", scheduled, missing, missing, 0, "messages", INVALID, detail)


def _delivery_rows(run: RunDir, evidence: Evidence) -> Check:
    """Delivered and undelivered rows against the subscribers counted anew, from the documents alone."""
    rows = evidence.deliveries["rows"]
    margin_ms = max(MARGIN_MS, evidence.messages["lag_ms_max"] or 0)
    counted = recount(run, round(margin_ms * 1e6))
    expected, tolerance = counted if not evidence.incomplete else (evidence.messages["subscribers"], 0)
    unpublished = (
        evidence.messages["messages"] != evidence.messages["with_schedule"] or _published(run, evidence).failed
    )
    if unpublished:
        expected, tolerance = evidence.messages["subscribers"], 0
    wrong = abs(rows - expected)
    detail = f"{rows:,} rows for {expected:,} expected deliveries" if wrong else ""
    failed = wrong if wrong > tolerance else 0
    return _check("delivery_rows", expected, failed, wrong, tolerance, "rows", INVALID, detail)


def _churn(run: RunDir, evidence: Evidence) -> list[Check]:
    """Joins and leaves in the traces against those of the schedule; nothing to check where neither has any."""
    scheduled, traced = count_changes(run), evidence.member_changes
    if evidence.incomplete or not (scheduled or traced):
        return []
    wrong = abs(scheduled - traced)
    detail = f"{traced:,} joins and leaves were traced, the schedule asks for {scheduled:,}" if wrong else ""
    return [_check("churn_executed", scheduled, wrong, wrong, 0, "changes", INVALID, detail)]


def _causal_order(evidence: Evidence) -> Check:
    hops = evidence.hops
    worst_ms = (hops["order_worst_ns"] or 0) / 1e6
    return _check("causal_order", hops["order_tested"], hops["order_failed"], worst_ms, 0, "ms", INVALID)


def _frames_arrived(evidence: Evidence) -> Check:
    hops = evidence.hops
    unread = hops["frames_unread"] or 0
    detail = (
        f"{unread:,} of {hops['frames_sent']:,} sent frames were never read: they were still queued, or lost"
        if unread
        else ""
    )
    return _check("frames_arrived", hops["frames_sent"], unread, unread, 0, "frames", SUSPECT, detail)


def _frames_kept(evidence: Evidence) -> Check:
    lost = sum(evidence.dropped_frames.values())
    detail = ", ".join(f"{count:,} {reason}" for reason, count in sorted(evidence.dropped_frames.items()))
    return _check("frames_kept", (evidence.hops["frames_sent"] or 0) + lost, lost, lost, 0, "frames", SUSPECT, detail)


def _frame_sets(evidence: Evidence) -> Check:
    hops = evidence.hops
    parts = {
        "sent by a trace but not on the wire": hops["sent_unseen"],
        "read by a trace but not on the wire": hops["read_unseen"],
        "on the wire but sent by no trace": hops["seen_unsent"],
        "read but never sent": hops["read_unsent"],
    }
    failed = sum(parts.values())
    detail = "; ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    return _check("frame_sets", hops["sets_tested"], failed, failed, 0, "frames", SUSPECT, detail)


def _coverage(evidence: Evidence) -> Check:
    found = evidence.coverage
    detail = f"{found['covered_bytes'] or 0:,} stream bytes, counted at both ends"
    worst = found["coverage_worst_bytes"]
    return _check(
        "stream_coverage", found["coverage_tested"], found["coverage_failed"], worst, 0, "bytes", SUSPECT, detail
    )


def _connections(evidence: Evidence) -> Check:
    found = evidence.conns
    failed = found["only_traced"] + found["only_on_wire"]
    detail = f"{found['only_traced']} only in traces, {found['only_on_wire']} only on the wire" if failed else ""
    return _check("connections", found["connections"], failed, failed, 0, "connections", SUSPECT, detail)


def _conservation(run: RunDir, evidence: Evidence) -> Check:
    counters, records = run.manifest.counters, evidence.captures["records"]
    if "frames_in" not in counters:
        return _check(
            "conservation", 0, 0, 0, 0, "frames", INVALID, "the manifest has no count of the data plane's frames"
        )
    counted = counters["frames_in"] + counters["frames_out"]
    wrong = abs(counted - counters.get("records_dropped", 0) - records)
    detail = f"the data plane counted {counted:,} frames, the captures have {records:,} records"
    return _check("conservation", counted, wrong, wrong, 0, "frames", INVALID, detail)


def _capture_drops(run: RunDir, evidence: Evidence) -> Check:
    found = evidence.captures
    dropped = max(run.manifest.counters.get("records_dropped", 0), found["dropped"])
    failed = dropped + found["truncated"] + found["not_understood"]
    detail = f"{dropped:,} records dropped, {found['truncated']} files cut off"
    detail += f", {found['not_understood']:,} packets not understood"
    return _check(
        "capture_drops", found["records"] + dropped, failed, failed, 0, "records", SUSPECT, detail if failed else ""
    )


def _delay_order(evidence: Evidence) -> Check:
    found = evidence.deliveries
    failed = (found["negative"] or 0) + (found["before_publication"] or 0)
    return _check("delay_order", found["both"], failed, max(found["most_negative_ms"] or 0, 0), 0, "ms", INVALID)


def _delay_agreement(evidence: Evidence) -> Check:
    found = evidence.deliveries
    p99 = found["difference_ms_p99"] or 0
    failed = int(p99 > DELAY_AGREEMENT_P99_MS)
    p50 = found["difference_ms_p50"] or 0
    detail = f"delay by the traces less delay by the captures: median {p50:.3g} ms, p99 {p99:.3g} ms"
    check = _check("delay_agreement", found["both"], failed, p99, DELAY_AGREEMENT_P99_MS, "ms", SUSPECT, detail)
    return blame(check, found["difference_late"], found["difference_explained"], found["both"] // 100, "deliveries")


def _wire_delay(run: RunDir, evidence: Evidence) -> list[Check]:
    found, limit = evidence.wire, float(run.experiment["verdict"]["wire_error_p99_ms"])
    notes = {"steady": "", "jittered": f" beyond {JITTER_SIGMAS:g} standard deviations of the jitter asked for"}
    checks = []
    for name, note in notes.items():
        tested, p99 = found[f"{name}_tested"], found[f"{name}_ms_p99"] or 0
        if name == "jittered" and not tested:
            continue
        p50, largest = found[f"{name}_ms_p50"] or 0, found[f"{name}_ms_max"] or 0
        detail = f"p50 {p50:.3g} ms, p99 {p99:.3g} ms, largest {largest:.3g} ms{note}"
        if name == "jittered" and found["jitter_sigmas_std"] is not None:
            detail += f"; the deviations' own spread is {found['jitter_sigmas_std']:.2f} of it"
        if not tested:
            detail = "no hop without retransmission, jitter and access rate"
        title = "wire_delay" if name == "steady" else "wire_delay_jittered"
        check = _check(title, tested, int(p99 > limit), p99, limit, "ms", INVALID, detail)
        allowed = max(tested // 100, int(tested > 1))
        checks.append(blame(check, found[f"{name}_late"], found[f"{name}_explained"], allowed, "hops"))
    return checks


def _overhead(evidence: Evidence) -> Check:
    found = evidence.overhead
    detail = f"{found['wire_bytes'] or 0:,} bytes on the wire in eight classes"
    worst = found["identity_worst_bytes"]
    return _check(
        "overhead_identity", found["identity_tested"], found["identity_failed"], worst, 0, "bytes", INVALID, detail
    )


def _links(run: RunDir, evidence: Evidence) -> list[Check]:
    """The links of the traces against those that the captures show (``metrics.tables.agreement``)."""
    if not evidence.links:
        return []
    found, shown = evidence.links["physical"], evidence.links["logical"]
    failed = found["only_on_wire"] + found["only_traced"]
    detail = f"{found['changing']:,} traced ones were just beginning, ending or breaking on the wire"
    if failed:
        detail += f"; {found['only_on_wire']:,} only on the wire, {found['only_traced']:,} only in traces"
    checks = [_check("link_agreement", found["tested"], failed, failed, 0, "links", SUSPECT, detail)]
    if not _copies_show_links(run):
        aside = "here nodes send copies also where there is no logical link: nothing was compared"
        return [*checks, _check("logical_links", 0, 0, 0, 0, "links", SUSPECT, aside)]
    wrong = shown["failed"]
    detail = f"{wrong:,} logical links in use on the wire were in no trace" if wrong else ""
    return [*checks, _check("logical_links", shown["tested"], wrong, wrong, 0, "links", SUSPECT, detail)]


def _copies_show_links(run: RunDir) -> bool:
    """Whether a copy between two subscribers of its topic travels on a logical link alone, as the disseminations say.

    Adversaries may do otherwise.
    """
    nodes = json.loads((run.path / "overlay.json").read_bytes())["nodes"]
    several = run.experiment["workload"]["topics_per_message"] > 1
    return all(
        copies_follow_links(node["dissemination"], node.get("interests", "announced"), several=several)
        and not node.get("behaviour")
        for node in nodes
    )
