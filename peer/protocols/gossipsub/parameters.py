"""The parameters of GossipSub, and its profiles: the defaults of three sources."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=604_800)]
Interval = Annotated[float, Meta(ge=0.001, le=604_800)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]
NotPositive = Annotated[float, Meta(le=0)]


def to_ns(duration_s: float) -> int:
    """Convert seconds to nanoseconds."""
    return round(duration_s * 1e9)


class Profile(Struct, frozen=True, kw_only=True):
    """The values that differ between the sources; the defaults are the specification's."""

    d_lo: int = 4
    shrink_at_d_hi: bool = False
    flood_publish: bool = True
    backoff_slack_heartbeats: int = 1
    backoff_clear_heartbeats: int = 1
    scoring: bool = False
    idontwant: bool = False
    heed_idontwant: bool = True
    idontwant_min_bytes: int = 1024
    max_idontwant_messages: int = 1000
    idontwant_heartbeats: int = 3


PROFILES = {
    "spec": Profile(),
    "go": Profile(
        d_lo=5,
        shrink_at_d_hi=True,
        flood_publish=False,
        backoff_slack_heartbeats=2,
        backoff_clear_heartbeats=15,
        idontwant=True,
    ),
    "js": Profile(
        backoff_clear_heartbeats=15,
        scoring=True,
        idontwant=True,
        heed_idontwant=False,
        idontwant_min_bytes=512,
        max_idontwant_messages=512,
        idontwant_heartbeats=5,
    ),
}
"""The defaults of the specification (v1.1), of go-libp2p-pubsub v0.13 or later, and of @chainsafe/libp2p-gossipsub
14.1.2, which sends IDONTWANT but ignores it. IDONTWANT (v1.2) is optional and has no defaults: in ``spec`` it is off,
and has go's values if it is turned on."""


class ScoreParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Peer scores of GossipSub, with the same parameters for every topic. The weights of P1 to P4 are 0 by default."""

    gossip_threshold: NotPositive = -10.0
    """A peer with a lower score gets no gossip, and its gossip is ignored."""
    publish_threshold: NotPositive = -50.0
    """A peer with a lower score gets no message that this node publishes."""
    graylist_threshold: NotPositive = -80.0
    """All frames of a peer with a lower score are ignored."""
    accept_px_threshold: NotNegative = 10.0
    """A peer with at least this score may name other peers to connect to."""
    opportunistic_graft_threshold: NotNegative = 20.0
    """A mesh with a lower median score is improved by opportunistic grafting."""
    decay_interval_s: Interval = 1.0
    """Time between two decays of all counters."""
    decay_to_zero: NotNegative = 0.1
    """A counter that decays below this is set to 0."""
    retain_score_s: Seconds = 3600.0
    """Time for which the score of a disconnected peer is kept, unless it is positive."""
    topic_score_cap: NotNegative = 10.0
    """Largest contribution of all topics together to a score; 0 = no limit."""
    topic_weight: NotNegative = 1.0
    """Weight of each topic's share in the score."""
    time_in_mesh_weight: NotNegative = 0.0
    """P1: weight of the time in the mesh."""
    time_in_mesh_quantum_s: Interval = 1.0
    """P1: time in the mesh that counts as 1."""
    time_in_mesh_cap: NotNegative = 3600.0
    """P1: its largest value."""
    first_message_deliveries_weight: NotNegative = 0.0
    """P2: weight of the messages that the peer delivered first."""
    first_message_deliveries_decay: Ratio = 0.5
    """P2: factor of the counter's decay."""
    first_message_deliveries_cap: NotNegative = 2000.0
    """P2: its largest value."""
    mesh_message_deliveries_weight: NotPositive = 0.0
    """P3: weight of the squared deficit of deliveries by a peer in the mesh."""
    mesh_message_deliveries_decay: Ratio = 0.5
    """P3: factor of the counter's decay."""
    mesh_message_deliveries_threshold: NotNegative = 20.0
    """P3: deliveries expected from a peer in the mesh; fewer are a deficit."""
    mesh_message_deliveries_cap: NotNegative = 100.0
    """P3: the counter's largest value; at least the threshold."""
    mesh_message_deliveries_activation_s: Seconds = 5.0
    """P3: time in the mesh before a deficit counts."""
    mesh_message_deliveries_window_s: Seconds = 0.01
    """P3: a copy within this time after the first one counts as a delivery, too."""
    mesh_failure_penalty_weight: NotPositive = 0.0
    """P3b: weight of the squared deficits with which a peer was pruned."""
    mesh_failure_penalty_decay: Ratio = 0.5
    """P3b: factor of the counter's decay."""
    invalid_message_deliveries_weight: NotPositive = 0.0
    """P4: weight of the squared number of invalid messages."""
    invalid_message_deliveries_decay: Ratio = 0.3
    """P4: factor of the counter's decay."""
    app_specific_weight: NotNegative = 10.0
    """P5: weight of the application's score."""
    app_specific_score: float = 0.0
    """P5: the application's score of the nodes in ``app_specific_nodes``; other nodes have 0."""
    app_specific_nodes: tuple[Count, ...] = ()
    """P5: the nodes that the application scores, such as trusted bootstrappers."""
    ip_colocation_factor_weight: NotPositive = -5.0
    """P6: weight of the squared surplus of peers with the same address."""
    ip_colocation_factor_threshold: Annotated[int, Meta(ge=1)] = 10
    """P6: peers with the same address up to which there is no surplus."""
    nodes_per_address: Annotated[int, Meta(ge=1)] = 1
    """P6: each group of this many consecutive nodes counts as one address; 1 = all addresses differ."""
    behaviour_penalty_weight: NotPositive = -10.0
    """P7: weight of the squared surplus of misbehaviour."""
    behaviour_penalty_threshold: NotNegative = 0.0
    """P7: misbehaviour up to which there is no surplus."""
    behaviour_penalty_decay: Ratio = 0.2
    """P7: factor of the counter's decay."""

    def __post_init__(self) -> None:
        """Check the order of the thresholds that the specification requires."""
        if not self.graylist_threshold <= self.publish_threshold <= self.gossip_threshold:
            raise ValueError("expected graylist_threshold <= publish_threshold <= gossip_threshold")
        if self.mesh_message_deliveries_cap < self.mesh_message_deliveries_threshold:
            raise ValueError("expected mesh_message_deliveries_cap >= mesh_message_deliveries_threshold")


class GossipsubParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Topic meshes, gossip and scores: GossipSub v1.1 as libp2p specifies it, with IDONTWANT of v1.2."""

    profile: Literal["spec", "go", "js"] = "spec"
    """Source of the defaults: the specification (v1.1), go-libp2p-pubsub v0.13 or later, or js-libp2p-gossipsub 14.1.2.
    They differ in the keys without a default here."""
    connections: Count = 20
    """Links that a node opens to nodes drawn uniformly (ambient discovery); incoming links are not limited."""
    discovery: Literal["random", "topics"] = "topics"
    """``random``: no other links. ``topics``: a mesh that lacks peers also opens links to known subscribers of its
    topic, as go-libp2p-pubsub's discovery does; needs a membership that discloses interests."""
    d: Count = 6
    """Wanted peers in a topic's mesh."""
    d_lo: Count | None = None
    """A mesh with fewer peers grows to ``d``. spec 4, go 5, js 4."""
    d_hi: Count = 12
    """A mesh with more peers shrinks to ``d``."""
    shrink_at_d_hi: bool | None = None
    """A mesh with exactly ``d_hi`` peers shrinks, too. spec false, go true, js false."""
    d_score: Count = 4
    """Peers that are kept for their score when a mesh shrinks."""
    d_out: Count = 2
    """Fewest peers in a mesh to which this node opened the link; below ``d_lo`` and at most ``d`` / 2."""
    d_lazy: Count = 6
    """Fewest peers that get gossip on a topic."""
    gossip_factor: Ratio = 0.25
    """Smallest share of a topic's peers outside the mesh that get gossip."""
    heartbeat_interval_s: Interval = 1.0
    """Time between two heartbeats."""
    heartbeat_initial_delay_s: Seconds = 0.1
    """Time from the start to the first heartbeat."""
    heartbeat_spread: bool = True
    """Delay the first heartbeat further by a random part of an interval, since real nodes do not start in step."""
    fanout_ttl_s: Seconds = 60.0
    """Time for which the peers of an unsubscribed topic are kept after the last publication on it."""
    mcache_len: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Heartbeats for which peers can request a message."""
    mcache_gossip: Annotated[int, Meta(ge=1)] = 3
    """Heartbeats for which a message is advertised."""
    seen_ttl_s: Interval = 120.0
    """Time for which a node remembers that it has seen a message."""
    flood_publish: bool | None = None
    """Send own messages to all peers of the topic, not only to the mesh. spec true, go false, js true."""
    prune_backoff_s: Seconds = 60.0
    """Time after a PRUNE in which neither side grafts again."""
    unsubscribe_backoff_s: Seconds = 10.0
    """The same after a PRUNE because of an unsubscription."""
    backoff_slack_heartbeats: Count | None = None
    """Heartbeats that a node waits after the end of a backoff before it grafts. spec 1, go 2, js 1."""
    backoff_clear_heartbeats: Annotated[int, Meta(ge=1)] | None = None
    """Heartbeats between two clearings of expired backoffs, which last until then. spec 1, go 15, js 15."""
    graft_flood_threshold_s: Seconds = 10.0
    """A GRAFT within this time after a PRUNE is penalised twice."""
    peer_exchange: bool = False
    """Name other peers in a PRUNE because of oversubscription."""
    prune_peers: Count = 16
    """Most peers that a PRUNE names, and most of them that the receiver connects to."""
    opportunistic_graft_heartbeats: Annotated[int, Meta(ge=1)] = 60
    """Heartbeats between two checks of the median score of a mesh."""
    opportunistic_graft_peers: Count = 2
    """Peers that an opportunistic graft adds."""
    max_ihave_length: Count = 5000
    """Most message ids in a topic's IHAVE, and most that a peer is asked for between two heartbeats."""
    max_ihave_messages: Count = 10
    """Most IHAVEs of a peer that are read between two heartbeats."""
    gossip_retransmission: Count = 3
    """How many times a peer gets the same message in answer to IWANT."""
    iwant_followup_s: Seconds = 3.0
    """Time within which a requested message must arrive."""
    idontwant: bool | None = None
    """Send IDONTWANT (v1.2): announce the first copy of a large message to the mesh before forwarding it. spec false,
    go true, js true."""
    heed_idontwant: bool | None = None
    """Do not forward a message to mesh peers that do not want it, nor send it in answer to IWANT. spec true, go true,
    js false."""
    idontwant_min_bytes: Count | None = None
    """Smallest payload for which IDONTWANT is sent. spec and go 1024, js 512."""
    max_idontwant_messages: Count | None = None
    """Most IDONTWANTs of a peer that are read between two heartbeats. spec and go 1000, js 512."""
    max_idontwant_length: Count = 10
    """Most message ids that are read from one IDONTWANT; nodes send one each."""
    idontwant_heartbeats: Annotated[int, Meta(ge=1)] | None = None
    """Heartbeats for which an IDONTWANT is remembered. spec and go 3, js 5."""
    explicit_peers: tuple[Count, ...] = ()
    """Nodes that all have explicit peering agreements with each other: always connected, always sent to, and outside
    all meshes and scores."""
    explicit_check_s: Interval = 300.0
    """Time between two checks of those links."""
    scoring: bool | None = None
    """Keep scores; otherwise every score is 0. spec false, go false, js true."""
    score: ScoreParameters = field(default_factory=ScoreParameters)

    def __post_init__(self) -> None:
        """Check the relations that the specification requires."""
        d_lo = self.chosen.d_lo
        if not d_lo <= self.d <= self.d_hi:
            raise ValueError(f"expected d_lo <= d <= d_hi, got {d_lo}, {self.d}, {self.d_hi}")
        if self.d_out and not (self.d_out < d_lo and 2 * self.d_out <= self.d):
            raise ValueError(f"expected d_out below d_lo = {d_lo} and at most d / 2, got {self.d_out}")
        if self.mcache_gossip > self.mcache_len:
            raise ValueError(f"expected mcache_gossip <= mcache_len, got {self.mcache_gossip}, {self.mcache_len}")

    @property
    def chosen(self) -> Profile:
        """The profile's values, replaced by the keys that are set."""
        names = Profile.__struct_fields__
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(PROFILES[self.profile], **given)
