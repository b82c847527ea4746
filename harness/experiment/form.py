"""The form of an experiment file. docs/experiment-spec.md is generated from these types and the text below each field.

Every field names its unit. Constraints are part of the types, so that an error names its place in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct, field, to_builtins
from msgspec.structs import force_setattr

from harness.experiment.peers import PeerSpec
from harness.planes.registry import AUTO, PLANES
from harness.planes.registry import DEFAULT as DEFAULT_PLANE
from harness.testbeds.registry import DEFAULT as DEFAULT_TESTBED
from harness.testbeds.registry import TESTBEDS
from peer.core.addressing.expression import MAX_TERMS
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
from topologies.importers import Missing, Times
from topologies.jitter import CORRELATION_MS
from topologies.kinds import GENERATORS, IMPORTERS, carried_by
from topologies.limits import FASTEST_MBIT, LARGEST_DELAY_MS, MOST_HOSTS
from topologies.link_graph import MOST_ROUTERS

if TYPE_CHECKING:
    ProtocolName = str
    TestbedName = str
    PlaneName = str
    MembershipName = str
    DisseminationName = str
    AdversaryName = str
    UnderlayKind = str
else:
    ProtocolName = Literal[tuple(PROTOCOLS)]
    TestbedName = Literal[tuple(TESTBEDS)]
    PlaneName = Literal[(*PLANES, AUTO)]
    MembershipName = Literal[tuple(MEMBERSHIPS)]
    DisseminationName = Literal["protocol", *SHARED_DISSEMINATIONS]
    AdversaryName = Literal["none", *ADVERSARIES]
    UnderlayKind = Literal[*GENERATORS, *IMPORTERS]

_ON_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]"
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}\Z")]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Span = Annotated[float, Meta(ge=0, le=604_800)]
Instant = Annotated[float, Meta(ge=-604_800, le=1_209_600)]
Duration = Annotated[float, Meta(ge=1e-9, le=1e9)]
TraceInstant = Annotated[float, Meta(ge=-1e18, le=1e18)]
Delay = Annotated[float, Meta(gt=0, le=LARGEST_DELAY_MS)]
OptionalDelay = Annotated[float, Meta(ge=0, le=LARGEST_DELAY_MS)]
AccessRate = Annotated[float, Meta(ge=0, le=FASTEST_MBIT)]
TopoName = Annotated[str, Meta(pattern=rf"^({_ON_LINE}+\.py:)?[A-Za-z_][A-Za-z0-9_]*(,{_ON_LINE}*)?\Z")]
FilePath = Annotated[str, Meta(min_length=1)]
Group = Annotated[str, Meta(min_length=1)] | Count | tuple[Annotated[int, Meta(ge=0)], ...]


class LinksSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Values for a class of links instead of those of `[underlay]`; exactly one of `nodes` and `between`.

    Groups are those of `[[faults]]`. A key that is not set leaves the value as it is.
    """

    nodes: Group | None = None
    """The access links of these nodes' hosts, and the pairs between them and all hosts."""
    between: tuple[Group, Group] | None = None
    """The pairs between the hosts of two groups."""
    direction: Literal["both", "to", "from"] = "both"
    """Which pairs are meant, as seen from the first group: those from it, those to it, or both."""
    rate_mbit: AccessRate | None = None
    """Access rate, each way (``nodes``)."""
    up_mbit: AccessRate | None = None
    """Access rate towards the network (``nodes``)."""
    down_mbit: AccessRate | None = None
    """Access rate from the network (``nodes``)."""
    queue_ms: Annotated[float, Meta(ge=0.001, le=LARGEST_DELAY_MS)] | None = None
    """Length of the access link's queue (``nodes``)."""
    queue_bytes: Count | None = None
    """The same in bytes (``nodes``)."""
    jitter_ms: OptionalDelay | None = None
    """Standard deviation of the pairs' one-way delay."""
    loss_ratio: Annotated[float, Meta(ge=0, lt=1)] | None = None
    """Probability that a packet of the pairs is lost, each way."""


class UnderlaySpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The emulated or simulated network."""

    kind: UnderlayKind = "world-cities"
    """``world-cities``: cities, with delays modelled from distances. ``unit-square``: random points, delays by
    distance. ``uniform``: all delays equal. ``dumbbell``: two routers with one link. ``fat-tree``: the switches of a
    data centre. ``waxman``, ``barabasi-albert``: random graphs of routers. ``measured-cities``: delays measured between
    217 cities, which ship with Trellis. ``wondernetwork``: those between 246 cities, per direction and with jitter.
    ``matrix``, ``pairs``, ``mesh``: your own matrix, list of pairs or JSON. ``ethp2p``: the ``topology.json`` of its
    simulations. ``graphml``, ``gml``, ``rocketfuel``: routers and links, as of the Topology Zoo, Shadow and Rocketfuel;
    a host at each router, and delays along the shortest paths. ``mininet``, ``miniedit``: the hosts, switches and links
    of a ``Topo`` class or a file of MiniEdit."""
    hosts: Annotated[int, Meta(ge=2, le=MOST_HOSTS)] | None = None
    """Number of hosts; each runs one node. Default: every site of the data, every router (``waxman``,
    ``barabasi-albert``), every port (``fat-tree``), or 20 of other generated networks. A smaller number is a sample."""
    path: FilePath | None = None
    """The data: a file, or a WonderNetwork folder (default: below $TRELLIS_DATA); relative to this file."""
    topo: TopoName | None = None
    """A ``Topo`` of Mininet (``mininet``), with arguments as ``mn --topo`` has them: ``mytopo.py:MyTopo,3``, or one of
    Mininet's own, such as ``tree,2,3``. The file is run, and is relative to this file."""
    times: Times | None = None
    """What the file's times are: ``rtt`` or ``one-way``. Default: what its header or keys say; ``one-way`` for
    ``matrix``."""
    directed: bool | None = None
    """Whether a row is about one direction (``pairs``, ``mesh``). Default: no, if no two hosts have a row in both
    directions."""
    missing: Missing = "refuse"
    """Pairs without a time (``pairs``, ``mesh``, ``ethp2p``). ``refuse``: refuse the file. ``reverse``: take the other
    direction's time. ``relay``: the same, otherwise the best sum over one relay. ``path``: the same, otherwise the
    shortest path. ``drop``: drop the hosts with most missing pairs until none is missing. Of a graph (``graphml``,
    ``gml``, ``rocketfuel``, ``mininet``, ``miniedit``), ``drop`` keeps the largest connected part, and all others
    refuse a graph in parts."""
    delay_ms: Delay = 50.0
    """One-way delay between any two hosts (``uniform``), of the link between the two routers (``dumbbell``), or of
    every link (``fat-tree``)."""
    side_ms: Delay = 100.0
    """One-way delay across one side of the square (``unit-square``), also of a link of that length (``waxman``,
    ``barabasi-albert``)."""
    routers: Annotated[int, Meta(ge=2, le=MOST_ROUTERS)] | None = None
    """Number of routers (``waxman``, ``barabasi-albert``). Default: that of the hosts."""
    pods: Annotated[int, Meta(ge=2, le=34, multiple_of=2)] = 4
    """Ports of a switch (``fat-tree``): k pods of k switches, (k / 2)^2 core switches, and, if ``hosts`` is not set,
    k / 2 hosts at each of the k^2 / 2 edge switches."""
    waxman_alpha: Annotated[float, Meta(gt=0, le=1)] = 0.6
    """Probability of a link between two routers at the same point (``waxman``). The probability falls with the distance
    d between two points of the unit square: alpha exp(-d / (beta sqrt(2)))."""
    waxman_beta: Annotated[float, Meta(gt=0, le=1)] = 0.3
    """How slowly that probability falls (``waxman``)."""
    links_per_router: Annotated[int, Meta(ge=1, le=100)] = 2
    """Links that each router adds to earlier ones (``barabasi-albert``)."""
    access_delay_ms: OptionalDelay = 1.0
    """Delay of the access link of hosts in the same city or at the same router, if there are more hosts than those. The
    one-way delay between two such hosts is twice this; delays between cities or routers do not change."""
    jitter: Literal["measured", "none"] | OptionalDelay = "measured"
    """``measured`` (if the data has it), ``none``, or the standard deviation of every one-way delay in ms."""
    jitter_correlation_ms: Delay = CORRELATION_MS
    """How long the delays of a pair's packets resemble each other under jitter: a delay has a random value each such
    time, and is linear in between. Where the delay would change by more than half of that time, it is longer."""
    loss_ratio: Literal["measured"] | Annotated[float, Meta(ge=0, lt=1)] = "measured"
    """``measured`` (if the data has it), or the probability that a packet is lost, each way, on every pair."""
    rate_mbit: AccessRate | None = None
    """Access rate of every host, each way, at least 0.001; 0 = unlimited. Default: that of the data (if they have it),
    otherwise unlimited."""
    up_mbit: AccessRate | None = None
    """Access rate of every host towards the network, likewise. Default: ``rate_mbit``."""
    down_mbit: AccessRate | None = None
    """Access rate of every host from the network, likewise. Default: ``rate_mbit``."""
    queue_ms: Annotated[float, Meta(ge=0.001, le=LARGEST_DELAY_MS)] = 100.0
    """Length of the access link's drop-tail queue."""
    queue_bytes: Count | None = None
    """Its length in bytes, instead of ``queue_ms``: a packet with more bytes ahead of it is dropped. Links without a
    rate keep ``queue_ms``."""
    link_rate_mbit: AccessRate = 0.0
    """Rate of every link of a graph that has none of its own, each direction by itself, at least 0.001; 0 = unlimited
    (``graphml``, ``gml``, ``rocketfuel``)."""
    link_queue_ms: Annotated[float, Meta(ge=0.001, le=LARGEST_DELAY_MS)] = 100.0
    """Length of the drop-tail queue of every link of a graph that has a rate and no queue of its own."""
    links: tuple[LinksSpec, ...] = ()
    """Other values for classes of hosts or pairs of hosts ([underlays.md](underlays.md#classes-of-links)). Of entries
    about the same link, the later one holds, key by key."""

    def __post_init__(self) -> None:
        """Fill in the rate of networks that have none of their own."""
        if self.rate_mbit is None and "rates" not in carried_by(self.kind):
            force_setattr(self, "rate_mbit", 0.0)


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


class InterestsSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Which nodes subscribe to which topics."""

    kind: Literal["independent", "popularity", "grid", "buckets", "follower-graph", "file"] = "independent"
    """``independent``: every node takes every topic with the same probability. ``popularity``: a number of topics,
    drawn by popularity (SpiderCast 3.1). ``grid``: the topics within a radius on a grid (StAN 3). ``buckets``: topics
    from a few buckets (Vitis IV-A). ``follower-graph``: a sample of a graph in which every user is a node and a topic
    (Vitis IV-E). ``file``: your own file."""
    ratio: Ratio = 0.2
    """Probability of every pair of node and topic (``independent``); a node may end up with no topic."""
    popularity: Literal["zipf", "nyse", "uniform"] = "zipf"
    """The topics' weights in order of topic, largest first (``popularity``). ``zipf``: rank to the power of -exponent;
    0.5 is the papers' RSS. ``nyse``: exponential; the first tenth of the topics has 0.55 of the weight."""
    zipf_exponent: Annotated[float, Meta(ge=0, le=10)] = 0.5
    """Exponent of ``zipf``."""
    subscriptions_min: Count = 10
    """Fewest topics of a node (``popularity``); the number is drawn uniformly."""
    subscriptions_max: Count = 10
    """Most topics of a node (``popularity``)."""
    grid_side: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    """Cells along a side of the square on which nodes and topics are placed at random (``grid``)."""
    copies_exponent: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """Exponent of the power law of the number of copies of a topic on the grid (``grid``)."""
    copies_max: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """Largest number of copies of a topic (``grid``)."""
    radius_exponent: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """Exponent of the power law of the nodes' radii of interest (``grid``)."""
    radius_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 50
    """Largest radius in cells (``grid``)."""
    buckets: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """Number of buckets of equal size into which the topics are divided (``buckets``)."""
    buckets_per_node: Count = 2
    """Number of buckets of each node (``buckets``)."""
    topics_per_bucket: Count = 25
    """Number of topics that a node takes from each of its buckets (``buckets``)."""
    path: FilePath | None = None
    """CSV lines ``node,topic``, or a .jsonl file of lines ``{"node": 3, "topics": [1, 7]}`` (``file``); lines
    ``follower followee followee ...``, may be gzipped (``follower-graph``; default: ego-Twitter below $TRELLIS_DATA).
    Relative to this file."""


