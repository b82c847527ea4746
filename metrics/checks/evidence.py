"""What the checks judge: a struct per part of a run, from its tables here, from its documents in ``documents``.

Fields without a unit in their names are counts. Instants are ns of virtual time. A figure over no samples is 0.
"""

from __future__ import annotations

from msgspec import Struct

from metrics.checks.documents import (
    CaptureState,
    FirstPackets,
    PlaneRecord,
    PressureRecord,
    Probes,
    ScheduleCounts,
    VerdictLimits,
)
from metrics.stalls import Late, Stalls


class IncompleteTrace(Struct, frozen=True):
    """A trace that is missing or cut off.

    Attributes:
        node: whose it is.
        lines: how many it has; None = it is missing or empty.
    """

    node: int
    lines: int | None


class TraceCounts(Struct, frozen=True):
    """The peers' traces.

    Attributes:
        nodes: of the run.
        incomplete: the traces of some of them.
        changes: joins and leaves, in all traces.
        dropped: frames that peers dropped instead of sending them, by reason.
    """

    nodes: int
    incomplete: tuple[IncompleteTrace, ...]
    changes: int
    dropped: dict[str, int]


class Publications(Struct, frozen=True):
    """The table ``messages``.

    Attributes:
        messages: rows.
        with_schedule: those of them that the schedule has.
        subscribers: (message, subscriber) pairs by the traces.
        lag_ms_p99: of (published - scheduled).
        lag_ms_max: likewise.
        late: publications whose lag exceeds the limit of ``publish_lag``.
    """

    messages: int
    with_schedule: int
    subscribers: int
    lag_ms_p99: float
    lag_ms_max: float
    late: Late


class DeliveryCounts(Struct, frozen=True):
    """The table ``deliveries`` against a count from the documents alone (``metrics.recount``).

    Attributes:
        rows: (message, subscriber) pairs, whether delivered or not.
        expected: those that subscriptions and schedule call for.
        uncertain: by so many the documents cannot be sure.
    """

    rows: int
    expected: int
    uncertain: int


class DelayAgreement(Struct, frozen=True):
    """Deliveries' delays by the traces less those by the captures.

    Attributes:
        both: deliveries that have both.
        negative: of them, those that are shorter by the traces.
        most_negative_ms: by how much at most.
        before_publication: deliveries that came before the publication, by the traces.
        difference_ms_p50: the time spent inside the first and the last host.
        difference_ms_p99: likewise.
        late: deliveries whose difference exceeds the limit of ``delay_agreement``.
    """

    both: int
    negative: int
    most_negative_ms: float
    before_publication: int
    difference_ms_p50: float
    difference_ms_p99: float
    late: Late


class HopOrder(Struct, frozen=True):
    """Comparisons of consecutive instants of a hop.

    Attributes:
        tested: comparisons.
        failed: those with the wrong order, by more than the clocks are unsure.
        worst_ns: by how much more.
    """

    tested: int
    failed: int
    worst_ns: int


class ClockErrors(Struct, frozen=True):
    """Hops between machines with clocks of their own.

    Attributes:
        tested: those hops.
        unresolved: those of them that took no longer than their clocks are unsure.
        worst_ns: the most that two clocks are unsure.
    """

    tested: int
    unresolved: int
    worst_ns: int


class FrameCounts(Struct, frozen=True):
    """Frames by the traces.

    Attributes:
        sent: between peers whose traces are complete, on connections that no crash broke.
        unread: those of them that were never read.
    """

    sent: int
    unread: int


class FrameSets(Struct, frozen=True):
    """Frames by the traces against those in the captures, at either tap.

    Attributes:
        tested: hops.
        sent_unseen: sent by a trace, but not on the wire.
        read_unseen: read by a trace, but not on the wire.
        seen_unsent: on the wire, but sent by no trace.
        read_unsent: read by a trace, but sent by none.
    """

    tested: int
    sent_unseen: int
    read_unseen: int
    seen_unsent: int
    read_unsent: int


class StreamCoverage(Struct, frozen=True):
    """Stream bytes by the traces against each tap's, by connection, direction and tap.

    Attributes:
        tested: streams, at each end.
        failed: those whose bytes differ.
        worst_bytes: the largest difference.
        covered_bytes: bytes that the taps saw.
    """

    tested: int
    failed: int
    worst_bytes: int
    covered_bytes: int


class ConnectionCounts(Struct, frozen=True):
    """Connections with frames in the traces against those with stream bytes in the captures.

    Attributes:
        connections: in either.
        only_traced: in the traces only.
        only_on_wire: in the captures only.
    """

    connections: int
    only_traced: int
    only_on_wire: int


