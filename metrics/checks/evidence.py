"""What the checks judge: one struct per part of a run, filled by ``metrics.tables.evidence``.

Fields without a unit in their names are counts. Instants are ns of virtual time. A figure over no samples is 0.
"""

from typing import NamedTuple

from msgspec import Struct

from metrics.checks.rule import Absent
from metrics.recorded.dataplane import PlaneInterval
from metrics.recorded.first_packets import IntroductionAttempt
from metrics.recorded.host_captures import HostCaptures
from metrics.recorded.offsets import Offsets
from metrics.recorded.probing import Sweep
from metrics.recorded.round_trips import PhaseTrips
from metrics.recorded.stalls import Late, Stalls
from metrics.recount import Recount
from metrics.rundir import AppliedChange, Phase


class Outcome(Struct, frozen=True):
    """Comparisons that must all hold."""

    tested: int
    failed: int
    worst: float = 0  # by how much the worst one failed; ``Evidence`` says the unit
    total: int = 0  # what was compared in all, where there is such a sum


class Matching(Struct, frozen=True):
    """Things that traces and captures must both have."""

    tested: int  # the number of things that either of the two has
    only_traced: int  # things in traces that the captures rule out
    only_on_wire: int  # things that the captures are sure of and that no trace has
    changing: int = 0  # traced things for which both answers are right


class Spread(Struct, frozen=True):
    """Quantiles of delays or errors in ms, and the samples beyond the limit of the check that judges them."""

    samples: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0
    late: Late = Late(0, 0)

    def __str__(self) -> str:
        """Return the quantiles as the details of checks have them."""
        return f"median {self.p50:.3g} ms, p99 {self.p99:.3g} ms"


class Traces(Struct, frozen=True):
    """The peers' traces."""

    nodes: int  # number of nodes of the run
    incomplete: dict[int, int | None]  # lines of the traces that are cut off, by node; None = missing or empty
    changes: int  # joins and leaves
    scheduled_changes: int  # joins and leaves in the schedule of the nodes with complete traces
    dropped: dict[str, int]  # frames that peers dropped instead of sending them, by reason


class Documents(Struct, frozen=True):
    """The documents of a run against the hashes in the manifest."""

    hashed: int
    edited: tuple[str, ...]  # documents that differ


class Publications(Struct, frozen=True):
    """The table ``messages`` against the schedule."""

    scheduled: int  # messages that the schedule asks for
    messages: int  # rows
    with_schedule: int  # rows that the schedule asks for
    subscribers: int  # (message, subscriber) pairs by the traces
    lag: Spread | Absent  # published - scheduled; absent in virtual time, in which no machine can be late


class FrameSets(Struct, frozen=True):
    """Frames by the traces against those in the captures, at either tap."""

    tested: int  # hops
    unmatched: dict[str, int]  # hops, by what they lack


class Clocks(Struct, frozen=True):
    """Hops between machines with clocks of their own."""

    tested: int
    unresolved: int  # hops that took no longer than the error of their machines' clocks
    error_ns: int  # the largest such error
    has_round_trips: bool  # whether the round trips between the machines were measured


class Captures(Struct, frozen=True):
    """Packets in the capture files, and what the data plane counted."""

    records: int  # in the files
    dropped: int  # records that are missing, by the files
    truncated: int  # files that are cut off
    not_understood: int  # packets that could not be read
    plane_frames: int | Absent  # frames that the data plane read and wrote
    plane_dropped: int  # records that the data plane dropped


class Losses(Struct, frozen=True):
    """Packets that the captures show at their source only, on pairs of hosts that were asked to lose some."""

    sent: int
    lost: int
    expected: float  # number of losses expected from the loss asked for of each pair
    variance: float  # variance of this number, if each packet is lost independently
    pairs: int  # directed pairs with enough packets to be judged one by one
    wrong_pairs: int  # pairs among them that lost too many or too few packets
    worst_pair: str = ""  # the most unlikely pair, for people
    values: int = 1  # different losses that pairs were asked for
    wrong_values: int = 0  # such losses whose pairs together lost too many or too few packets
    worst_value: str = ""  # the most unlikely loss, for people


class WrongLinks(Struct, frozen=True):
    """Links with a rate whose packets fail more often than chance and single late packets explain."""

    links: int = 0
    worst: str = ""  # the link with the largest share, for people


