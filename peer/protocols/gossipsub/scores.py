"""Peer scores: a node's rating of its peers by their behaviour.

Source: gossipsub v1.1, Peer Scoring.
"""

from collections.abc import Sequence

from peer.core.contract import NodeId, TopicId
from peer.protocols.gossipsub.parameters import ScoreParameters, to_ns


class Scores:
    """The interface of scores, by which the router reports events, and an implementation in which all scores are 0."""

    def of(self, peer: NodeId) -> float:
        """Return the peer's present score."""
        return 0.0

    def connect(self, peer: NodeId) -> None:
        """Note that a link to the peer came up."""

    def disconnect(self, now_ns: int, peer: NodeId) -> None:
        """Note that the link to the peer ended."""

    def graft(self, now_ns: int, peer: NodeId, topic: TopicId) -> None:
        """Note that the peer entered a mesh.

        Args:
            now_ns: the present instant (ns).
            peer: the peer.
            topic: the topic of the mesh.
        """

    def prune(self, peer: NodeId, topic: TopicId) -> None:
        """Note that the peer left a mesh."""

    def credit_first(self, peer: NodeId, topics: Sequence[TopicId]) -> None:
        """Note that the peer was the first to deliver a message."""

    def credit_near(self, peer: NodeId, topics: Sequence[TopicId]) -> None:
        """Note that the peer delivered a message within the window after the first copy."""

    def blame_invalid(self, peer: NodeId, topics: Sequence[TopicId]) -> None:
        """Note that the peer delivered an invalid message."""

    def penalise(self, peer: NodeId, times: int = 1) -> None:
        """Note that the peer misbehaved."""

    def decay(self, now_ns: int) -> None:
        """Reduce all counters. Call it at every decay interval."""


class _TopicCounters:
    """The counters of a peer on one topic."""

    __slots__ = ("deliveries_active", "failures", "first", "graft_ns", "in_mesh", "invalid", "mesh", "mesh_ns")

    def __init__(self) -> None:
        self.in_mesh = False
        self.graft_ns = 0
        self.mesh_ns = 0
        self.deliveries_active = False
        self.first = 0.0
        self.mesh = 0.0
        self.failures = 0.0
        self.invalid = 0.0


class _PeerRecord:
    """The counters of a peer. ``expires_ns`` is None while it is connected."""

    __slots__ = ("behaviour", "expires_ns", "topics")

    def __init__(self) -> None:
        self.topics: dict[TopicId, _TopicCounters] = {}
        self.behaviour = 0.0
        self.expires_ns: int | None = None


