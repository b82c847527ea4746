"""The experiment file's form. docs/experiment-spec.md is generated from these types and what stands below each field.

Every field names its unit. Constraints are part of the types, so that a fault names its place in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, defstruct, field

from peer.core.dissemination.flood import FloodParameters
from peer.core.dissemination.topic_flood import TopicFloodParameters
from peer.core.membership.cyclon import CyclonParameters
from peer.core.membership.newscast import NewscastParameters
from peer.core.membership.partial_view import PartialParameters
from peer.protocols.description import section_name
from peer.protocols.registry import DEFAULT, PROTOCOLS

if TYPE_CHECKING:
    ProtocolName = str
else:
    ProtocolName = Literal[tuple(PROTOCOLS)]

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}\Z")]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Span = Annotated[float, Meta(ge=0, le=604_800)]
Delay = Annotated[float, Meta(gt=0, le=60_000)]
FilePath = Annotated[str, Meta(min_length=1)]


class UnderlaySpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The network below."""

    kind: Literal["world-cities", "wondernetwork", "unit-square", "uniform", "matrix"] = "world-cities"
    """``world-cities``: embedded cities, delays modelled from distances. ``wondernetwork``: the measured planet.
    ``unit-square``: random points, delays by distance. ``uniform``: all delays equal. ``matrix``: a CSV of yours."""
    hosts: Annotated[int, Meta(ge=2, le=10_000)] | None = None
    """Number of hosts, a node each. Default: every site of ``wondernetwork`` and ``matrix``, else 20."""
    path: FilePath | None = None
    """A WonderNetwork folder or file (default: below $TRELLIS_DATA), or the matrix CSV; relative to this file."""
    delay_ms: Delay = 50.0
    """One-way delay between any two hosts (``uniform``)."""
    side_ms: Delay = 100.0
    """One-way delay across one side of the square (``unit-square``)."""
    access_delay_ms: Annotated[float, Meta(ge=0, le=60_000)] = 1.0
    """One-way delay at each end between hosts of the same city, where there are more hosts than cities: such hosts are
    twice this apart. Delays between cities stay as they are."""
    jitter: Literal["measured", "none"] | NonNegative = "measured"
    """``measured`` (where the data has it), ``none``, or the standard deviation of every one-way delay in ms."""
    loss_ratio: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Probability that a packet is lost, each way, on every pair."""
    rate_mbit: NonNegative = 0.0
    """Access rate of every host, each way; 0 = unlimited."""
    queue_ms: Positive = 100.0
    """Length of the access link's drop-tail queue."""


class MembershipSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Which nodes a node knows."""

    kind: Literal["full", "partial", "cyclon", "newscast"] = "full"
    """``full``: every node, as the bootstrap service tells. ``partial``: a share of them. ``cyclon``, ``newscast``: a
    few, of whom nodes tell each other. The section of that name has the parameters."""
    refresh_s: Annotated[float, Meta(gt=0, le=604_800)] = 5.0
    """Under churn, the bootstrap service tells all nodes of changes this often at most."""


class DisseminationSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """How a message spreads over the overlay."""

    kind: Literal["protocol", "flood", "topic-flood"] = "protocol"
    """``protocol``: the protocol's own way. ``flood``: to all neighbours, with a TTL. ``topic-flood``: along
    each topic's links."""


class InterestsSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Who subscribes to what."""

    kind: Literal["independent", "popularity", "grid", "file"] = "independent"
    """``independent``: every node takes every topic with the same probability. ``popularity``: a number of topics,
    drawn by popularity (SpiderCast 3.1). ``grid``: what lies within a radius on a grid (StAN 3). ``file``: yours."""
    ratio: Ratio = 0.2
    """Probability of every pair of node and topic (``independent``); a node may end up with no topic."""
    popularity: Literal["zipf", "nyse", "uniform"] = "zipf"
    """How the topics' weights fall (``popularity``), topic 0 first. ``zipf``: rank to the power of -exponent; 0.5 is
    the papers' RSS. ``nyse``: exponentially, so that the first tenth of the topics has mass 0.55."""
    zipf_exponent: Annotated[float, Meta(ge=0, le=10)] = 0.5
    """Exponent of ``zipf``."""
    subscriptions_min: Count = 10
    """Fewest topics of a node (``popularity``); the number is uniform from here ..."""
    subscriptions_max: Count = 10
    """... to here, the most topics of a node (``popularity``)."""
    grid_side: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    """Cells along a side of the square on which nodes and topics are placed at random (``grid``)."""
    copies_exponent: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """Exponent of the power law of how many copies of a topic are placed (``grid``) ..."""
    copies_max: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """... and the largest number of copies."""
    radius_exponent: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """Exponent of the power law of the nodes' radii of interest (``grid``) ..."""
    radius_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 50
    """... and the largest radius, in cells."""
    path: FilePath | None = None
    """CSV lines ``node,topic``, or a .jsonl file of lines ``{"node": 3, "topics": [1, 7]}`` (``file``); relative to
    this file."""


class ScriptedAction(Struct, forbid_unknown_fields=True, frozen=True):
    """An entry of the script."""

    at_s: float
    """When, from the workload's zero; negative during the warm-up."""
    node: Annotated[int, Meta(ge=0)]
    """Who."""
    action: Literal["join", "leave", "crash", "subscribe", "unsubscribe"]
    """What it does. A node whose first entry is a join is down at the start."""
    topics: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Topics of a subscribe, an unsubscribe, or a join (there, none = as the interest model draws)."""


class ChurnSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Which nodes come and go, from the peers' start to their stop."""

    kind: Literal["none", "exponential", "sessions", "script"] = "none"
    """``exponential``: up and down for exponential times, stationary from the start (SpiderCast 3.8). ``sessions``: as
    a trace says. ``script``: as listed here."""
    on_s: Positive = 300.0
    """Mean time that a node is up (``exponential``)."""
    off_s: Positive | None = None
    """Mean time that it is down then; a quarter of ``on_s`` where nothing is said."""
    crash_ratio: Ratio = 0.0
    """Share of departures that are crashes (``exponential``, ``sessions``); the others are orderly leaves."""
    new_interests: bool = True
    """Draw a node's topics anew at every join, rather than keep those of its first (``exponential``, ``sessions``)."""
    path: FilePath | None = None
    """CSV lines ``node,from_s,to_s``, perhaps gzipped (``sessions``); relative to this file."""
    origin_s: float = 0.0
    """The trace's instant at which the run starts (``sessions``)."""
    speedup: Positive = 1.0
    """Seconds of the trace in a second of the run (``sessions``)."""
    script: tuple[ScriptedAction, ...] = ()
    """The entries (``script``)."""


class AdversarySpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Nodes that misbehave."""

    kind: Literal["none", "topic-attacker", "eclipse", "slow", "dropper", "asker"] = "none"
    """``topic-attacker``: subscribes to the victim topics and passes nothing on there. ``eclipse``: linked with all
    other adversaries. ``slow``: handles every frame late. ``dropper``: passes some copies on and others not.
    ``asker``: asks every node what it subscribes to."""
    ratio: Ratio = 0.1
    """Share of nodes that misbehave, drawn from the seed."""
    nodes: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """These nodes and no others, in place of a share."""
    victim_topics: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Topics that adversaries of any kind subscribe to whenever they join, beside those that the interest model draws
    for them."""
    delay_ms: Delay = 500.0
    """How late a frame is handled (``slow``)."""
    drop_ratio: Ratio = 1.0
    """Probability that a copy of another node's message is not passed on (``dropper``)."""
    ask_interval_ms: Delay = 100.0
    """Time between two nodes that an adversary asks (``asker``)."""
    publish: bool = True
    """Adversaries publish like any node. ``false``: all publishers are honest nodes, and topics to which only
    adversaries subscribe have no messages."""


class ProcessingSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """How long after its arrival a node handles a frame (Topiary's delta_v); frames do not wait for each other."""

    kind: Literal["none", "constant", "uniform", "exponential"] = "none"
    """Each node has its time, drawn from the seed, adversaries too. ``constant``: the mean for all. ``uniform``:
    between 0 and twice the mean. ``exponential``: most are faster than the mean, and a few much slower."""
    mean_ms: Delay = 10.0
    """Mean over the nodes; nobody takes longer than a minute."""


class WorkloadSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """What is published when."""

    topics: Annotated[int, Meta(ge=1, le=100_000)] = 10
    """Number of topics, 0 .. topics - 1."""
    publish_interval: Literal["poisson", "fixed"] = "poisson"
    """Time between two publications of the whole network: exponentially distributed, or always the same."""
    publish_rate_per_s: Positive = 2.0
    """Messages a second over all topics together. Topics are drawn uniformly among those with a subscriber at that
    instant, the publisher among the subscribers of the first one."""
    topics_per_message: Annotated[int, Meta(ge=1, le=255)] = 1
    """Topics that every message is published on."""
    payload_bytes: Annotated[int, Meta(ge=0, le=1_000_000)] = 200
    """Size of a message's payload, without the frame's header."""
    warmup_s: Span = 5.0
    """From the peers' start to the first publication: links are built."""
    duration_s: Annotated[float, Meta(gt=0, le=604_800)] = 30.0
    """Length of the publishing window."""
    cooldown_s: Span = 3.0
    """From the last publication to the stop: the last messages arrive."""


class CaptureSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Packets kept from the emulated network."""

    enabled: bool = True
    """Capture at all; without it the tables that need the wire stay empty."""
    snaplen_bytes: Annotated[int, Meta(ge=64, le=65_535)] = 96
    """Bytes kept of each packet. 96 holds the headers; frames are then found by the peers' traced stream offsets."""


class PeerSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The process of a node."""

    send_queue_bytes: Count = 1 << 20
    """Bytes waiting for a neighbour beyond which frames to it are dropped (and traced)."""
    metrics: bool = True
    """Serve Prometheus metrics on the control network."""
    record: bool = False
    """Write down every event that the node is told, for `trellis replay`."""
    command: tuple[str, ...] | None = None
    """Another program to run in place of the Python peer; ``{node}``, ``{spec}`` and ``{trace}`` are filled in. It runs
    as the user who started the run, without capabilities."""
    expected_final_state: Literal["exited", "running"] = "exited"
    """What a peer's process must be at the end: exited with status 0 after the stop, or still running."""


class PrometheusSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Scraping."""

    enabled: bool = True
    """Run a Prometheus server that scrapes peers, agents and data plane."""
    scrape_interval_s: Annotated[float, Meta(ge=1)] = 5.0
    """Time between two scrapes of a target."""


class SimulatorSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The simulated testbed."""

    processing_ms: NonNegative = 0.0
    """How long a node is busy with each frame it receives; frames wait for each other, unlike with `[processing]`."""
    encode_frames: bool = False
    """Turn every frame into bytes and back, as a real link does; otherwise nodes are handed the sender's value."""


class ProbeSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """How the fidelity of the emulated network is measured."""

    packets_per_pair: Annotated[int, Meta(ge=2, le=20)] = 3
    """Echo requests to every directed pair before and after the workload; the first is a flow's first packet."""
    during_per_s: Annotated[float, Meta(ge=0, le=10_000)] = 20.0
    """Echo requests a second to random pairs during the workload."""


class VerdictSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The limits a run must keep to be ``valid``."""

    rtt_error_p50_ms: Positive = 0.5
    """Largest acceptable median of the RTT error ..."""
    rtt_error_p50_ratio: Positive = 0.005
    """... or, where that is larger, this part of the RTT asked for."""
    rtt_error_p99_ms: Positive = 1.5
    """Largest acceptable 99th percentile of the RTT error ..."""
    rtt_error_p99_ratio: Positive = 0.01
    """... or, where that is larger, this part of the RTT asked for."""
    lateness_p99_ms: Positive = 0.5
    """Longest acceptable 99th percentile of the data plane's lateness from the workload's begin to the peers' end."""
    wire_error_p99_ms: Positive = 0.5
    """Largest acceptable 99th percentile of |wire delay of a hop - one-way delay asked for|."""
    delivery_ratio_min: Ratio = 0.0
    """Below it the run is ``suspect``: an expectation on the protocol, so off by default."""


