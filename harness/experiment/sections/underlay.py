"""The section ``underlay`` of an experiment: the emulated or simulated network."""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from harness.experiment.sections.values import ON_LINE, AccessRate, Count, Delay, FilePath, Group, OptionalDelay
from topologies.importers import Missing, Times
from topologies.jitter import CORRELATION_MS
from topologies.kinds import GENERATORS, IMPORTERS, carried_by
from topologies.limits import LARGEST_DELAY_MS, MOST_HOSTS
from topologies.link_graph import MOST_ROUTERS

if TYPE_CHECKING:
    UnderlayKind = str
else:
    UnderlayKind = Literal[*GENERATORS, *IMPORTERS]

TopoName = Annotated[str, Meta(pattern=rf"^({ON_LINE}+\.py:)?[A-Za-z_][A-Za-z0-9_]*(,{ON_LINE}*)?\Z")]


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
    a host at each router, and delays along the shortest paths. ``shadow``: the hosts and the network of a
    ``shadow.yaml``. ``mininet``, ``miniedit``: the hosts, switches and links of a ``Topo`` class or a file of
    MiniEdit."""
    hosts: Annotated[int, Meta(ge=2, le=MOST_HOSTS)] | None = None
    """Number of hosts; each runs one node. Default: every site of the data, every router (``waxman``,
    ``barabasi-albert``), every port (``fat-tree``), or 20 of other generated networks. A smaller number is a sample."""
    path: FilePath | None = None
    """The data: a file or a folder, relative to this file, or below the folder of data if it begins with
    ``$TRELLIS_DATA/`` (WonderNetwork: there by default)."""
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
    mtu_bytes: Annotated[int, Meta(ge=576, le=9000)] = 1500
    """MTU of every host: the size of its largest IP packets. TCP sends segments that fit. A host sends a longer
    datagram in fragments, or refuses it if the program forbids fragments."""
    links: tuple[LinksSpec, ...] = ()
    """Other values for classes of hosts or pairs of hosts ([underlays.md](underlays.md#classes-of-links)). Of entries
    about the same link, the later one holds, key by key."""

    def __post_init__(self) -> None:
        """Fill in the rate of networks that have none of their own."""
        if self.rate_mbit is None and "rates" not in carried_by(self.kind):
            force_setattr(self, "rate_mbit", 0.0)


OPTIONAL = (
    "up_mbit",
    "down_mbit",
    "queue_bytes",
    "link_rate_mbit",
    "link_queue_ms",
    "mtu_bytes",
    "links",
    "jitter_correlation_ms",
)
"""The keys of ``[underlay]`` that a plan has only if they are not as usual."""