class Jitter(Struct, frozen=True):
    """Delays of packets under jitter, without errors that a stall explains, beside the delays drawn for them."""

    packets: int
    bias_ms: float  # mean of (delay - the delay drawn)
    asked_ms: float  # mean of the jitter asked for
    drawn_ms: float  # standard deviation of the delays drawn, from the means asked for
    found_ms: float  # standard deviation of the delays


class Timed(Struct, frozen=True):
    """Packets of a kind, and how far their delays were from the delays asked for."""

    arrived: int
    errors: Spread  # errors of the packets for which it is certain which arrival is their own


class Transits(Struct, frozen=True):
    """Packets in the judged span, from the data plane's read at the source to its write at the destination.

    An error is |delay - delay asked for|. Under jitter, the delay asked for is that drawn for the instant. With rates,
    it contains what queues add; if a fault lets others overtake a packet, its further delay
    (``metrics.tables.transits``). The p99 of fewer than 100 errors is the second largest.
    """

    sent: int  # packets between hosts of the run that left early enough to arrive in the span
    steady: Timed | Absent  # packets of pairs without jitter
    jittered: Timed | Absent  # packets of pairs with jitter
    rated: Timed | Absent  # packets through a link with a rate
    overtaken: Timed | Absent  # packets that faults let later ones overtake, which are of no other kind
    limit_ms: float  # ``verdict.wire_error_p99_ms``
    plain_sent: int  # packets of pairs without loss, through no link with a rate
    plain_lost: int  # such packets that did not arrive
    invented: int  # packets that arrived and never left
    losses: Losses | Absent
    jitter: Jitter | Absent
    queues: Outcome | Absent  # packets through a link with a rate (total: all); dropped or kept against its queue fail
    wrong_rates: WrongLinks = WrongLinks()  # links by the delays of their packets
    wrong_queues: WrongLinks = WrongLinks()  # links by the packets that were dropped or kept
    degraded: "Transits | None" = None  # packets that left while a fault had changed their link; None = no fault did


class Bounds(Struct, frozen=True):
    """Deliveries, against what the captured packets could have brought (``metrics.tables.earliest``)."""

    tested: int  # the first delivery of each message to each node
    impossible: int  # deliveries before any chain of packets could have brought the message
    unreached: int  # deliveries to which no chain of packets led
    sized: int  # deliveries of messages whose size is known
    lacking: int  # such deliveries for which too little payload arrived
    worst_ms: float = 0.0  # by how much the earliest delivery with a chain came too early


class LinkFrames(Struct, frozen=True):
    """Logical links by the traces against the frames on the wire that begin and end them."""

    matching: Matching  # (node, neighbour, topic) at every full second
    material: int  # how many links there were to compare, with the links whose frames were not captured whole
    ends: int  # number of ends of connections
    unread: int  # ends whose frames were not captured whole


class Links(Struct, frozen=True):
    """Links by the traces against links by the captures (``metrics.tables.agreement``)."""

    physical: Matching  # (node, neighbour) pairs at every full second
    connected: Matching  # the same, by connections instead of frames
    logical: Outcome | None  # links that carried data; None = nodes send copies also without a logical link
    frames: LinkFrames | None  # None = no frame of the protocol reports logical links


class Accounts(Struct, frozen=True):
    """The copies of messages that nodes read, against what became of them by the nodes' traces."""

    tested: int  # messages at instances of nodes
    deviations: dict[str, int]  # copies, events or messages, by what is wrong


class Counters(Struct, frozen=True):
    """The peers' Prometheus counters at their last scrapes, against the events in their traces."""

    counters: int  # counters of peers without crashes and with whole traces
    tested: int  # counters among them that were scraped
    failed: int  # counters that equal no number of events around the scrape
    worst: int = 0  # by how many events the worst counter is off
    worst_counter: str = ""  # for people


class LateCounts(NamedTuple):
    """A node's samples of a delay."""

    samples: int
    late: int  # samples beyond ``metrics.checks.accounts.NODE_DELAY``
    explained: int  # late samples that stalls of the host explain


class PressureLine(Struct, frozen=True):
    """A line of ``pressure.jsonl``, about the virtual second that ends at ``at_ns``."""

    at_ns: int
    throttled_periods: int = 0  # periods in which a quota of the run's cgroups was used up
    throttled_us: int = 0  # for how long, summed over processors


