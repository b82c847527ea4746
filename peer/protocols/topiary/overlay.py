"""The Topiary overlay: keep the neighbours that bring messages early, and explore in place of the others."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from msgspec import Meta, Struct

from peer.core.bitset import Bitset, bitset, choose
from peer.core.contract import Directory, MessageId, NodeId, TopicId
from peer.core.failures import Failures
from peer.core.frames import Data, Frame
from peer.core.membership.interface import Membership
from peer.core.node import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.topiary.estimates import Estimate, RateEstimate, SequenceEstimate
from peer.protocols.topiary.frames import Release
from peer.protocols.topiary.observation import Observation
from peer.protocols.topiary.scoring import Subset, Tally, Weights, best_subset, topic_scores, worse_topics

EPOCH, SETTLED, REFILL = "overlay/epoch", "overlay/settled", "overlay/refill"
REFILL_NS = 5_000_000_000
"""How long a node that found nobody to connect to waits before it tries again."""

SCORE_EPSILON = 1e-9
"""A score above it is worse than a best score of 0, of which no multiple is worse (Eq. 9)."""

Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]


class TopiaryParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The Topiary overlay: neighbours chosen by when they bring messages."""

    degree: Annotated[int, Meta(ge=1, le=10)] = 5
    """Outgoing links a node opens; incoming ones are not limited. (d)"""
    kept_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.6
    """Part of the outgoing neighbours kept at an epoch's end, rounded up; the others make way for exploration."""
    epoch_s: Positive = 10.0
    """Length of an epoch, where messages do not set it."""
    epoch_messages: Annotated[int, Meta(ge=1)] | None = None
    """An epoch ends when the node has seen this many messages of others, in place of `epoch_s`."""
    overlap_s: NonNegative = 1.0
    """Links that are given up stay this long into the next epoch, while the new ones are opened; what comes in
    meanwhile is neither observed nor missed."""
    coverage_weight: NonNegative = 1.0
    """Weight of the fraction of messages that a subset does not bring. (w_c)"""
    delay_weight: NonNegative = 10.0
    """Weight of a second that a subset is later than the earliest neighbour. (w_d)"""
    waste_weight: NonNegative = 0.0
    """Weight of the fraction of messages that a subset brings in vain. (w_w)"""
    eta: Annotated[float, Meta(gt=1)] = 1.2
    """Exploration serves the topics whose score is above this multiple of the best topic's."""
    topic_weights: tuple[tuple[int, NonNegative], ...] = ()
    """Pairs of topic and importance; the others weigh 1."""
    estimate: Literal["sequence", "rate"] = "sequence"
    """How a node estimates what was published: by the publishers' sequence numbers, or by a known rate."""
    topic_rate_per_s: NonNegative = 0.0
    """The known rate of every topic (estimate = "rate")."""
    literal: bool = False
    """Score as printed: coverage counts what is brought, and the highest score is kept. For the record; it makes the
    overlay worse."""