class PeerScores(Scores):
    """The score function with its counters.

    A peer's record is kept for ``retain_score_s`` after its link ended if its score is not positive; meanwhile it does
    not decay. ``Router`` describes which messages P4 counts as invalid. Scores are cached until a counter changes,
    since heartbeats ask for the score of every neighbour on every topic.

    Source: gossipsub v1.1, The Score Function, and Topic Parameter Calculation and Decay.
    """

    def __init__(self, parameters: ScoreParameters) -> None:
        self._p = parameters
        self._records: dict[NodeId, _PeerRecord] = {}
        self._at_address: dict[int, int] = {}
        self._known: dict[NodeId, float] = {}
        self._trusted = frozenset(parameters.app_specific_nodes)
        self._activation_ns = to_ns(parameters.mesh_message_deliveries_activation_s)
        self._quantum_ns = to_ns(parameters.time_in_mesh_quantum_s)
        self._retain_ns = to_ns(parameters.retain_score_s)

    def of(self, peer: NodeId) -> float:
        score = self._known.get(peer)
        if score is None:
            record = self._records.get(peer)
            score = self._known[peer] = 0.0 if record is None else self._compute(peer, record)
        return score

    def _compute(self, peer: NodeId, record: _PeerRecord) -> float:
        p = self._p
        topics = p.topic_weight * sum(map(self._topic_score, record.topics.values()))
        if p.topic_score_cap:
            topics = min(topics, p.topic_score_cap)
        applied = p.app_specific_score if peer in self._trusted else 0.0
        surplus = max(self._at_address.get(self._address(peer), 0) - p.ip_colocation_factor_threshold, 0)
        misbehaved = max(record.behaviour - p.behaviour_penalty_threshold, 0.0)
        return (
            topics
            + p.app_specific_weight * applied
            + p.ip_colocation_factor_weight * surplus**2
            + p.behaviour_penalty_weight * misbehaved**2
        )

    def _topic_score(self, counters: _TopicCounters) -> float:
        p = self._p
        in_mesh = min(counters.mesh_ns // self._quantum_ns, p.time_in_mesh_cap) if counters.in_mesh else 0.0
        return (
            p.time_in_mesh_weight * in_mesh
            + p.first_message_deliveries_weight * counters.first
            + p.mesh_message_deliveries_weight * self._deficit(counters) ** 2
            + p.mesh_failure_penalty_weight * counters.failures
            + p.invalid_message_deliveries_weight * counters.invalid**2
        )

    def _deficit(self, counters: _TopicCounters) -> float:
        if not counters.deliveries_active:
            return 0.0
        return max(self._p.mesh_message_deliveries_threshold - counters.mesh, 0.0)

    def connect(self, peer: NodeId) -> None:
        self._known.clear()
        self._records.setdefault(peer, _PeerRecord()).expires_ns = None
        address = self._address(peer)
        self._at_address[address] = self._at_address.get(address, 0) + 1

    def disconnect(self, now_ns: int, peer: NodeId) -> None:
        record = self._records.get(peer)
        if record is None or record.expires_ns is not None:
            return
        good = self.of(peer) > 0
        self._known.clear()
        self._at_address[self._address(peer)] -= 1
        if good:
            del self._records[peer]
            return
        for topic, counters in record.topics.items():
            counters.first = 0.0
            if counters.in_mesh:
                self.prune(peer, topic)
        record.expires_ns = now_ns + self._retain_ns

    def graft(self, now_ns: int, peer: NodeId, topic: TopicId) -> None:
        if (counters := self._counters(peer, topic)) is not None:
            counters.in_mesh = True
            counters.graft_ns = now_ns
            counters.mesh_ns = 0
            counters.deliveries_active = False

    def prune(self, peer: NodeId, topic: TopicId) -> None:
        if (counters := self._counters(peer, topic)) is not None:
            counters.failures += self._deficit(counters) ** 2
            counters.in_mesh = False
            counters.deliveries_active = False

    def credit_first(self, peer: NodeId, topics: Sequence[TopicId]) -> None:
        for topic in topics:
            if (counters := self._counters(peer, topic)) is not None:
                counters.first = min(counters.first + 1, self._p.first_message_deliveries_cap)
        self.credit_near(peer, topics)

    def credit_near(self, peer: NodeId, topics: Sequence[TopicId]) -> None:
        for topic in topics:
            counters = self._counters(peer, topic)
            if counters is not None and counters.in_mesh:
                counters.mesh = min(counters.mesh + 1, self._p.mesh_message_deliveries_cap)

    def blame_invalid(self, peer: NodeId, topics: Sequence[TopicId]) -> None:
        for topic in topics:
            if (counters := self._counters(peer, topic)) is not None:
                counters.invalid += 1

    def penalise(self, peer: NodeId, times: int = 1) -> None:
        if (record := self._records.get(peer)) is not None:
            record.behaviour += times
            self._known.pop(peer, None)

    def decay(self, now_ns: int) -> None:
        self._known.clear()
        for peer, record in list(self._records.items()):
            if record.expires_ns is None:
                self._decay_record(now_ns, record)
            elif now_ns > record.expires_ns:
                del self._records[peer]

    def _decay_record(self, now_ns: int, record: _PeerRecord) -> None:
        p = self._p
        record.behaviour = self._faded(record.behaviour, p.behaviour_penalty_decay)
        for counters in record.topics.values():
            counters.first = self._faded(counters.first, p.first_message_deliveries_decay)
            counters.mesh = self._faded(counters.mesh, p.mesh_message_deliveries_decay)
            counters.failures = self._faded(counters.failures, p.mesh_failure_penalty_decay)
            counters.invalid = self._faded(counters.invalid, p.invalid_message_deliveries_decay)
            if counters.in_mesh:
                counters.mesh_ns = now_ns - counters.graft_ns
                counters.deliveries_active |= counters.mesh_ns > self._activation_ns

    def _faded(self, counter: float, factor: float) -> float:
        counter *= factor
        return counter if counter >= self._p.decay_to_zero else 0.0

    def _counters(self, peer: NodeId, topic: TopicId) -> _TopicCounters | None:
        """Return the counters of the peer on the topic, for a change; None for unknown peers."""
        self._known.pop(peer, None)
        record = self._records.get(peer)
        if record is None:
            return None
        counters = record.topics.get(topic)
        if counters is None:
            counters = record.topics[topic] = _TopicCounters()
        return counters

    def _address(self, peer: NodeId) -> int:
        return peer // self._p.nodes_per_address
