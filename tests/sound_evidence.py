"""The evidence of a sound run, made by hand or from the documents of a fabricated run, and changes to it."""

from typing import Any

import numpy as np
from msgspec import structs

from metrics.checks import check_run
from metrics.checks import evidence as parts
from metrics.checks.evidence import Evidence, Matching, Outcome, Spread
from metrics.checks.rule import Absent
from metrics.recorded.dataplane import PlaneInterval
from metrics.recorded.first_packets import Contrast, IntroductionAttempt, SlotTally
from metrics.recorded.host_captures import HostCaptures, HostCounts, Waits
from metrics.recorded.offsets import Offsets
from metrics.recorded.probing import PHASES, Extreme, RttErrors, Sweep
from metrics.recorded.round_trips import PhaseTrips
from metrics.recorded.stalls import Late, Stalls
from metrics.recount import Recount, count_changes, recount
from metrics.rundir import AppliedChange, Phase, RunDir
from metrics.tables.evidence import read_emulation
from tests.fabricate import Fabrication

MS, SECOND = 1_000_000, 1_000_000_000
IN_TIME = Late(0, 0)
NO_STALLS = Stalls(np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))
JUDGED_NS = (0, 4 * SECOND)


def span(second: int, **changes: Any) -> PlaneInterval:
    """A line of the data plane, with 100 frames in time."""
    counts = [(50_000, 100)]
    span = PlaneInterval(
        at_ns=second * SECOND,
        passed_ns=SECOND,
        counts={"frames_in": 100, "frames_late": 0, "frames_waited": 0},
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
    return Sweep(
        {"p50": changed, "p99": changed},
        jittered=False,
        repeats=(),
        sent=2000,
        received=2000,
        expected=1000,
        hosts=5,
        worst_pair=Extreme(0.9, 1.3, 80.0, "host 1 to host 2"),
        worst_host=Extreme(0.3, 0.2, 80.0, "host 1"),
    )


ALL_IN_TIME = SlotTally(compared=200, first_only=0, control_only=0)
CONTRASTS = Contrast("pairs", 200, ALL_IN_TIME, ALL_IN_TIME), Contrast("hosts", 200, ALL_IN_TIME, ALL_IN_TIME)
WAITS = Waits(samples=1000, p50_ms=0.05, p99_ms=0.2, max_ms=0.3)
IN_TIME_NODE = parts.LateCounts(samples=100, late=50, explained=0)
SHORT = Spread(samples=1000, p50=0.1, p99=0.2, max=0.3)

ROUND_TRIPS = PhaseTrips(
    pairs=2,
    silent=(),
    sent=6,
    received=6,
    least_ms={("192.0.2.1", "192.0.2.2"): 10.0, ("192.0.2.2", "192.0.2.1"): 10.1},
    p50_ms=10.5,
    p99_ms=12.0,
)

SOUND = Evidence(
    traces=parts.Traces(nodes=5, incomplete={}, changes=0, scheduled_changes=0, dropped={}),
    documents=parts.Documents(hashed=5, edited=()),
    publications=parts.Publications(scheduled=20, messages=20, with_schedule=20, subscribers=60, lag=SHORT),
    deliveries=60,
    recount=Recount(expected=60, uncertain=0),
    carried=10,
    order=Outcome(tested=40, failed=0),
    frames=Outcome(tested=10, failed=0),
    clocks=parts.Clocks(tested=10, unresolved=0, error_ns=2 * MS, has_round_trips=False),
    uncaptured=False,
    frame_sets=parts.FrameSets(10, {"read but never sent": 0}),
    coverage=Outcome(tested=4, failed=0, total=100),
    connections=Matching(2, only_traced=0, only_on_wire=0),
    captures=parts.Captures(90, dropped=0, truncated=0, not_understood=0, plane_frames=90, plane_dropped=0),
    delays=Outcome(tested=1000, failed=0),
    bounds=parts.Bounds(tested=60, impossible=0, unreached=0, sized=60, lacking=0),
    inside=SHORT,
    transits=parts.Transits(
        sent=3000,
        **dict.fromkeys(("steady", "jittered", "rated", "overtaken"), parts.Timed(1000, SHORT)),
        limit_ms=0.5,
        plain_sent=1000,
        plain_lost=0,
        invented=0,
        losses=parts.Losses(2000, 20, 20.0, 19.8, pairs=1, wrong_pairs=0),
        jitter=parts.Jitter(1000, 0.01, 2.0, 2.0, 2.01),
        queues=Outcome(tested=1000, failed=0, total=1000),
    ),
    identity=Outcome(tested=5, failed=0, total=1000),
    send=SHORT,
    receive=SHORT,
    links=parts.Links(
        physical=Matching(9, only_traced=0, only_on_wire=0, changing=1),
        connected=Matching(9, only_traced=0, only_on_wire=0),
        logical=Outcome(tested=9, failed=0),
        frames=parts.LinkFrames(Matching(9, only_traced=0, only_on_wire=0), material=9, ends=4, unread=0),
    ),
    connected=Matching(9, only_traced=0, only_on_wire=0),
    host_captures=HostCaptures(3, tuple(HostCounts(host, 700) for host in range(3)), outbound=WAITS, inbound=WAITS),
    accounts=parts.Accounts(tested=60, deviations={"copies were read without an event": 0}),
    counters=parts.Counters(counters=20, tested=20, failed=0),
    node_sends={0: IN_TIME_NODE, 1: IN_TIME_NODE},
    node_receives={0: IN_TIME_NODE, 1: IN_TIME_NODE},
    node_handlings={0: IN_TIME_NODE, 1: IN_TIME_NODE},
    emulation=parts.Emulation(
        hosts=5,
        sweeps={phase: sweep() for phase in PHASES},
        asked_sweeps=PHASES,
        first_packets=(IntroductionAttempt(1, CONTRASTS),),
        spans=tuple(span(second) for second in range(5)),
        pressure=tuple(parts.PressureLine(second * SECOND) for second in range(-3, 5)),
        judged_ns=JUDGED_NS,
        workload=Phase("workload", *JUDGED_NS),
        stalls=NO_STALLS,
        lateness_p99_ms=0.5,
        offsets=Offsets(10, 0, 0.35, 0.2, "hosts 0 and 1"),
    ),
    changes=parts.Changes(
        applied=(AppliedChange(SECOND, SECOND + 100_000), AppliedChange(2 * SECOND, 2 * SECOND)),
        asked=2,
        stalls=NO_STALLS,
    ),
    measured=parts.MeasuredNetwork(
        pairs=2,
        phases=dict.fromkeys(PHASES, ROUND_TRIPS),
        asked_phases=PHASES,
        wire_ms={("192.0.2.1", "192.0.2.2"): 7.0, ("192.0.2.2", "192.0.2.1"): 4.0},
    ),
    busy=(0.4,) * 4,
    steal=(0.0,) * 4,
)


def change(evidence: Evidence, **changes: Any) -> Evidence:
    """The evidence with other parts; a dictionary has other values of some fields of a part that is none."""
    changed = {
        part: structs.replace(old, **value) if isinstance(value, dict) and not isinstance(old, dict) else value
        for part, value in changes.items()
        for old in [getattr(evidence, part)]
    }
    return structs.replace(evidence, **changed)


def of_run(run: RunDir, fabrication: Fabrication) -> Evidence:
    """The evidence of a fabricated run without the analysis: its documents, and what the tables would say."""
    expected, published, counters = len(fabrication.truth.expected()), len(fabrication.schedule), run.manifest.counters
    return change(
        SOUND,
        traces={"nodes": len(run.nodes), "scheduled_changes": count_changes(run)},
        publications={
            "scheduled": published, "messages": published, "with_schedule": published, "subscribers": expected
        },
        deliveries=expected,
        recount=recount(run, 100 * MS, run.settle_ns),
        captures={
            "records": len(fabrication.packets), "plane_frames": counters["frames_in"] + counters["frames_out"]
        },
        clocks=Absent("one clock"),
        measured=Absent("the network is compared with what was asked for"),
        emulation=read_emulation(run),
    )  # fmt: skip


def failures(evidence: Evidence) -> dict[str, str]:
    """The checks that fail, and what each makes of the run."""
    return {check.name: check.severity for check in check_run(evidence) if check.failed}