class ScriptedAction(Struct, forbid_unknown_fields=True, frozen=True):
    """An entry of the script."""

    at_s: Instant
    """Seconds after the start of the publishing window; negative during the warm-up."""
    node: Annotated[int, Meta(ge=0)]
    """Number of the node."""
    action: Literal["join", "leave", "crash", "vanish", "subscribe", "unsubscribe"]
    """What the node does. A node whose first entry is a join is down at the start. ``vanish``: a silent crash."""
    topics: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Topics of a subscribe, an unsubscribe or a join; a join without topics takes those of the interest model."""
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """How many nodes do this at this instant: `node` and those with the next numbers."""


class ChurnSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Which nodes join and leave, from the peers' start to their stop."""

    kind: Literal["none", "exponential", "sessions", "script"] = "none"
    """``exponential``: exponentially distributed times up and down, stationary from the start (SpiderCast 3.8).
    ``sessions``: from a trace. ``script``: the entries of ``script``."""
    on_s: Duration = 300.0
    """Mean time that a node is up (``exponential``)."""
    off_s: Duration | None = None
    """Mean time that a node is down (``exponential``). Default: a quarter of ``on_s``."""
    crash_ratio: Ratio = 0.0
    """Share of departures that are crashes (``exponential``, ``sessions``); the others are orderly leaves."""
    silent_ratio: Ratio = 0.0
    """Share of crashes that are silent (``exponential``, ``sessions``): the host vanishes without closing its
    connections. Not on the ``remote`` testbed, and not with ``peer.command``."""
    new_interests: bool = True
    """Draw new topics for a node at every join instead of keeping its first ones (``exponential``, ``sessions``)."""
    path: FilePath | None = None
    """CSV lines ``node,from_s,to_s``, may be gzipped (``sessions``); relative to this file. Default: Skype's
    superpeers below $TRELLIS_DATA."""
    origin_s: TraceInstant = 0.0
    """The trace's instant at which the run starts (``sessions``)."""
    end_s: TraceInstant | None = None
    """End of the window of the trace, which starts at ``origin_s`` (``sessions``). Only nodes with a session in the
    window are used, in an order drawn from the seed. If there are more nodes in the run, the trace's nodes are used
    again, each time with their sessions shifted cyclically within the window by a time drawn from the seed. Default:
    no window; the trace's nodes are used in the order of their first lines, each once."""
    speedup: Annotated[float, Meta(ge=1e-9, le=1e9)] = 1.0
    """Seconds of the trace per second of the run (``sessions``)."""
    flash_ratio: Ratio = 0.0
    """Share of the nodes that form a flash crowd, drawn from the seed: instead of following ``kind``, they are down,
    join around ``flash_at_s``, and stay (all kinds except ``script``)."""
    flash_at_s: Instant = 0.0
    """Instant at which the flash crowd begins to join, in seconds after the start of the publishing window."""
    flash_span_s: Span = 10.0
    """Time within which the flash crowd joins, each node at an instant drawn uniformly."""
    script: tuple[ScriptedAction, ...] = ()
    """The changes in order of time (``script``)."""


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


class WorkloadSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """What is published, and when."""

    topics: Annotated[int, Meta(ge=1, le=100_000)] = 10
    """Number of topics; they are numbered from 0."""
    publish_interval: Literal["poisson", "fixed"] = "poisson"
    """Time between two publications in the whole network: exponentially distributed, or always the same."""
    publish_rate_per_s: Annotated[float, Meta(ge=1e-9)] = 2.0
    """Messages per second on all topics together. Topics are drawn among those that have a subscriber, the publisher
    uniformly among the subscribers of the first topic; with ``interests.kind = "follower-graph"`` it is the topic's own
    user. The publisher of a message with an expression is drawn from all nodes that are up."""
    rate_exponent: Annotated[float, Meta(ge=0, le=10)] = 0.0
    """Exponent of the power law of the topics' shares of the messages: a topic is drawn with a probability proportional
    to rank to the power of -exponent, with ranks drawn from the seed (Vitis IV-D). 0 = all topics are equal."""
    topics_per_message: Annotated[int, Meta(ge=1, le=255)] = 1
    """Number of topics of every message."""
    payload_bytes: Annotated[int, Meta(ge=0, le=1_000_000)] = 200
    """Size of a message's payload, without the frame's header."""
    warmup_s: Span = 5.0
    """Time from the peers' start to the publishing window, in which nodes build links."""
    duration_s: Annotated[float, Meta(gt=0, le=604_800)] = 30.0
    """Length of the publishing window."""
    cooldown_s: Span = 3.0
    """Time from the publishing window to the stop, in which the last messages arrive."""
    settle_s: Span = 0.0
    """A message counts as an expected delivery only at nodes that joined at least this long before it was published
    (Vitis IV-E: 10 s). Nodes that are up from the start always count."""

    @property
    def spans_s(self) -> dict[str, float]:
        """The lengths of the phases, in their order."""
        return {"warmup": self.warmup_s, "workload": self.duration_s, "cooldown": self.cooldown_s}

    @property
    def length_s(self) -> float:
        """The time from the peers' start to the stop."""
        return sum(self.spans_s.values())


class GroupSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A group of nodes for `[[faults]]` and `[[underlay.links]]`; exactly one key.

    Groups that are there without a section: `all`, the continents (`africa`, `asia`, `europe`, `north-america`,
    `oceania`, `south-america`) if the underlay has positions, and the cities of its hosts (`sao-paulo`). `rest` is what
    no other group of the same entry has.
    """

    region: Literal["africa", "asia", "europe", "north-america", "oceania", "south-america"] | None = None
    """A continent: its nodes are those whose nearest city of the embedded list is on it."""
    city: Annotated[str, Meta(min_length=1)] | None = None
    """A city of the underlay; spaces, accents and capitals do not matter."""
    nodes: tuple[Annotated[int, Meta(ge=0)], ...] | None = None
    """Numbers of the nodes."""
    share: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Share of the nodes, drawn from the seed; at least one node."""
    number: Count | None = None
    """How many nodes, drawn from the seed."""


class DegradeSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """How a fault makes links worse."""

    delay_factor: Annotated[float, Meta(ge=1, le=1000)] = 1.0
    """How many times longer the delay is."""
    jitter_ms: OptionalDelay = 0.0
    """Standard deviation of a further delay of mean 0."""
    loss_ratio: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Probability of a further loss of a packet."""
    rate_mbit: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Highest rate of the access links of the first group, at least 0.001; 0 = no limit. The second group of `between`
    is `all` then, since access links are shared by all pairs of a host."""


class FlapSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A connection that comes and goes."""

    period_s: Annotated[float, Meta(ge=0.001, le=604_800)]
    """Time from one loss of the connection to the next."""
    down_s: Annotated[float, Meta(ge=0.001, le=604_800)]
    """Time without connection in each period, at its start; less than ``period_s``."""


class FaultSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Something that happens to the network or to peers during the run; exactly one of the seven verbs.

    A group is a name (`[groups]`), a number of nodes that are drawn from the seed, or a list of nodes. Entries that
    overlap compose: factors multiply, losses and jitter are independent, the smallest rate wins, a cut beats all.
    """

    at_s: Instant
    """Seconds after the start of the publishing window; negative during the warm-up."""
    for_s: Duration | None = None
    """Time after which it heals. Default, and at the latest: at the end of the cool-down."""
    partition: tuple[Group, ...] | None = None
    """Verb: nodes of different groups of this list do not reach each other. No node is in two of them."""
    isolate: Group | None = None
    """Verb: the nodes of the group and all other nodes do not reach each other."""
    cut: tuple[Group, Group] | None = None
    """Verb: the nodes of the first group and those of the second do not reach each other. The groups may overlap."""
    sever: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Verb: so large a share of all pairs of nodes, drawn from the seed, do not reach each other."""
    degrade: DegradeSpec | None = None
    """Verb: links are worse."""
    flap: FlapSpec | None = None
    """Verb: ``nodes`` lose the connection to all other nodes again and again."""
    pause: Group | None = None
    """Verb: the group's peers do nothing, as with SIGSTOP, while their hosts' kernels acknowledge what arrives."""
    between: tuple[Group, Group] | None = None
    """The links that ``degrade`` makes worse: those between these groups. Default: all links."""
    nodes: Group | None = None
    """The nodes of ``flap``."""
    direction: Literal["both", "to", "from"] = "both"
    """Which packets are meant, as seen from the first group: those from it, those to it, or both. Not with ``sever``
    and ``pause``, and with ``partition`` only for two groups."""
    in_flight: Literal["arrive", "lost"] = "arrive"
    """What happens to packets that are under way when a link is cut: they arrive, as if a router had failed, or are
    lost, as if the cable were cut (``partition``, ``isolate``, ``cut``,
    ``sever``, ``flap``)."""


class ExpressionsSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages for the nodes that satisfy an expression over keywords, instead of for the subscribers of topics."""

    kind: Literal["none", "keywords", "nodes", "list"] = "none"
    """Where each message's expression comes from. ``none``: messages have none. ``keywords``: it is a disjunction of
    conjunctions of keywords, which are drawn by popularity. ``nodes``: the same, but the keywords of each conjunction
    are drawn from those of a random node, which is a member of the group. ``list``: one of ``texts``, all of them
    equally likely."""
    terms_min: Annotated[int, Meta(ge=1, le=MAX_TERMS)] = 1
    """Fewest conjunctions of an expression (``keywords``, ``nodes``); the number is drawn uniformly."""
    terms_max: Annotated[int, Meta(ge=1, le=MAX_TERMS)] = 1
    """Most conjunctions of an expression (``keywords``, ``nodes``)."""
    keywords_min: Count = 1
    """Fewest keywords of a conjunction (``keywords``, ``nodes``); the number is drawn uniformly. With ``nodes`` a
    conjunction has no more keywords than the node."""
    keywords_max: Count = 2
    """Most keywords of a conjunction (``keywords``, ``nodes``)."""
    zipf_exponent: Annotated[float, Meta(ge=0, le=10)] = 0.5
    """A keyword is drawn with a probability proportional to the rank of its topic to the power of -exponent
    (``keywords``). 0 = all keywords are equally likely."""
    texts: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """The expressions (``list``), such as ``a&(b|c)``. Topic 0 has the keyword a, topic 25 z, topic 26 aa."""
    empty_groups: bool = False
    """Whether a message may be for no node (``keywords``, ``list``). ``false``: a drawn expression that no other node
    than the publisher satisfies is replaced by the next one drawn."""


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
    """Echo requests to every directed pair before and after the workload; the first one is a flow's first packet."""
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
    time_dilation: Annotated[float, Meta(ge=1, le=1000)] = 1.0
    """Factor by which the ``emulated`` testbed runs slower: delays, timers and schedules stretch, and reported times
    are divided by it. For a network that this machine cannot carry at full speed. ``simulated`` ignores it, ``remote``
    refuses it."""
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


OPTIONAL = (
    "up_mbit",
    "down_mbit",
    "queue_bytes",
    "link_rate_mbit",
    "link_queue_ms",
    "links",
    "jitter_correlation_ms",
)
"""The keys of ``[underlay]`` that a plan has only if they are not as usual."""

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
    ``expressions`` if messages have none, ``faults`` if there are none, ``groups`` if nothing names them, and the keys
    of ``OPTIONAL`` that are as usual.
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
    return found
