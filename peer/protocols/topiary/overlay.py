"""The Topiary overlay: a node keeps the neighbours that bring messages early, and replaces the others by new ones."""

import math
from typing import Annotated, Literal

from msgspec import Meta, Struct

from peer.core.bitset import Bitset
from peer.core.contract import Directory, MessageId, NodeId, TopicId
from peer.core.frames import Data, Frame
from peer.core.membership.interface import Membership
from peer.core.outgoing import OutgoingLinks
from peer.core.parts import Part, State, Turn
from peer.protocols.topiary.estimates import Estimate, RateEstimate, SequenceEstimate
from peer.protocols.topiary.frames import Release
from peer.protocols.topiary.observation import Observation
from peer.protocols.topiary.scores import Subset, Tally, Weights, best_subset, topic_scores, worse_topics

EPOCH, SETTLED = "overlay/epoch", "overlay/settled"

SCORE_EPSILON = 1e-9
"""A score above it is worse than a best score of 0, since no multiple of 0 is above 0 (Eq. 9)."""

Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]


class TopiaryParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The Topiary overlay: neighbours chosen by the arrival times of their messages."""

    degree: Annotated[int, Meta(ge=1, le=10)] = 5
    """d: links that a node opens; incoming links are not limited."""
    kept_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.6
    """Share of the outgoing neighbours kept at the end of an epoch, rounded up; exploration replaces the others."""
    epoch_s: Annotated[float, Meta(ge=0.001, le=604_800)] = 10.0
    """Length of an epoch, unless ``epoch_messages`` is set."""
    epoch_messages: Annotated[int, Meta(ge=1)] | None = None
    """Messages of other nodes after which an epoch ends, instead of ``epoch_s``."""
    overlap_s: Annotated[float, Meta(ge=0, le=604_800)] = 1.0
    """Time for which given-up links stay open in the next epoch while new ones are opened. Messages that arrive in it
    are neither observed nor counted as missing."""
    coverage_weight: NonNegative = 1.0
    """w_c: weight of the fraction of messages that a subset does not bring."""
    delay_weight: NonNegative = 10.0
    """w_d: weight of each second that a subset is later than the earliest neighbour."""
    waste_weight: NonNegative = 0.0
    """w_w: weight of the fraction of messages that a subset brings needlessly."""
    eta: Annotated[float, Meta(gt=1)] = 1.2
    """Exploration serves the topics with a score above this multiple of the best topic's."""
    topic_weights: tuple[tuple[int, NonNegative], ...] = ()
    """Pairs of topic and weight; other topics have weight 1."""
    estimate: Literal["sequence", "rate"] = "sequence"
    """How a node estimates the number of published messages: from the publishers' sequence numbers, or from a known
    rate."""
    topic_rate_per_s: NonNegative = 0.0
    """Known rate of every topic (estimate = "rate")."""
    literal: bool = False
    """Score by the paper's formulas: coverage counts the messages that a subset brings, and the highest score is kept.
    This makes the overlay worse."""


