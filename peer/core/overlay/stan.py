"""StAN: a random overlay for each topic, aligned so that the overlays share physical links."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from peer.core.bitset import members
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.frames import Frame
from peer.core.node import Part, State, Turn
from peer.core.overlay.membership import Membership
from peer.core.overlay.stan_frames import StanCollect, StanQuit, StanReply, StanRide
from peer.core.randomness import substream

WALK = "overlay/walk"
ON_PURPOSE = frozenset({"unused"})
"""Reasons for which a neighbour that is still in a view closes a link: it knew no use of it, and is asked again."""


class StanParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """StAN: an aligned overlay for each topic."""

    period_s: Annotated[float, Meta(gt=0, le=604_800)] = 1.0
    """Time between two walks of a node in each of its topics."""
    walk_ttl: Annotated[int, Meta(ge=0, le=255)] = 5
    """A walk visits one node more than this."""
    degree_factor: Annotated[float, Meta(gt=0, le=100)] = 1.0
    """Mean size of the initial views: this times the natural logarithm of the topic's subscribers."""
    literal: bool = False
    """Collect only the ids of the nodes on the walk, as line 8 of the listing is printed, not those in their views."""


class PlacedStanParameters(StanParameters, frozen=True):
    """StAN with a node's initial views, which the plan draws."""

    views: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(topic, nodes) of every topic that the node subscribes to at the start."""


class Stan(Part):
    """Keeps a directed view for each topic, and replaces its members by those that weigh least for this node.

    The weight of a node is a hash of this node's name and its own, the same in all topics: so the overlays come to
    share neighbours, while what a node does in one overlay does not depend on, or tell of, its other topics. Views keep
    their size. A view's member whose link is lost, or that quits the topic, makes room at once, and the next walk's
    reply fills it.

    A physical link carries any number of topics, of both ends' views. It closes when neither has the other in a view.

    Source: StAN section 2.1, Listing 1.
    """

    Parameters = PlacedStanParameters
    frames = (StanCollect, StanReply, StanRide, StanQuit)

    def __init__(self, state: State, membership: Membership, parameters: PlacedStanParameters) -> None:
        super().__init__(state)
        self._membership = membership
        self._parameters = parameters
        self._draws = substream(state.seed, state.node, "overlay")
        own = state.topics
        self.views: dict[TopicId, tuple[NodeId, ...]] = {t: tuple(v) for t, v in parameters.views if t in own}
        self._sizes = {topic: len(view) for topic, view in self.views.items()}
        self._used: dict[NodeId, tuple[TopicId, ...]] = {}
        self._ridden: dict[NodeId, frozenset[TopicId]] = {}
        self._replies: dict[NodeId, list[StanReply]] = {}

    # ------------------------------------------------------------------------------------------------- views

    def start(self, turn: Turn) -> None:
        """Set out on walks at an instant of this node's own within every period."""
        turn.set_timer(WALK, turn.now_ns + self._draws.randrange(round(self._parameters.period_s * 1e9)))

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Open the initial views' links; topics without a view get one where the bootstrap service tells of members."""
        for topic in sorted(self.state.topics - self.views.keys()):
            self._begin(topic)
        self._use(turn)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        """Enter a topic's overlay, where somebody tells who is in it."""
        if not self._begin(topic):
            turn.trace("reject", topics=(topic,), reason="no_members_known")
        self._use(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """Leave a topic's overlay, and tell those who have this node in their view."""
        self.views.pop(topic, None)
        self._sizes.pop(topic, None)
        for peer, topics in self._ridden.items():
            if topic in topics:
                turn.send(peer, StanQuit((topic,)))
                self._ridden[peer] = topics - {topic}
        self._use(turn)

    def _begin(self, topic: TopicId) -> bool:
        """A first view of a topic from what the membership discloses; whether it discloses anybody."""
        known = sorted(members(self._membership.subscribers(topic)))
        if topic in self.views or not known:
            return topic in self.views
        size = min(len(known), max(1, round(self._parameters.degree_factor * math.log(len(known) + 1))))
        self.views[topic] = tuple(self._draws.sample(known, size))
        self._sizes[topic] = size
        return True

    def _use(self, turn: Turn) -> None:
        """Bring the links in line with the views: open, close, and tell the neighbours which topics ride on them."""
        used: dict[NodeId, list[TopicId]] = {}
        for topic in sorted(self.views):
            for peer in self.views[topic]:
                used.setdefault(peer, []).append(topic)
        before, self._used = self._used, {peer: tuple(topics) for peer, topics in used.items()}
        for peer in [*self._used, *(peer for peer in before if peer not in self._used)]:
            if self._used.get(peer) != before.get(peer):
                self._change(turn, peer, peer in before)

    def _change(self, turn: Turn, peer: NodeId, was_used: bool) -> None:
        if peer in self._used and not was_used:
            turn.connect(peer)
        if peer in self.state.neighbours:
            self._announce(turn, peer)
        elif peer not in self._used and peer not in self._replies:
            turn.disconnect(peer, "unused")

    def _announce(self, turn: Turn, peer: NodeId) -> None:
        """Tell a neighbour what its link is used for; it closes a link that neither side uses."""
        turn.send(peer, StanRide(self._used.get(peer, ())))
        self._relink(turn, peer, "aligned")

    def _relink(self, turn: Turn, peer: NodeId, reason: str) -> None:
        own = self._used.get(peer, ())
        self.state.set_logical(turn, peer, own, reason)
        self.state.neighbours[peer].topics = self._ridden.get(peer, frozenset()).union(own)

    # ------------------------------------------------------------------------------------------------- walks

    def fire(self, turn: Turn, name: str) -> None:
        """Set out on a walk in every topic. Source: StAN Listing 1, lines 1-3."""
        turn.set_timer(WALK, turn.now_ns + round(self._parameters.period_s * 1e9))
        for topic in sorted(self.views):
            target = self._step(topic)
            if target is not None:
                turn.send(target, StanCollect(self.state.node, topic, self._parameters.walk_ttl, ()))

    def _step(self, topic: TopicId) -> NodeId | None:
        """A random member of the view to which there is a link."""
        linked = [peer for peer in self.views[topic] if peer in self.state.neighbours]
        return self._draws.choice(linked) if linked else None

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Take a frame."""
        match frame:
            case StanCollect(origin, topic, ttl, nodes) if topic in self.views:
                self._walk_on(turn, origin, topic, ttl, {*nodes})
            case StanReply(topic, nodes) if topic in self.views:
                self._align(turn, topic, nodes)
            case StanRide(topics):
                self._take_ride(turn, peer, topics)
            case StanQuit(topics):
                self._part(turn, peer, topics)
            case _:
                turn.trace("reject", peer=peer, kind=frame.kind, reason="not_subscribed")

    def _walk_on(self, turn: Turn, origin: NodeId, topic: TopicId, ttl: int, nodes: set[NodeId]) -> None:
        """Add what this node knows, and pass the walk on or end it. Source: StAN Listing 1, lines 5-14."""
        nodes.add(self.state.node)
        if not self._parameters.literal:
            nodes.update(self.views[topic])
        collected = tuple(sorted(nodes))
        target = self._step(topic) if ttl > 0 else None
        if target is not None:
            turn.send(target, StanCollect(origin, topic, ttl - 1, collected))
        elif origin == self.state.node:
            self._align(turn, topic, collected)
        else:
            self._reply(turn, origin, StanReply(topic, collected))

    def _reply(self, turn: Turn, origin: NodeId, reply: StanReply) -> None:
        """Answer the originator, over a link opened for it where there is none."""
        if origin in self.state.neighbours:
            turn.send(origin, reply)
            return
        if origin not in self._replies:
            turn.connect(origin)
        self._replies.setdefault(origin, []).append(reply)

    def _align(self, turn: Turn, topic: TopicId, nodes: Iterable[NodeId]) -> None:
        """Keep the lightest of what is known, as many as before. Source: StAN Listing 1, lines 16-22."""
        known = {*nodes, *self.views[topic]} - {self.state.node}
        lightest = sorted(known, key=self._weigh)[: self._sizes[topic]]
        view = tuple(sorted(lightest))
        if view != self.views[topic]:
            self.views[topic] = view
            self._use(turn)

    def _weigh(self, node: NodeId) -> bytes:
        return weigh(self.state.node, node)

    # ------------------------------------------------------------------------------------------------- links

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """Say what waited for the link, and what it is used for."""
        for reply in self._replies.pop(peer, ()):
            turn.send(peer, reply)
        if peer in self._used or self.state.neighbours[peer].outbound:
            self._announce(turn, peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """A link that is still used is opened again, or its node is missed."""
        self._ridden.pop(peer, None)
        if peer not in self._used:
            if retrying and peer not in self._replies:
                turn.disconnect(peer, "unused")
            elif not retrying:
                self._replies.pop(peer, None)
        elif not retrying and reason in ON_PURPOSE:
            turn.connect(peer)
        elif not retrying:
            self._replies.pop(peer, None)
            self._part(turn, peer, self._used[peer])

    def _take_ride(self, turn: Turn, peer: NodeId, topics: tuple[TopicId, ...]) -> None:
        strange = tuple(topic for topic in topics if topic not in self.state.topics)
        if strange:
            turn.send(peer, StanQuit(strange))  # it has an old view
        self._ridden[peer] = frozenset(topics) & self.state.topics
        self._relink(turn, peer, "aligned")
        if not topics and peer not in self._used:
            turn.disconnect(peer, "unused")

    def _part(self, turn: Turn, peer: NodeId, topics: tuple[TopicId, ...]) -> None:
        """A node is no member of these topics any more: it makes room in the views."""
        for topic in topics:
            if peer in self.views.get(topic, ()):
                self.views[topic] = tuple(node for node in self.views[topic] if node != peer)
        self._use(turn)


def weigh(own: NodeId, other: NodeId) -> bytes:
    """The weight of a node for another one: uniform, and independent for every ordered pair.

    Source: StAN Listing 1, line 25, with a delimiter between the names, without which "1" + "23" is "12" + "3".
    """
    return hashlib.blake2b(b"%d/%d" % (own, other), digest_size=8).digest()