class _Opening(Struct, forbid_unknown_fields=True, frozen=True):
    """The keys of an experiment before the protocols' sections."""

    name: Name
    """Names the run's directory below ``runs/``."""
    protocol: ProtocolName = DEFAULT
    """Which protocol the nodes speak; docs/protocols explains each. Its parameters stand in the section of its name, so
    that changing this line alone changes the protocol."""
    description: str = ""
    """For the reader of the file."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    """Everything random in the run is derived from it."""
    testbed: Literal["emulated", "simulated", "remote"] = "emulated"
    """``emulated``: real processes on an emulated network, all here. ``simulated``: the same nodes on virtual time, in
    one process and without root. ``remote``: machines of your own, over SSH."""
    inventory: FilePath | None = None
    """The machines of a ``remote`` testbed (playbooks/inventories). Relative to the file."""
    time_dilation: Annotated[float, Meta(ge=1, le=1000)] = 1.0
    """How many times slower than asked the ``emulated`` testbed runs: delays, timers and schedules stretch together,
    and everything reported is divided back. For a network that this machine cannot carry at its true speed.
    ``simulated`` has no use for it and ignores it, ``remote`` refuses it."""
    supervision: Literal["abort", "continue"] = "abort"
    """When an agent, the prober, Prometheus or a process of the data plane is lost during the run, or the disk is full:
    end the run at once and analyse what there is, or go on. It is ``invalid`` either way."""
    underlay: UnderlaySpec = field(default_factory=UnderlaySpec)


if TYPE_CHECKING:
    _WithProtocols = _Opening
else:
    _WithProtocols = defstruct(
        "_WithProtocols",
        [
            (protocol.section, protocol.parameters, field(default_factory=protocol.parameters))
            for protocol in PROTOCOLS.values()
            if protocol.parameters is not None
        ],
        bases=(_Opening,),
        module=__name__,
        forbid_unknown_fields=True,
        frozen=True,
    )


class Experiment(_WithProtocols, forbid_unknown_fields=True, frozen=True):
    """The experiment itself.

    Its protocols' sections are made from their descriptions; ``section_of`` finds them.
    """

    membership: MembershipSpec = field(default_factory=MembershipSpec)
    partial: PartialParameters = field(default_factory=PartialParameters)
    cyclon: CyclonParameters = field(default_factory=CyclonParameters)
    newscast: NewscastParameters = field(default_factory=NewscastParameters)
    dissemination: DisseminationSpec = field(default_factory=DisseminationSpec)
    flood: FloodParameters = field(default_factory=FloodParameters)
    topic_flood: TopicFloodParameters = field(default_factory=TopicFloodParameters)
    workload: WorkloadSpec = field(default_factory=WorkloadSpec)
    interests: InterestsSpec = field(default_factory=InterestsSpec)
    churn: ChurnSpec = field(default_factory=ChurnSpec)
    adversary: AdversarySpec = field(default_factory=AdversarySpec)
    processing: ProcessingSpec = field(default_factory=ProcessingSpec)
    peer: PeerSpec = field(default_factory=PeerSpec)
    capture: CaptureSpec = field(default_factory=CaptureSpec)
    prometheus: PrometheusSpec = field(default_factory=PrometheusSpec)
    simulator: SimulatorSpec = field(default_factory=SimulatorSpec)
    probes: ProbeSpec = field(default_factory=ProbeSpec)
    verdict: VerdictSpec = field(default_factory=VerdictSpec)


def section_of(experiment: Experiment, part: str) -> Struct | None:
    """The section with the parameters of a part or protocol; None where it has no section."""
    section: Struct | None = getattr(experiment, section_name(part), None)
    return section
