"""The form of an experiment file. docs/experiment-spec.md is generated from these types and the text below each field.

Every field names its unit. Constraints are part of the types, so that an error names its place in the file. Larger
sections are in ``harness.experiment.sections``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct, field, to_builtins

from harness.experiment.sections.faults import FaultSpec, GroupSpec
from harness.experiment.sections.peer import PeerSpec
from harness.experiment.sections.underlay import OPTIONAL, UnderlaySpec
from harness.experiment.sections.values import Delay, FilePath, Name, OptionalDelay, Positive, Ratio
from harness.experiment.sections.workload import ChurnSpec, ExpressionsSpec, InterestsSpec, WorkloadSpec
from harness.planes.registry import AUTO, PLANES
from harness.planes.registry import DEFAULT as DEFAULT_PLANE
from harness.testbeds.registry import DEFAULT as DEFAULT_TESTBED
from harness.testbeds.registry import TESTBEDS
from peer.core.adversary import Adversary, DropperParameters, SlowNodeParameters
from peer.core.asker import AskerParameters
from peer.core.dissemination.flood import FloodParameters
from peer.core.dissemination.notify_pull import NotifyPullParameters
from peer.core.dissemination.topic_flood import TopicFloodParameters
from peer.core.membership.cyclon import CyclonParameters
from peer.core.membership.newscast import NewscastParameters
from peer.core.membership.partial_view import PartialParameters
from peer.plugins import PluginError
from peer.protocols.description import Description, section_name
from peer.protocols.registry import ADVERSARIES, DEFAULT, MEMBERSHIPS, PROTOCOLS, SHARED_DISSEMINATIONS
from topologies.generators import Generator
from topologies.kinds import GENERATORS

if TYPE_CHECKING:
    ProtocolName = str
    TestbedName = str
    PlaneName = str
    MembershipName = str
    DisseminationName = str
    AdversaryName = str
else:
    ProtocolName = Literal[tuple(PROTOCOLS)]
    TestbedName = Literal[tuple(TESTBEDS)]
    PlaneName = Literal[(*PLANES, AUTO)]
    MembershipName = Literal[tuple(MEMBERSHIPS)]
    DisseminationName = Literal["protocol", *SHARED_DISSEMINATIONS]
    AdversaryName = Literal["none", *ADVERSARIES]


class MembershipSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Which nodes a node knows."""

    kind: MembershipName = "full"
    """``full``: every node, from the bootstrap service. ``partial``: some of them. ``cyclon``, ``newscast``: a few,
    which nodes exchange with each other. The section of that name has the parameters."""
    refresh_s: Annotated[float, Meta(ge=0.001, le=604_800)] = 5.0
    """Under churn, the shortest time between two updates of the bootstrap service to all nodes."""


class DisseminationSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """How a message spreads over the overlay."""

    kind: DisseminationName = "protocol"
    """``protocol``: as the protocol does. ``flood``: to all neighbours, with a TTL. ``topic-flood``: along each topic's
    links. ``notify-pull``: along the links that the overlay chose for each topic, by notification and pull."""


class AdversarySpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Nodes that misbehave."""

    kind: AdversaryName = "none"
    """``topic-attacker``: subscribes to the victim topics and forwards nothing on them. ``eclipse``: linked with all
    other adversaries. ``slow``: handles every frame late. ``dropper``: does not forward some copies. ``asker``: asks
    every node for its topics."""
    ratio: Ratio = 0.1
    """Share of nodes that misbehave, drawn from the seed."""
    nodes: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Numbers of the nodes that misbehave, instead of ``ratio``."""
    victim_topics: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Topics that adversaries of any kind subscribe to at every join, in addition to those of the interest model."""
    delay_ms: Delay = SlowNodeParameters().delay_ms
    """Delay before a frame is handled (``slow``)."""
    drop_ratio: Ratio = DropperParameters().drop_ratio
    """Probability that a copy of another node's message is not forwarded (``dropper``)."""
    ask_interval_ms: Delay = AskerParameters(topics=0).ask_interval_ms
    """Time between two questions of an adversary (``asker``)."""
    publish: bool = True
    """Whether adversaries publish like other nodes. ``false``: topics to which only adversaries subscribe have no
    messages."""


class ProcessingSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Delay between a frame's arrival and its handling (Topiary's delta_v); frames do not wait for each other."""

    kind: Literal["none", "constant", "uniform", "exponential"] = "none"
    """Distribution of the nodes' delays, adversaries included. Each node's delay is drawn from the seed. ``constant``:
    the mean for all. ``uniform``: between 0 and twice the mean. ``exponential``: most below the mean, a few far above
    it."""
    mean_ms: Delay = 10.0
    """Mean over the nodes; no node's delay exceeds one minute."""


class CaptureSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Packet capture on the emulated network."""

    enabled: bool = True
    """Capture packets. Without a capture the tables that need it are empty."""
    snaplen_bytes: Annotated[int, Meta(ge=64, le=65_535)] = 96
    """Bytes kept of each packet. 96 bytes hold the headers; the stream offsets in the traces then locate the frames."""
    checked_hosts: Annotated[int, Meta(ge=0, le=64)] = 3
    """Hosts in which the kernel captures, too, to check the data plane's capture (``emulated``); all hosts if there are
    fewer. The seed chooses them. 0 = none."""


class PrometheusSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The Prometheus server."""

    enabled: bool = True
    """Run a Prometheus server that scrapes peers, agents and data plane."""
    scrape_interval_s: Annotated[float, Meta(ge=1, le=604_800)] = 5.0
    """Time between two scrapes of a target."""


class SimulatorSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The simulated testbed."""

    processing_ms: OptionalDelay = 0.0
    """Time that a node needs for each received frame; frames wait for each other, unlike with `[processing]`."""
    encode_frames: bool = False
    """Encode and decode every frame, as a real link does; otherwise the receiver gets the sender's object."""


class ProbeSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """How the fidelity of the emulated network is measured."""

    packets_per_pair: Annotated[int, Meta(ge=2, le=20)] = 3
    """The most requests between two hosts before the workload, and after it. On emulated testbeds one is enough if its
    RTT is within the limit of the median and at most 0.4 ms from what was asked for; on the others, every directed pair
    has as many."""
    during_per_s: Annotated[float, Meta(ge=0, le=10_000)] = 20.0
    """Echo requests per second to random pairs during the workload."""


class VerdictSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The limits of a ``valid`` run."""

    rtt_error_p50_ms: Positive = 0.5
    """Limit on the median RTT error; the larger of this and ``rtt_error_p50_ratio`` applies."""
    rtt_error_p50_ratio: Positive = 0.005
    """Limit on the median RTT error as a share of the configured RTT."""
    rtt_error_p99_ms: Positive = 1.5
    """Limit on the 99th percentile of the RTT error; the larger of this and ``rtt_error_p99_ratio`` applies."""
    rtt_error_p99_ratio: Positive = 0.01
    """Limit on the 99th percentile of the RTT error as a share of the configured RTT."""
    lateness_p99_ms: Positive = 0.5
    """Limit on the 99th percentile of the data plane's lateness, from the start of the workload to the end of the
    peers."""
    wire_error_p99_ms: Positive = 0.5
    """Limit on the 99th percentile of |wire delay of a hop - configured one-way delay|."""
    delivery_ratio_min: Ratio = 0.0
    """A lower delivery ratio makes the run ``suspect``; 0 = no limit."""


class _Opening(Struct, forbid_unknown_fields=True, frozen=True):
    """The keys of an experiment that come before the protocols' sections."""

    name: Name
    """Name of the run's directory below ``runs/``."""
    protocol: ProtocolName = DEFAULT
    """The protocol of the nodes (docs/protocols). The section of its name has its parameters, so that changing only
    this line changes the protocol."""
    description: str = ""
    """A note for readers of the file."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    """Seed of all random draws of the run."""
    testbed: TestbedName = DEFAULT_TESTBED
    """Where the nodes run: [Testbeds](#testbeds) describes each testbed and what it can do."""
    plane: PlaneName = DEFAULT_PLANE
    """What carries packets on the ``emulated`` testbed. ``userspace``: a process of Trellis
    ([dataplane.md](dataplane.md)). ``kernel``: netem of the kernel ([kernel-plane.md](kernel-plane.md)). ``auto``: the
    kernel where the plan is made, if it can do all that the experiment asks for, otherwise ``userspace``; the plan says
    which."""
    inventory: FilePath | None = None
    """File with the machines of a ``remote`` testbed (playbooks/inventories); relative to this file."""
    time_dilation: Annotated[float, Meta(ge=1, le=1000)] | Literal["auto"] = 1.0
    """Factor by which the ``emulated`` testbed runs slower: delays, timers and schedules stretch, and reported times
    are divided by it. For a network that this machine cannot carry at full speed. ``auto``: the smallest of
    `DILATIONS` at which the run is predicted to fit on this machine ([What `plan` predicts](#what-plan-predicts)); the
    plan has the number. ``simulated`` ignores the factor, ``remote`` refuses it."""
    supervision: Literal["abort", "continue"] = "abort"
    """When an agent, the prober, Prometheus or a process of the data plane ends during the run, or the disk is full:
    end the run at once and analyse it, or continue. The run is ``invalid`` in both cases."""
    underlay: UnderlaySpec = field(default_factory=UnderlaySpec)


_DESCRIPTIONS: tuple[Description | Adversary | Generator, ...] = (
    *PROTOCOLS.values(),
    *ADVERSARIES.values(),
    *GENERATORS.values(),
)

_DESCRIBED = tuple((section_name(each.name), each.parameters) for each in _DESCRIPTIONS if each.parameters is not None)
"""The sections of protocols, adversaries and underlays, and the forms of their parameters."""

if TYPE_CHECKING:
    _WithSections = _Opening
else:
    _WithSections = defstruct(
        "_WithSections",
        [(section, parameters, field(default_factory=parameters)) for section, parameters in _DESCRIBED],
        bases=(_Opening,),
        module=__name__,
        forbid_unknown_fields=True,
        frozen=True,
    )


class Experiment(_WithSections, forbid_unknown_fields=True, frozen=True):
    """The keys of the experiment.

    The sections of protocols, adversaries and underlays are made from their descriptions; ``section_of`` finds them.
    """

    membership: MembershipSpec = field(default_factory=MembershipSpec)
    partial: PartialParameters = field(default_factory=PartialParameters)
    cyclon: CyclonParameters = field(default_factory=CyclonParameters)
    newscast: NewscastParameters = field(default_factory=NewscastParameters)
    dissemination: DisseminationSpec = field(default_factory=DisseminationSpec)
    flood: FloodParameters = field(default_factory=FloodParameters)
    topic_flood: TopicFloodParameters = field(default_factory=TopicFloodParameters)
    notify_pull: NotifyPullParameters = field(default_factory=NotifyPullParameters)
    workload: WorkloadSpec = field(default_factory=WorkloadSpec)
    interests: InterestsSpec = field(default_factory=InterestsSpec)
    expressions: ExpressionsSpec = field(default_factory=ExpressionsSpec)
    churn: ChurnSpec = field(default_factory=ChurnSpec)
    groups: dict[str, GroupSpec] = field(default_factory=dict)
    """Groups of nodes by name, for ``faults`` and ``underlay.links`` ([faults.md](faults.md))."""
    faults: tuple[FaultSpec, ...] = ()
    """What happens to the network and to peers during the run ([faults.md](faults.md)). A group of nodes is a name, a
    number of nodes that the seed draws, or a list of nodes."""
    adversary: AdversarySpec = field(default_factory=AdversarySpec)
    processing: ProcessingSpec = field(default_factory=ProcessingSpec)
    peer: PeerSpec = field(default_factory=PeerSpec)
    capture: CaptureSpec = field(default_factory=CaptureSpec)
    prometheus: PrometheusSpec = field(default_factory=PrometheusSpec)
    simulator: SimulatorSpec = field(default_factory=SimulatorSpec)
    probes: ProbeSpec = field(default_factory=ProbeSpec)
    verdict: VerdictSpec = field(default_factory=VerdictSpec)

    @property
    def dilation(self) -> float:
        """Real seconds per virtual second; 1 as long as the plan has not chosen it."""
        return 1.0 if isinstance(self.time_dilation, str) else self.time_dilation


_NAMES = [*_Opening.__annotations__, *Experiment.__annotations__, *(section for section, _ in _DESCRIBED)]
"""The keys of the top level."""

if taken := {name for name in _NAMES if _NAMES.count(name) > 1}:
    raise PluginError(f"a plugin uses the name of the section {min(taken)}; choose another one")


def section_of(experiment: Experiment, part: str) -> Struct | None:
    """Return the section with the parameters of a part or protocol; None if it has no section."""
    section: Struct | None = getattr(experiment, section_name(part), None)
    return section


def resolve(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as plain values with every default filled in.

    The sections of other protocols, adversaries and underlays are left out, but for a protocol whose overlay the
    protocol uses: they have no effect, and so a plan's hash does not depend on which others there are. So are
    ``expressions`` if messages have none, ``faults`` if there are none, ``groups`` if nothing names them, the keys of
    ``OPTIONAL`` that are as usual, and ``peer.processes`` if there are none.
    """
    protocol = PROTOCOLS[experiment.protocol]
    used = (protocol.name, protocol.composition.overlay["name"], experiment.adversary.kind, experiment.underlay.kind)
    others = {section for section, _ in _DESCRIBED} - {section_name(name) for name in used}
    if experiment.expressions.kind == "none":
        others.add("expressions")
    if not experiment.faults:
        others |= {"faults"} if experiment.underlay.links else {"faults", "groups"}
    found = {name: value for name, value in to_builtins(experiment).items() if name not in others}
    usual = to_builtins(UnderlaySpec())
    found["underlay"] = {
        name: value for name, value in found["underlay"].items() if name not in OPTIONAL or value != usual[name]
    }
    if not experiment.peer.processes:
        del found["peer"]["processes"]
    return found