class Emulation(Struct, frozen=True):
    """What an emulated run recorded of its network and its machine."""

    hosts: int
    sweeps: dict[str, Sweep] | None  # by phase, for phases with probes; None = no ``achieved.parquet``
    asked_sweeps: tuple[str, ...]  # phases in which the experiment asks for probes
    first_packets: tuple[IntroductionAttempt, ...] | None  # None = no ``first_packets.parquet``
    spans: tuple[PlaneInterval, ...]  # one for each line of ``dataplane.jsonl``
    pressure: tuple[PressureLine, ...]  # all lines
    judged_ns: tuple[int, int]  # the span in which the checks judge hosts (``RunDir.judged_ns``)
    workload: Phase | None  # None = the run had none
    stalls: Stalls
    lateness_p99_ms: float  # ``verdict.lateness_p99_ms``
    offsets: Offsets | None = None  # None = there are not two sweeps of the idle network
    unmeasured: Absent | None = None  # why the data plane says nothing of its lateness; None = it does


class Changes(Struct, frozen=True):
    """When a testbed changed its network, or paused peers, for faults in the judged span."""

    applied: tuple[AppliedChange, ...]
    asked: int  # how many should have been applied
    stalls: Stalls
    error_ns: int = 0  # how far the machines' clocks may be off


class MeasuredNetwork(Struct, frozen=True):
    """What a run recorded of a network that is not emulated. Pairs are pairs of addresses."""

    pairs: int  # pairs that should have been probed
    phases: dict[str, PhaseTrips] | None  # phases with probes; None = no ``round_trips.parquet``
    asked_phases: tuple[str, ...]  # phases in which the experiment asks for probes
    wire_ms: dict[tuple[str, str], float] | Absent  # the shortest delay of a frame by the captures


class Evidence(Struct, frozen=True):
    """The parts of a run that the checks judge; an absent part says why the run has nothing of the kind.

    A check is made if all parts for which its judge has parameters are there.
    """

    traces: Traces | Absent
    publications: Publications | Absent
    deliveries: int | Absent  # rows of the table ``deliveries``: (message, subscriber) pairs, delivered or not
    recount: Recount  # how many rows there must be by the documents alone
    carried: int | None  # frames sent between nodes; of a program without known frames packets; None = not recorded
    order: Outcome | Absent  # consecutive instants of a hop; worst in ns, beyond the error of the clocks
    frames: (
        Outcome | Absent
    )  # frames sent, by complete traces, on connections that no crash broke; frames that were never read fail
    documents: Documents | Absent  # documents that have a hash in the manifest
    clocks: Clocks | Absent
    uncaptured: bool | Absent  # whether there is no capture, although there should be one
    frame_sets: FrameSets | Absent
    coverage: Outcome | Absent  # bytes of streams at each end, by traces and captures; total by the captures
    connections: Matching | Absent  # connections with frames in the traces or stream bytes in the captures
    captures: Captures | Absent
    delays: Outcome | Absent  # delays of deliveries; negative ones and ones shorter by the traces fail; worst in ms
    bounds: Bounds | Absent
    inside: Spread | Absent  # delay of deliveries by the traces - by the captures: in first and last host
    transits: Transits | Absent
    identity: Outcome | Absent  # classes of ``overhead`` against bytes on the wire, by node and second, total
    send: Spread | Absent  # frames sent in the judged span, from the peer's write to the first byte on the wire
    receive: Spread | Absent  # the same frames, from the last byte's arrival at the host to the peer's read
    links: Links | Absent
    connected: Matching | Absent  # (node, neighbour) pairs at every full second, by connections alone
    host_captures: HostCaptures | Absent
    accounts: Accounts | Absent
    counters: Counters | Absent
    node_sends: dict[int, LateCounts] | Absent  # frames of ``send`` that TCP did not hold back, by sender
    node_receives: dict[int, LateCounts] | Absent  # frames of ``receive``, by receiver
    node_handlings: dict[int, LateCounts] | Absent  # deliveries, by node: from the reading of the first copy on
    emulation: Emulation | Absent
    changes: Changes | Absent
    measured: MeasuredNetwork | Absent
    busy: tuple[float, ...] | Absent  # the processors' share in the seconds of the workload and of the cool-down
    steal: tuple[float, ...] | Absent  # the hypervisor's share in the same seconds
