"""The sections ``groups`` and ``faults`` of an experiment: what happens to the network and to peers during the run."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from harness.experiment.sections.values import Count, Duration, Group, Instant, OptionalDelay


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
    duplicate_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Probability that a packet is duplicated: it enters the link of its pair twice, at the same instant. Only on the
    `emulated` testbed."""
    reorder_ratio: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Probability that a packet is held back by ``reorder_ms`` more, so that later packets overtake it. Only on the
    `emulated` testbed."""
    reorder_ms: OptionalDelay = 0.0
    """The further delay of such a packet."""
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
    overlap compose: factors multiply; losses, jitter, duplication and reordering are independent; the smallest rate and
    the longest ``reorder_ms`` win; a cut beats all.
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