class Topiary(Part):
    """Learns which subset of its outgoing neighbours brings messages best, and explores in place of the others.

    It opens ``degree`` links, watches for an epoch when each outgoing neighbour brings each message, keeps the subset
    with the best score, and draws new neighbours that serve the topics on which the subset does less well.

    A link that both its nodes chose counts for both, so who gives one up says ``Release``, and the other side closes it
    unless it keeps it.

    Source: Topiary section IV, Algorithm 1.
    """

    Parameters = TopiaryParameters
    frames = (Release,)
    overhears = (Data,)
    __slots__ = (
        "_chosen",
        "_draws",
        "_epoch",
        "_estimate",
        "_expects",
        "_failed",
        "_given_up",
        "_importance",
        "_membership",
        "_observation",
        "_observed_since_ns",
        "_observes_all",
        "_parameters",
        "_passed",
        "_weights",
    )

    def __init__(self, state: State, membership: Membership, parameters: TopiaryParameters) -> None:
        super().__init__(state)
        self._membership = membership
        self._parameters = parameters
        self._draws = substream(state.seed, state.node, "overlay")
        self._weights = Weights(parameters.coverage_weight, parameters.delay_weight, parameters.waste_weight)
        self._importance = dict(parameters.topic_weights)
        self._estimate: Estimate = (
            RateEstimate(parameters.topic_rate_per_s) if parameters.estimate == "rate" else SequenceEstimate()
        )
        self._chosen: dict[NodeId, None] = {}
        self._failed = Failures()
        self._given_up: tuple[NodeId, ...] = ()
        self._observation: Observation | None = None
        self._observed_since_ns = 0
        self._passed: set[MessageId] = set()
        self._expects = parameters.estimate == "rate"
        self._observes_all = parameters.waste_weight > 0 or parameters.epoch_messages is not None
        self._epoch = 0

    # ------------------------------------------------------------------------------------------------- links

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Begin with neighbours drawn uniformly; what is missing later is filled in the same way."""
        if self._observation is None and not self._chosen:
            self._set_clock(turn)
        self._explore(turn, [])

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Replace an outgoing neighbour that is lost; forget one that is not wanted any more."""
        if peer not in self._chosen:
            if retrying:
                turn.disconnect(peer, "released")
        elif not retrying:
            del self._chosen[peer]
            self._failed.add(turn.now_ns, peer)
            self._explore(turn, [])

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """The other side gives the link up: close it, unless this node chose it too."""
        if peer not in self._chosen:
            turn.disconnect(peer, "released")

    def _release(self, turn: Turn, peer: NodeId) -> None:
        """Give a link up; whether it stays is the other side's choice. One that is not up is simply not opened."""
        if (neighbour := self.state.neighbours.get(peer)) is not None:
            neighbour.outbound = False
            turn.send(peer, Release())
        else:
            turn.disconnect(peer, "released")

    def _explore(self, turn: Turn, topics: list[TopicId]) -> None:
        """Fill the free places with nodes drawn by how many of the topics they share, or uniformly.

        Drawing a topic by how many candidates subscribe to it, and then one of them, draws each candidate in proportion
        to the topics it shares.

        Source: Topiary section IV-E, Eq. 10.
        """
        fresh = self._membership.known & ~bitset(self._chosen) & ~self._failed.at(turn.now_ns)
        while fresh and len(self._chosen) < self._parameters.degree:
            peer = choose(self._drawn_from(fresh, topics), self._draws)
            fresh &= ~(1 << peer)
            self._chosen[peer] = None
            turn.connect(peer)
        if len(self._chosen) < self._parameters.degree:
            turn.set_timer(REFILL, turn.now_ns + REFILL_NS)

    def _drawn_from(self, fresh: Bitset, topics: list[TopicId]) -> Bitset:
        groups = [
            (subscribers, self._importance.get(topic, 1.0))
            for topic in topics
            if (subscribers := self._membership.subscribers(topic) & fresh)
        ]
        weights = [weight * group.bit_count() for group, weight in groups]
        if not any(weights):
            return fresh
        [group] = self._draws.choices([group for group, _ in groups], weights)
        return group

    # ------------------------------------------------------------------------------------------------ epochs

    def overhear(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Note when a copy came, from whom; what the node does not subscribe to only where that counts."""
        assert isinstance(frame, Data)
        if not self._observes_all and self.state.topics.isdisjoint(frame.topics):
            return
        observation = self._observation
        if observation is None:
            self._expects = True
            self._passed.add(frame.message_id)
            believed = self._estimate.pass_over(frame.topics, frame.message_id, frame.payload, self.state.topics)
            self._note_number(turn, peer, frame, believed)
        elif observation.arrive(turn.now_ns, peer, frame.message_id, frame.topics):
            self._expects = True
            believed = self._estimate.see(frame.topics, frame.message_id, frame.payload, self.state.topics)
            self._note_number(turn, peer, frame, believed)
            if len(observation) == self._parameters.epoch_messages:
                self._end_epoch(turn)

    def _note_number(self, turn: Turn, peer: NodeId, copy: Data, believed: bool) -> None:
        if not believed:
            turn.trace("reject", peer=peer, message_id=copy.message_id, topics=copy.topics, reason="sequence_jump")

    def fire(self, turn: Turn, name: str) -> None:
        """An epoch ends, or has settled; or a node that found nobody tries again."""
        if name == EPOCH:
            self._end_epoch(turn)
        elif name == SETTLED:
            self._settle(turn)
        else:
            self._failed.clear()
            self._explore(turn, [])

    def _set_clock(self, turn: Turn) -> None:
        """Begin an epoch."""
        overlap_ns = round(self._parameters.overlap_s * 1e9)
        turn.set_timer(SETTLED, turn.now_ns + overlap_ns)
        if self._parameters.epoch_messages is None:
            turn.set_timer(EPOCH, turn.now_ns + max(round(self._parameters.epoch_s * 1e9), overlap_ns + 1))

    def _settle(self, turn: Turn) -> None:
        """The epoch's links are there: say goodbye to the others, and begin to observe."""
        for peer in self._chosen:
            if (neighbour := self.state.neighbours.get(peer)) is not None:
                neighbour.outbound = True  # it may have been there, opened by the other side alone
        for peer in self._given_up:
            if peer not in self._chosen:
                self._release(turn, peer)
        self._given_up = ()
        self._observation = Observation(tuple(self._chosen), self.state.node, self._passed)
        self._passed = set()
        self._observed_since_ns = turn.now_ns
        self._estimate.turn_over()

    def _end_epoch(self, turn: Turn) -> None:
        """Score, keep, explore. Silence teaches, too, but not before the first message: there may be none yet."""
        observation, self._observation = self._observation, None
        if observation is not None and self._expects:
            self._learn(turn, observation)
        self._epoch += 1
        self._set_clock(turn)

    def _learn(self, turn: Turn, observation: Observation) -> None:
        columns = len(observation.columns)
        kept = min(math.ceil(self._parameters.kept_ratio * self._parameters.degree), columns)
        messages = list(observation.rows())
        tally = Tally(self.state.topics, self._importance, kept)
        for message in messages:
            tally.add(message, columns)
        published = self._estimate.published(sorted(self.state.topics), turn.now_ns - self._observed_since_ns)
        expected = sum(self._importance.get(topic, 1.0) * count for topic, count in published.items())
        literal = self._parameters.literal
        subset, score = best_subset(tally, columns, kept, expected, self._weights, literal=literal)
        turn.trace("epoch", epoch=self._epoch, score=score)
        self._switch(observation.columns, subset)
        scores = topic_scores(messages, subset, published, self._weights, literal=literal)
        self._explore(turn, worse_topics(scores, self._parameters.eta, SCORE_EPSILON))

    def _switch(self, columns: tuple[NodeId, ...], kept: Subset) -> None:
        """Give up whom the subset leaves out; who took the place of a lost neighbour meanwhile stays."""
        stay = {columns[column] for column in kept}
        self._given_up = tuple(peer for peer in columns if peer in self._chosen and peer not in stay)
        for peer in self._given_up:
            del self._chosen[peer]
