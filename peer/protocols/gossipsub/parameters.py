"""What may be set of GossipSub, and the named profiles: the same protocol as three sources have it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=604_800)]
Interval = Annotated[float, Meta(gt=0, le=604_800)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]
NotPositive = Annotated[float, Meta(le=0)]


def to_ns(duration_s: float) -> int:
    """A duration in seconds as nanoseconds."""
    return round(duration_s * 1e9)


class Profile(Struct, frozen=True, kw_only=True):
    """The values on which the sources differ."""

    d_lo: int
    shrink_at_d_hi: bool
    flood_publish: bool
    backoff_slack_heartbeats: int
    backoff_clear_heartbeats: int
    scoring: bool
    idontwant: bool
    heed_idontwant: bool
    idontwant_min_bytes: int
    max_idontwant_messages: int
    idontwant_heartbeats: int


_SPEC = Profile(
    d_lo=4,
    shrink_at_d_hi=False,
    flood_publish=True,
    backoff_slack_heartbeats=1,
    backoff_clear_heartbeats=1,
    scoring=False,
    idontwant=False,
    heed_idontwant=True,
    idontwant_min_bytes=1024,
    max_idontwant_messages=1000,
    idontwant_heartbeats=3,
)

PROFILES = {
    "spec": _SPEC,
    "go": replace(
        _SPEC,
        d_lo=5,
        shrink_at_d_hi=True,
        flood_publish=False,
        backoff_slack_heartbeats=2,
        backoff_clear_heartbeats=15,
        idontwant=True,
    ),
    "js": replace(
        _SPEC,
        backoff_clear_heartbeats=15,
        scoring=True,
        idontwant=True,
        heed_idontwant=False,
        idontwant_min_bytes=512,
        max_idontwant_messages=512,
        idontwant_heartbeats=5,
    ),
}
"""The specification's defaults (v1.1; v1.2's IDONTWANT is optional and has none, so it is off and has go's where it is
turned on), those of go-libp2p-pubsub v0.13 or later, and those of @chainsafe/libp2p-gossipsub 14.1.2, which sends
IDONTWANT and does not heed it."""


class ScoreParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Peer scores of GossipSub; the same for every topic, whose weights are 0 until they are set."""

    gossip_threshold: NotPositive = -10.0
    """Below it a peer gets no gossip, and its gossip is ignored."""
    publish_threshold: NotPositive = -50.0
    """Below it a peer gets no message of this node's own."""
    graylist_threshold: NotPositive = -80.0
    """Below it all frames of a peer are ignored."""
    accept_px_threshold: NotNegative = 10.0
    """A peer with at least this score may name others to connect to."""
    opportunistic_graft_threshold: NotNegative = 20.0
    """A mesh whose median score is below it is improved by opportunistic grafting."""
    decay_interval_s: Interval = 1.0
    """Time between two decays of all counters."""
    decay_to_zero: NotNegative = 0.1
    """A counter that decayed below it is 0."""
    retain_score_s: Seconds = 3600.0
    """How long the score of a peer that is gone is kept, where it is not positive."""
    topic_score_cap: NotNegative = 10.0
    """Most that all topics together may add to a score; 0 = no cap."""
    topic_weight: NotNegative = 1.0
    """Weight of each topic's share in the score."""
    time_in_mesh_weight: NotNegative = 0.0
    """P1: weight of the time in the mesh."""
    time_in_mesh_quantum_s: Interval = 1.0
    """P1: time in the mesh that counts 1."""
    time_in_mesh_cap: NotNegative = 3600.0
    """P1: its largest value."""
    first_message_deliveries_weight: NotNegative = 0.0
    """P2: weight of the messages that the peer delivered first."""
    first_message_deliveries_decay: Ratio = 0.5
    """P2: what remains of the counter after a decay."""
    first_message_deliveries_cap: NotNegative = 2000.0
    """P2: its largest value."""
    mesh_message_deliveries_weight: NotPositive = 0.0
    """P3: weight of the squared deficit of deliveries by a peer in the mesh."""
    mesh_message_deliveries_decay: Ratio = 0.5
    """P3: what remains of the counter after a decay."""
    mesh_message_deliveries_threshold: NotNegative = 20.0
    """P3: deliveries expected of a peer in the mesh; fewer are a deficit."""
    mesh_message_deliveries_cap: NotNegative = 100.0
    """P3: the counter's largest value; at least the threshold."""
    mesh_message_deliveries_activation_s: Seconds = 5.0
    """P3: time in the mesh before a deficit counts."""
    mesh_message_deliveries_window_s: Seconds = 0.01
    """P3: a copy that comes so soon after the first one counts as delivered too."""
    mesh_failure_penalty_weight: NotPositive = 0.0
    """P3b: weight of the squared deficits with which a peer was pruned."""
    mesh_failure_penalty_decay: Ratio = 0.5
    """P3b: what remains of the counter after a decay."""
    invalid_message_deliveries_weight: NotPositive = 0.0
    """P4: weight of the squared number of invalid messages."""
    invalid_message_deliveries_decay: Ratio = 0.3
    """P4: what remains of the counter after a decay."""
    app_specific_weight: NotNegative = 10.0
    """P5: weight of the application's own score, which is ``app_specific_score`` ..."""
    app_specific_score: float = 0.0
    """... for the nodes in ``app_specific_nodes`` and 0 for all others."""
    app_specific_nodes: tuple[Count, ...] = ()
    """P5: the nodes that the application scores, such as trusted bootstrappers."""
    ip_colocation_factor_weight: NotPositive = -5.0
    """P6: weight of the squared surplus of peers with the same address."""
    ip_colocation_factor_threshold: Annotated[int, Meta(ge=1)] = 10
    """P6: peers with the same address that are no surplus."""
    nodes_per_address: Annotated[int, Meta(ge=1)] = 1
    """P6: nodes 0 .. n - 1 count as having one address, the next n as having another, and so on. 1 = all differ."""
    behaviour_penalty_weight: NotPositive = -10.0
    """P7: weight of the squared surplus of misbehaviour."""
    behaviour_penalty_threshold: NotNegative = 0.0
    """P7: misbehaviour that is no surplus."""
    behaviour_penalty_decay: Ratio = 0.2
    """P7: what remains of the counter after a decay."""

    def __post_init__(self) -> None:
        """Check the order that the specification demands of the thresholds."""
        if not self.graylist_threshold <= self.publish_threshold <= self.gossip_threshold:
            raise ValueError("expected graylist_threshold <= publish_threshold <= gossip_threshold")
        if self.mesh_message_deliveries_cap < self.mesh_message_deliveries_threshold:
            raise ValueError("expected mesh_message_deliveries_cap >= mesh_message_deliveries_threshold")


class GossipsubParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Topic meshes, gossip and scores: GossipSub v1.1 as libp2p specifies it, with IDONTWANT of v1.2."""

    profile: Literal["spec", "go", "js"] = "spec"
    """Whose defaults: the specification's (v1.1), those of go-libp2p-pubsub v0.13 or later, or those of
    js-libp2p-gossipsub 14.1.2. They differ in the keys without a default here."""
    connections: Count = 20
    """Links that a node opens to nodes drawn uniformly (ambient discovery); incoming ones are not limited."""
    discovery: Literal["random", "topics"] = "topics"
    """``random``: no other links. ``topics``: where a mesh lacks peers, links to known subscribers of its topic too, as
    go-libp2p-pubsub's discovery makes them; needs a membership that discloses interests."""
    d: Count = 6
    """Peers wanted in a topic's mesh."""
    d_lo: Count | None = None
    """Fewer peers make the mesh grow to ``d``. spec 4, go 5, js 4."""
    d_hi: Count = 12
    """More peers make the mesh shrink to ``d``."""
    shrink_at_d_hi: bool | None = None
    """As many peers as ``d_hi`` make it shrink, too. spec false, go true, js false."""
    d_score: Count = 4
    """Peers that are kept for their score when a mesh shrinks."""
    d_out: Count = 2
    """Peers in a mesh to which this node opened the link, at least; below ``d_lo`` and at most ``d`` / 2."""
    d_lazy: Count = 6
    """Peers that get gossip on a topic, at least."""
    gossip_factor: Ratio = 0.25
    """Part of a topic's peers outside the mesh that get gossip, at least."""
    heartbeat_interval_s: Interval = 1.0
    """Time between two heartbeats."""
    heartbeat_initial_delay_s: Seconds = 0.1
    """Time from the start to the first heartbeat ..."""
    heartbeat_spread: bool = True
    """... to which a random part of an interval is added, since real nodes do not start in step."""
    fanout_ttl_s: Seconds = 60.0
    """How long the peers for a topic without subscription are kept after the last publication on it."""
    mcache_len: Annotated[int, Meta(ge=1)] = 5
    """Heartbeats for which a message can be asked for ..."""
    mcache_gossip: Annotated[int, Meta(ge=1)] = 3
    """... and those for which it is advertised."""
    seen_ttl_s: Interval = 120.0
    """How long a message is known as seen."""
    flood_publish: bool | None = None
    """Send own messages to all peers of the topic, not only to the mesh. spec true, go false, js true."""
    prune_backoff_s: Seconds = 60.0
    """Time after a PRUNE in which neither side grafts again."""
    unsubscribe_backoff_s: Seconds = 10.0
    """The same after a PRUNE because of an unsubscription."""
    backoff_slack_heartbeats: Count | None = None
    """Heartbeats that a node waits beyond a backoff's end before it grafts. spec 1, go 2, js 1."""
    backoff_clear_heartbeats: Annotated[int, Meta(ge=1)] | None = None
    """Backoffs that are over are cleared every so many heartbeats, and last until then. spec 1, go 15, js 15."""
    graft_flood_threshold_s: Seconds = 10.0
    """A GRAFT so soon after a PRUNE is penalised twice."""
    peer_exchange: bool = False
    """Name other peers in a PRUNE because of oversubscription."""
    prune_peers: Count = 16
    """Peers that are named at most, and followed at most."""
    opportunistic_graft_heartbeats: Annotated[int, Meta(ge=1)] = 60
    """Heartbeats between two looks at the median score of a mesh."""
    opportunistic_graft_peers: Count = 2
    """Peers that are then grafted."""
    max_ihave_length: Count = 5000
    """Message ids in a topic's IHAVE, and those that a peer is asked for between two heartbeats, at most."""
    max_ihave_messages: Count = 10
    """IHAVEs of a peer between two heartbeats that are looked at."""
    gossip_retransmission: Count = 3
    """How often a peer gets the same message upon IWANT."""
    iwant_followup_s: Seconds = 3.0
    """Time in which an advertised message must come that was asked for."""
    idontwant: bool | None = None
    """Send IDONTWANT (v1.2): tell the mesh of a large message's first copy at once, before it is passed on. spec false,
    go true, js true."""
    heed_idontwant: bool | None = None
    """Do not pass a message on to mesh peers that do not want it, nor send it upon IWANT. spec true, go true,
    js false."""
    idontwant_min_bytes: Count | None = None
    """The smallest payload for which IDONTWANT is sent. spec and go 1024, js 512."""
    max_idontwant_messages: Count | None = None
    """IDONTWANTs of a peer between two heartbeats that are taken. spec and go 1000, js 512."""
    max_idontwant_length: Count = 10
    """Message ids of an IDONTWANT that are taken; nodes here send one each."""
    idontwant_heartbeats: Annotated[int, Meta(ge=1)] | None = None
    """Heartbeats for which an IDONTWANT is remembered. spec and go 3, js 5."""
    explicit_peers: tuple[Count, ...] = ()
    """Nodes with explicit peering agreements, each with all others of the list: always connected, always sent to, and
    outside all meshes and scores."""
    explicit_check_s: Interval = 300.0
    """Time between two looks whether those links are up."""
    scoring: bool | None = None
    """Keep scores. Otherwise every score is 0. spec false, go false, js true."""
    score: ScoreParameters = field(default_factory=ScoreParameters)

    def __post_init__(self) -> None:
        """Check the relations that the specification demands."""
        d_lo = self.chosen.d_lo
        if not d_lo <= self.d <= self.d_hi:
            raise ValueError(f"expected d_lo <= d <= d_hi, got {d_lo}, {self.d}, {self.d_hi}")
        if self.d_out and not (self.d_out < d_lo and 2 * self.d_out <= self.d):
            raise ValueError(f"expected d_out below d_lo = {d_lo} and at most d / 2, got {self.d_out}")
        if self.mcache_gossip > self.mcache_len:
            raise ValueError(f"expected mcache_gossip <= mcache_len, got {self.mcache_gossip}, {self.mcache_len}")

    @property
    def chosen(self) -> Profile:
        """The profile's values, those that were set in their place."""
        names = Profile.__struct_fields__
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(PROFILES[self.profile], **given)
