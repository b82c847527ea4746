"""Was the plan carried out, and do the traces hold together?"""

from __future__ import annotations

from metrics.checks.documents import ScheduleCounts
from metrics.checks.evidence import DeliveryCounts, FrameCounts, HopOrder, Publications, TraceCounts
from metrics.checks.rule import Judgement, Limit, none_of, rule
from metrics.rundata import INVALID, SUSPECT

CHURN_MARGIN = Limit(100.0, "ms")
"""Where nodes come and go: two scheduled instants closer than this, or than the latest publication was late, may have
changed places in the run."""

_LISTED = 5


@rule(
    "a peer's trace is missing, has a broken line, or does not end with a `stop` that counts its lines",
    SUSPECT,
    "consistency",
)
def traces_complete(traces: TraceCounts) -> Judgement:
    """The rest is analysed; checks that need both ends leave these peers out."""
    lines = [
        f"trace/{trace.node}.jsonl is missing or empty"
        if trace.lines is None
        else f"trace/{trace.node}.jsonl was cut off after {trace.lines:,} lines"
        for trace in traces.incomplete
    ]
    detail = ", ".join(lines[:_LISTED]) + (f" and {len(lines) - _LISTED} more" if len(lines) > _LISTED else "")
    return none_of(traces.nodes, len(lines), "ratio", detail, len(lines) / max(traces.nodes, 1))


@rule("a scheduled message was never published", INVALID, "consistency")
def schedule_executed(schedule: ScheduleCounts, publications: Publications) -> Judgement:
    """The run is not the experiment that was planned."""
    missing = schedule.publications - publications.with_schedule
    detail = f"{missing:,} of {schedule.publications:,} scheduled messages were never published" if missing else ""
    return none_of(schedule.publications, missing, "messages", detail)


@rule(
    "`deliveries` has not exactly the rows that subscriptions and schedule, counted anew without Spark, call for. "
    "Under churn the count may be off by the pairs whose node joined, left or changed its subscription within {0} "
    "(or the longest publication lag) of the publication",
    INVALID,
    "consistency",
    limits=(CHURN_MARGIN,),
)
def delivery_rows(
    deliveries: DeliveryCounts, publications: Publications, schedule: ScheduleCounts, traces: TraceCounts
) -> Judgement:
    """Where a change is so close to a publication, the schedule cannot say which came first."""
    expected, tolerance = deliveries.expected, deliveries.uncertain
    matched = publications.messages == publications.with_schedule == schedule.publications
    if traces.incomplete or not matched:
        expected, tolerance = publications.subscribers, 0
    wrong = abs(deliveries.rows - expected)
    detail = f"{deliveries.rows:,} rows for {expected:,} expected deliveries" if wrong else ""
    return Judgement(expected, wrong if wrong > tolerance else 0, wrong, Limit(tolerance, "rows"), detail)


@rule(
    "anywhere log_send <= tap_tx <= tap_rx <= log_recv does not hold. Between machines with clocks of their own, an "
    "instant may be early by as much as these are unsure; `worst` is what exceeds that",
    INVALID,
    "consistency",
)
def causal_order(order: HopOrder) -> Judgement:
    """There is one clock, so the tolerance is 0."""
    return none_of(order.tested, order.failed, "ms", worst=order.worst_ns / 1e6)


@rule("a frame was sent and never read", SUSPECT, "consistency")
def frames_arrived(frames: FrameCounts) -> Judgement:
    """It was still queued when the run ended, since queues did not drain in the cool-down, or lost with its connection.

    Connections that a scheduled crash broke are left out here, in `frame_sets`, `stream_coverage` and `connections`.
    """
    detail = f"{frames.unread:,} of {frames.sent:,} sent frames were never read: they were still queued, or lost"
    return none_of(frames.sent, frames.unread, "frames", detail if frames.unread else "")


@rule("a peer dropped a frame instead of sending it (full send queue, no link)", SUSPECT, "consistency")
def frames_kept(frames: FrameCounts, traces: TraceCounts) -> Judgement:
    """Send queues that overflow are a sign of overload."""
    lost = sum(traces.dropped.values())
    detail = ", ".join(f"{count:,} {reason}" for reason, count in sorted(traces.dropped.items()))
    return none_of(frames.sent + lost, lost, "frames", detail)


@rule(
    "the traces have not as many joins and leaves as the schedule asks for (only where either has any, and every trace "
    "is complete)",
    INVALID,
    "consistency",
)
def churn_executed(schedule: ScheduleCounts, traces: TraceCounts) -> Judgement | None:
    """The run is not the experiment that was planned."""
    if traces.incomplete or not (schedule.changes or traces.changes):
        return None
    wrong = abs(schedule.changes - traces.changes)
    detail = f"{traces.changes:,} joins and leaves were traced, the schedule asks for {schedule.changes:,}"
    return none_of(schedule.changes, wrong, "changes", detail if wrong else "")