class CaptureCounts(Struct, frozen=True):
    """Packets in the capture files, and what the data plane counted.

    Attributes:
        records: in the files.
        dropped: records that are missing, by the files.
        truncated: files that are cut off.
        not_understood: packets that could not be read.
        plane_frames: frames that the data plane read and wrote; None = the manifest has no such counters.
        plane_dropped: records that the data plane dropped.
    """

    records: int
    dropped: int
    truncated: int
    not_understood: int
    plane_frames: int | None
    plane_dropped: int


class HopErrors(Struct, frozen=True):
    """|wire delay - delay asked for| of some hops.

    Attributes:
        tested: hops.
        ms_p50: of the error.
        ms_p99: likewise; of fewer than 100 hops the second largest error.
        ms_max: likewise.
        late: hops whose error exceeds ``VerdictLimits.wire_error_p99_ms``.
    """

    tested: int
    ms_p50: float
    ms_p99: float
    ms_max: float
    late: Late


class WireErrors(Struct, frozen=True):
    """Hops whose wire part is the emulated delay alone.

    Attributes:
        steady: those without jitter.
        jittered: those with it; their errors are what exceeds ``metrics.probing.JITTER_SIGMAS``.
        jitter_sigmas_std: the standard deviation of the deviations, each in units of the jitter asked for; None = of
            fewer than two hops.
    """

    steady: HopErrors
    jittered: HopErrors
    jitter_sigmas_std: float | None


class ByteIdentity(Struct, frozen=True):
    """Bytes in the classes of ``overhead`` against bytes on the wire, by node and second.

    Attributes:
        tested: rows.
        failed: those that do not add up.
        worst_bytes: the largest difference.
        wire_bytes: bytes on the wire, in all rows.
    """

    tested: int
    failed: int
    worst_bytes: int
    wire_bytes: int


class HostDelays(Struct, frozen=True):
    """Times that frames sent in the judged span spent inside hosts.

    Attributes:
        send_ms_p50: from the peer's write to the first byte on the wire.
        send_ms_p99: likewise.
        receive_ms_p50: from the last byte's arrival at the host to the peer's read.
        receive_ms_p99: likewise.
        received: frames that arrived and were read.
        late: those of them that were read later than the limit of ``receive_delay``.
    """

    send_ms_p50: float
    send_ms_p99: float
    receive_ms_p50: float
    receive_ms_p99: float
    received: int
    late: Late


class PhysicalLinks(Struct, frozen=True):
    """(node, neighbour) pairs at every full second, by the traces against the captures.

    Attributes:
        tested: pairs that are traced or must be.
        only_on_wire: those that the captures are sure of and no trace has.
        only_traced: those that a trace has and the captures rule out.
        changing: traced ones for which both answers are right.
    """

    tested: int
    only_on_wire: int
    only_traced: int
    changing: int


class LogicalLinks(Struct, frozen=True):
    """Logical links that carried data on the wire.

    Attributes:
        tested: those links.
        failed: those that are in no trace.
    """

    tested: int
    failed: int


class Links(Struct, frozen=True):
    """Links by the traces against those that the captures show (``metrics.tables.agreement``).

    Attributes:
        physical: always compared.
        logical: None where nodes send copies also where there is no logical link.
    """

    physical: PhysicalLinks
    logical: LogicalLinks | None


class MachineLoad(Struct, frozen=True):
    """Rows of the table ``fidelity`` in the workload and the cool-down.

    Attributes:
        cpu_busy: the processors' busy share, by second.
        steal: the share that the hypervisor took, by second.
    """

    cpu_busy: tuple[float, ...]
    steal: tuple[float, ...]


class Evidence(Struct, frozen=True):
    """Every part of a run that a check judges; None where the run has nothing of the kind.

    A check is made where all parts exist that its judge has parameters for: the names of the fields are those of the
    parameters.
    """

    limits: VerdictLimits
    stalls: Stalls
    schedule: ScheduleCounts
    capture: CaptureState
    traces: TraceCounts
    publications: Publications
    deliveries: DeliveryCounts
    order: HopOrder
    frames: FrameCounts
    clocks: ClockErrors | None
    frame_sets: FrameSets | None
    coverage: StreamCoverage | None
    connections: ConnectionCounts | None
    captures: CaptureCounts | None
    agreement: DelayAgreement | None
    wire: WireErrors | None
    identity: ByteIdentity | None
    hosts: HostDelays | None
    links: Links | None
    probes: Probes | None
    first_packets: FirstPackets | None
    plane: PlaneRecord | None
    pressure: PressureRecord | None
    load: MachineLoad | None