class Topiary(Part):
    """Learns which subset of its outgoing neighbours brings messages best, and replaces the others by new ones.

    It opens ``degree`` links, and observes in an epoch when each outgoing neighbour brings each message. Then it keeps
    the subset with the best score, and draws new neighbours that serve the topics on which the subset does less well.

    A link that both ends chose counts for both. So a node that gives up a link sends ``Release``, and the other side
    closes the link unless it keeps it.

    Source: Topiary section IV, Algorithm 1.
    """

    Parameters = TopiaryParameters
    frames = (Release,)
    overhears = (Data,)
    writes = frozenset({"outbound"})
    __slots__ = (
        "_epoch",
        "_estimate",
        "_expects",
        "_given_up",
        "_importance",
        "_membership",
        "_observation",
        "_observed_since_ns",
        "_observes_all",
        "_parameters",
        "_passed",
        "_weights",
        "links",
    )

    def __init__(self, state: State, membership: Membership, parameters: TopiaryParameters) -> None:
        super().__init__(state)
        self._membership = membership
        self._parameters = parameters
        self.links = OutgoingLinks(state, membership, parameters.degree)
        self._weights = Weights(parameters.coverage_weight, parameters.delay_weight, parameters.waste_weight)
        self._importance = dict(parameters.topic_weights)
        self._estimate: Estimate = (
            RateEstimate(parameters.topic_rate_per_s) if parameters.estimate == "rate" else SequenceEstimate()
        )
        self._given_up: tuple[NodeId, ...] = ()
        self._observation: Observation | None = None
        self._observed_since_ns = 0
        self._passed: set[MessageId] = set()
        self._expects = parameters.estimate == "rate"
        self._observes_all = parameters.waste_weight > 0 or parameters.epoch_messages is not None
        self._epoch = 0

    # ------------------------------------------------------------------------------------------------- links

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Draw the first neighbours uniformly, and later replacements for missing ones."""
        if self._observation is None and not self.links.chosen:
            self._set_clock(turn)
        self.links.fill(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Replace a lost outgoing neighbour. Stop the attempts at a link to any other node."""
        if peer in self.links.chosen:
            self.links.link_down(turn, peer, retrying)
        elif retrying:
            turn.disconnect(peer, "released")

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Close the link that the other side gave up, unless this node chose it, too."""
        if peer not in self.links.chosen:
            turn.disconnect(peer, "released")

    def _release(self, turn: Turn, peer: NodeId) -> None:
        """Give up a link. If it is up, the other side decides whether it stays; otherwise stop opening it."""
        if peer in self.state.neighbours:
            self.write(peer, outbound=False)
            turn.send(peer, Release())
        else:
            turn.disconnect(peer, "released")

    def _subscribers_among(self, fresh: Bitset, topics: list[TopicId]) -> Bitset:
        """Return the fresh subscribers of one topic, drawn by their number; all fresh nodes if no topic has any.

        So the probability of each candidate is proportional to the number of topics that it shares.

        Source: Topiary section IV-E, Eq. 10.
        """
        groups = [
            (subscribers, self._importance.get(topic, 1.0))
            for topic in topics
            if (subscribers := self._membership.subscribers(topic) & fresh)
        ]
        weights = [weight * group.bit_count() for group, weight in groups]
        if not any(weights):
            return fresh
        [group] = self.links.draws.choices([group for group, _ in groups], weights)
        return group

    # ------------------------------------------------------------------------------------------------ epochs

    def overhear(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Record the arrival of a copy. Skip copies that the node only relays unless they count."""
        assert isinstance(frame, Data)
        if not self._observes_all and self.state.topics.isdisjoint(frame.topics):
            return
        observation = self._observation
        if observation is None:
            self._passed.add(frame.message_id)
            believed = self._estimate.pass_over(frame, self.state.topics)
        elif observation.arrive(turn.now_ns, peer, frame.message_id, frame.topics):
            believed = self._estimate.see(frame, self.state.topics)
        else:
            return
        self._expects = True
        if not believed:
            turn.trace("reject", peer=peer, message_id=frame.message_id, topics=frame.topics, reason="sequence_jump")
        if observation is not None and len(observation) == self._parameters.epoch_messages:
            self._end_epoch(turn)

    def fire(self, turn: Turn, name: str) -> None:
        """End an epoch, or begin to observe in it, or try again to find missing neighbours."""
        if name == EPOCH:
            self._end_epoch(turn)
        elif name == SETTLED:
            self._settle(turn)
        else:
            self.links.try_again(turn)

    def _set_clock(self, turn: Turn) -> None:
        """Begin an epoch."""
        overlap_ns = round(self._parameters.overlap_s * 1e9)
        turn.set_timer(SETTLED, turn.now_ns + overlap_ns)
        if self._parameters.epoch_messages is None:
            turn.set_timer(EPOCH, turn.now_ns + max(round(self._parameters.epoch_s * 1e9), overlap_ns + 1))

    def _settle(self, turn: Turn) -> None:
        """Give up the links of the last epoch and begin to observe, since the new links are up."""
        for peer in self.links.chosen:
            if peer in self.state.neighbours:
                self.write(peer, outbound=True)  # the other side alone may have opened the link before
        for peer in self._given_up:
            if peer not in self.links.chosen:
                self._release(turn, peer)
        self._given_up = ()
        self._observation = Observation(tuple(self.links.chosen), self.state.node, self._passed)
        self._passed = set()
        self._observed_since_ns = turn.now_ns
        self._estimate.turn_over()

    def _end_epoch(self, turn: Turn) -> None:
        """Score the neighbours and replace those outside the best subset.

        An epoch without messages counts, too, but not before the first message.
        """
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
        worse = worse_topics(scores, self._parameters.eta, SCORE_EPSILON)
        self.links.fill(turn, lambda fresh: (self._subscribers_among(fresh, worse), None))

    def _switch(self, columns: tuple[NodeId, ...], kept: Subset) -> None:
        """Release the neighbours outside the subset, except replacements of neighbours that failed meanwhile."""
        stay = {columns[column] for column in kept}
        self._given_up = tuple(peer for peer in columns if peer in self.links.chosen and peer not in stay)
        for peer in self._given_up:
            del self.links.chosen[peer]
