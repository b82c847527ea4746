"""Every check, in the order of the ``checks`` table."""

from __future__ import annotations

from metrics.checks import captures, delays, execution, first_packets, links, machine, plane, probes
from metrics.checks.evidence import Evidence
from metrics.checks.rule import CheckRule
from metrics.rundata import Check

RULES: tuple[CheckRule, ...] = (
    execution.traces_complete,
    execution.schedule_executed,
    execution.delivery_rows,
    execution.causal_order,
    execution.frames_arrived,
    execution.frames_kept,
    execution.churn_executed,
    captures.captured,
    captures.frame_sets,
    captures.stream_coverage,
    captures.connections,
    captures.conservation,
    captures.capture_drops,
    delays.delay_order,
    delays.delay_agreement,
    delays.wire_delay,
    delays.wire_delay_jittered,
    captures.overhead_identity,
    links.link_agreement,
    links.logical_links,
    machine.publish_lag,
    probes.certificate,
    *probes.SWEEP_RULES,
    first_packets.first_packet,
    first_packets.first_packet_hosts,
    plane.plane_lateness,
    plane.plane_intake,
    plane.plane_stalls,
    plane.plane_present,
    plane.plane_busy,
    machine.throttled,
    delays.clocks,
    machine.receive_delay,
    machine.send_delay,
    machine.cpu_busy,
    machine.steal,
)


def check_run(evidence: Evidence) -> list[Check]:
    """The rows of the ``checks`` table: one for each rule that has something to check in this run."""
    return [check for rule in RULES if (check := rule.check(evidence)) is not None]
