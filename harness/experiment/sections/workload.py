"""The sections about which nodes are up, what they subscribe to, and what is published."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from harness.experiment.sections.values import Count, Duration, FilePath, Instant, Ratio, Span, TraceInstant
from peer.core.addressing.expression import MAX_TERMS


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
