"""The evidence of a sound run, made by hand or from the documents of a fabricated run, and changes to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from fabricate import Fabrication
from msgspec import structs

from metrics.checks import Evidence, check_run, documents
from metrics.checks import evidence as parts
from metrics.dataplane import Span
from metrics.first_packets import Attempt, Contrast, Tally
from metrics.probing import RttErrors, Sweep
from metrics.recount import recount
from metrics.rundata import Phase, RunDir
from metrics.stalls import Late, Stalls

MS, SECOND = 1_000_000, 1_000_000_000
IN_TIME = Late(0, 0)
NO_STALLS = Stalls(np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))
JUDGED_NS = (0, 4 * SECOND)


def span(second: int, **changes: Any) -> Span:
    """A line of the data plane, with 100 frames in time."""
    counts = [(50_000, 100)]
    span = Span(
        at_ns=second * SECOND,
        passed_ns=SECOND,
        counts={"frames_late": 0, "frames_waited": 0},
        drops={},
        lateness_ns={"max": 50_000},
        lateness_counts=counts,
        busy_ratio=0.1,
        intake_ns={"max": 50_000},
        intake_counts=counts,
    )
    return structs.replace(span, **changes)


def sweep(**changes: Any) -> Sweep:
    """A phase's probes, every error at a fifth of its limit; ``changes`` are to the errors."""
    errors = RttErrors(probes=1000, of_limit=0.2, ms=0.1, limit_ms=0.5, limit_ratio=0.005, late=IN_TIME)
    changed = structs.replace(errors, **changes)
    return Sweep({"p50": changed, "p99": changed}, jittered=False, repeats=(), sent=2000, received=2000)


ALL_IN_TIME = Tally(compared=200, first_only=0, control_only=0)
CONTRASTS = Contrast("pairs", 200, ALL_IN_TIME, ALL_IN_TIME), Contrast("hosts", 200, ALL_IN_TIME, ALL_IN_TIME)
HOP_ERRORS = parts.HopErrors(tested=1000, ms_p50=0.1, ms_p99=0.2, ms_max=0.3, late=IN_TIME)

SOUND = Evidence(
    limits=documents.VerdictLimits(lateness_p99_ms=0.5, wire_error_p99_ms=0.5),
    stalls=NO_STALLS,
    schedule=documents.ScheduleCounts(publications=20, changes=0),
    capture=documents.CaptureState(wanted=True, found=True),
    traces=parts.TraceCounts(nodes=5, incomplete=(), changes=0, dropped={}),
    publications=parts.Publications(20, 20, 60, lag_ms_p99=0.1, lag_ms_max=1.0, late=IN_TIME),
    deliveries=parts.DeliveryCounts(rows=60, expected=60, uncertain=0),
    order=parts.HopOrder(tested=40, failed=0, worst_ns=0),
    frames=parts.FrameCounts(sent=10, unread=0),
    clocks=parts.ClockErrors(tested=10, unresolved=0, worst_ns=2 * MS),
    frame_sets=parts.FrameSets(10, sent_unseen=0, read_unseen=0, seen_unsent=0, read_unsent=0),
    coverage=parts.StreamCoverage(tested=4, failed=0, worst_bytes=0, covered_bytes=100),
    connections=parts.ConnectionCounts(connections=2, only_traced=0, only_on_wire=0),
    captures=parts.CaptureCounts(90, dropped=0, truncated=0, not_understood=0, plane_frames=90, plane_dropped=0),
    agreement=parts.DelayAgreement(
        both=1000,
        negative=0,
        most_negative_ms=0.0,
        before_publication=0,
        difference_ms_p50=0.2,
        difference_ms_p99=0.5,
        late=IN_TIME,
    ),
    wire=parts.WireErrors(steady=HOP_ERRORS, jittered=HOP_ERRORS, jitter_sigmas_std=1.0),
    identity=parts.ByteIdentity(tested=5, failed=0, worst_bytes=0, wire_bytes=1000),
    hosts=parts.HostDelays(0.1, 1.0, 0.1, 1.0, received=1000, late=IN_TIME),
    links=parts.Links(parts.PhysicalLinks(9, 0, 0, changing=1), parts.LogicalLinks(9, 0)),
    probes=documents.Probes({phase: sweep() for phase in ("before", "during", "after")}, asked_loss_ratio=0.0),
    first_packets=documents.FirstPackets((Attempt(1, CONTRASTS),)),
    plane=documents.PlaneRecord(
        tuple(span(second) for second in range(5)), JUDGED_NS, 0, Phase("workload", *JUDGED_NS)
    ),
    pressure=documents.PressureRecord(
        tuple(documents.PressureLine(second * SECOND) for second in range(-3, 5)), JUDGED_NS
    ),
    load=parts.MachineLoad(cpu_busy=(0.4,) * 4, steal=(0.0,) * 4),
)


def change(evidence: Evidence, **changes: dict[str, Any]) -> Evidence:
    """The evidence with other values of some fields of some parts."""
    changed = {part: structs.replace(getattr(evidence, part), **fields) for part, fields in changes.items()}
    return structs.replace(evidence, **changed)


def of_run(run: RunDir, fabrication: Fabrication) -> Evidence:
    """The evidence of a fabricated run without the analysis: its documents, and what the tables would say."""
    expected, published = len(fabrication.truth.expected()), len(fabrication.schedule)
    counted, counters = recount(run, 100 * MS), run.manifest.counters
    sound = change(
        SOUND,
        traces={"nodes": len(run.nodes)},
        publications={"messages": published, "with_schedule": published, "subscribers": expected},
        deliveries={"rows": expected, "expected": counted.expected, "uncertain": counted.uncertain},
        captures={
            "records": len(fabrication.packets), "plane_frames": counters["frames_in"] + counters["frames_out"]
        },
    )  # fmt: skip
    return structs.replace(
        sound,
        limits=documents.read_limits(run),
        stalls=run.stalls,
        schedule=documents.read_schedule(run),
        capture=documents.read_capture_state(run),
        clocks=None,
        probes=documents.read_probes(run),
        first_packets=documents.read_first_packets(run),
        plane=documents.read_plane(run),
        pressure=documents.read_pressure(run),
    )


def failures(evidence: Evidence) -> dict[str, str]:
    """The checks that fail, and what each makes of the run."""
    return {check.name: check.severity for check in check_run(evidence) if check.failed}
