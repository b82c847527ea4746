"""HyParView: a node's views in one swarm, and how they change."""

from collections.abc import Iterable
from random import Random
from typing import Protocol

from msgspec import Struct

from peer.core.contract import NodeId
from peer.core.frames import Frame
from peer.core.links import UNWANTED
from peer.core.parts import State, Turn
from peer.protocols.plumtree.frames import (
    HyparviewAnswer,
    HyparviewDisconnect,
    HyparviewForwardJoin,
    HyparviewJoin,
    HyparviewNeighbour,
    HyparviewShuffle,
    HyparviewShuffleReply,
    SwarmFrame,
    SwarmId,
)
from peer.protocols.plumtree.parameters import PlumtreeParameters
from peer.protocols.plumtree.views import Views

UNUSED = "unused"
"""The reason with which a node closes a link that none of its swarms needs."""

MOST_REQUESTS = 16
"""Most requests of a node in a swarm that await an answer. Forwarded joins of other nodes cause some."""

SCARCE = 2
"""Least number of free places with which a node joins again, if no node of its passive view takes one."""


class Request(Struct):
    """A join, or a request to become a neighbour, that awaits its answer.

    Attributes:
        frame: the frame that was sent.
        due_ns: when the other node counts as failed (ns).
        urgent: whether the other node gets a place even if the active view is full by then.
        resent: whether it was sent again, since the other node closed the link before it read the request.
    """

    frame: SwarmFrame
    due_ns: int
    urgent: bool
    resent: bool = False


class Overlay(Protocol):
    """What a swarm needs of its overlay: links that all swarms of the node share, and the nodes that are listed."""

    def post(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Send a frame, over a new link if there is none."""

    def release(self, turn: Turn, peer: NodeId) -> None:
        """Close the link to a node that no swarm needs, or no longer ask for one."""

    def await_answers(self, turn: Turn) -> None:
        """Call ``expire`` when the request that was made now is due."""

    def neighbour_up(self, turn: Turn, swarm: SwarmId, peer: NodeId) -> None:
        """Note that a node has entered a swarm's active view."""

    def neighbour_down(self, turn: Turn, swarm: SwarmId, peer: NodeId, reason: str) -> None:
        """Note that a node is no longer in a swarm's active view."""

    def contact(self, swarm: SwarmId, excluded: Iterable[NodeId]) -> NodeId | None:
        """Return the node through which to enter a swarm; None = all are excluded."""
        ...

    def stranger(self, swarm: SwarmId, excluded: Iterable[NodeId]) -> NodeId | None:
        """Return a random listed node of a swarm; None = all are excluded."""
        ...


class Swarm:
    """Keeps a node's views in a swarm.

    The active view is symmetric: a node enters it only when both sides agree, by a join or a request and its answer,
    over a link that is up. This node sends a disconnect to a node that wrongly has it in its active view. A neighbour
    whose link broke has failed. Each event that may free a place sends one request to a node of the passive view.
    Shuffles keep the passive view fresh. A node without neighbours, or one that no node of its passive view accepts,
    joins through a node that the bootstrap service lists.

    Args:
        number: the number of the swarm.
        state: the node's state.
        parameters: sizes, walks and times.
        draws: the generator for random choices.
        overlay: the overlay, which has the links that its swarms share.

    Source: HyParView section 4; docs/protocols/plumtree.md lists the additions.
    """

    def __init__(
        self, number: SwarmId, state: State, parameters: PlumtreeParameters, draws: Random, overlay: Overlay
    ) -> None:
        self.views = Views(state.node, parameters, draws)
        self.requests: dict[NodeId, Request] = {}
        self._number = number
        self._state = state
        self._p = parameters
        self._overlay = overlay
        self._timeout_ns = round(parameters.request_timeout_s * 1e9)
        self._most_named = parameters.shuffle_active + parameters.shuffle_passive + 1
        self._tried: set[NodeId] = set()  # since the last shuffle, without success
        self._shuffled: tuple[NodeId, ...] = ()

    def uses(self, peer: NodeId) -> bool:
        """Return whether the link to a node is needed."""
        return peer in self.views.active or peer in self.requests

    # ------------------------------------------------------------------------------------------ entering, leaving

    def enter(self, turn: Turn) -> None:
        if not self.views.active and not self.requests:
            self._refill(turn)

    def leave(self, turn: Turn) -> None:
        """Leave the swarm."""
        for peer in tuple(self.views.active):
            self._overlay.post(turn, peer, HyparviewDisconnect(self._number, False, ()))
            self._remove(turn, peer, "left")
            self._overlay.release(turn, peer)
        for peer in self.requests:
            self._overlay.release(turn, peer)

    def receive(self, turn: Turn, peer: NodeId, frame: SwarmFrame) -> None:
        match frame:
            case HyparviewJoin():
                self._take_join(turn, peer)
            case HyparviewNeighbour(urgent=urgent):
                self._take_request(turn, peer, urgent)
            case HyparviewAnswer(accepted=accepted):
                self._take_answer(turn, peer, accepted)
            case HyparviewDisconnect(stays=stays, nodes=nodes):
                self._take_disconnect(turn, peer, stays, nodes[: self._most_named])
            case HyparviewShuffleReply(nodes=nodes):
                self._learn(nodes[: self._most_named], self._shuffled)
                self._refill(turn)
            case _ if peer not in self.views.active:
                if peer not in self.requests:  # otherwise its answer settles whether the two are neighbours
                    self.disown(turn, peer)
            case HyparviewForwardJoin(node=node, ttl=ttl):
                self._take_walk(turn, peer, node, min(ttl, self._p.active_walk))
            case HyparviewShuffle(origin=origin, ttl=ttl, nodes=nodes):
                self._take_shuffle(turn, peer, origin, min(ttl, self._p.shuffle_walk), nodes[: self._most_named])

    def disown(self, turn: Turn, peer: NodeId) -> None:
        """Send a disconnect to a node that wrongly has this node in its active view."""
        self._overlay.post(turn, peer, HyparviewDisconnect(self._number, True, ()))

    def link_down(self, turn: Turn, peer: NodeId, reason: str) -> None:
        """Handle the end of a link. Its node has failed, unless it closed a link that it did not need.

        Args:
            turn: the present turn.
            peer: the node.
            reason: why the link ended or could not be opened.
        """
        was_used, is_alive = self.uses(peer), reason in (UNUSED, UNWANTED)
        if peer in self.views.active:
            self._remove(turn, peer, reason)
            if is_alive:
                self.views.remember(peer)
        if not is_alive:
            self.views.passive.pop(peer, None)
        request = self.requests.get(peer)
        if request is not None and is_alive and not request.resent:
            request.resent = True
            self._overlay.post(turn, peer, request.frame)
        elif request is not None:
            self._fail(peer)
        if was_used:
            self._refill(turn)

    # ------------------------------------------------------------------------------------------------ active view

    def _take_join(self, turn: Turn, peer: NodeId) -> None:
        """Become the neighbour of a node that enters, and introduce it to others."""
        self._admit(turn, peer)
        self._overlay.post(turn, peer, HyparviewAnswer(self._number, True))
        for other in self.views.active:
            if other != peer:
                self._overlay.post(turn, other, HyparviewForwardJoin(self._number, peer, self._p.active_walk))

    def _take_walk(self, turn: Turn, peer: NodeId, node: NodeId, ttl: int) -> None:
        """Become the neighbour of the new node if its walk ends here. Otherwise forward the walk.

        Args:
            turn: the present turn.
            peer: the node that forwarded the walk.
            node: the new node.
            ttl: the hops left.
        """
        if node in self.views.active or node == self._state.node or not self._state.may_be_node(node):
            return
        following = self.views.pick_active(peer) if ttl > 0 else None
        if following is None:
            if node not in self.requests and len(self.requests) < MOST_REQUESTS:
                self._ask(turn, node, HyparviewNeighbour(self._number, True), urgent=True)
            return
        if ttl == self._p.passive_walk:
            self.views.remember(node)
        self._overlay.post(turn, following, HyparviewForwardJoin(self._number, node, ttl - 1))

    def _take_request(self, turn: Turn, peer: NodeId, urgent: bool) -> None:
        accepted = urgent or peer in self.views.active or self.views.free > 0
        if accepted:
            self._admit(turn, peer)
        self._overlay.post(turn, peer, HyparviewAnswer(self._number, accepted))

    def _take_answer(self, turn: Turn, peer: NodeId, accepted: bool) -> None:
        """Complete a request. The answer may be late, or there may be no free place any more.

        Args:
            turn: the present turn.
            peer: the node that answers.
            accepted: whether it accepts.
        """
        request = self.requests.pop(peer, None)
        if not accepted:
            self._tried.add(peer)
        elif request is not None and (request.urgent or self.views.free > 0):
            self._admit(turn, peer)
        elif peer not in self.views.active:
            self.disown(turn, peer)
        self._refill(turn)
        self._overlay.release(turn, peer)

    def _take_disconnect(self, turn: Turn, peer: NodeId, stays: bool, nodes: tuple[NodeId, ...]) -> None:
        """Replace a neighbour that displaced this node or left the swarm.

        Args:
            turn: the present turn.
            peer: the node.
            stays: whether it is in the swarm.
            nodes: other nodes of the swarm.
        """
        was_used = self.uses(peer)
        if peer in self.views.active:
            self._remove(turn, peer, "disconnected")
            self.views.remember(peer)
        if not stays:
            self.views.passive.pop(peer, None)
            self.requests.pop(peer, None)
        if was_used:
            self._tried.add(peer)
            self._learn(nodes, ())
            self._refill(turn)
            self._overlay.release(turn, peer)

    def _admit(self, turn: Turn, peer: NodeId) -> None:
        """Add a node to the active view. If the view is full, displace a random member."""
        if peer in self.views.active:
            return
        if self.views.free <= 0 and (other := self.views.pick_active()) is not None:
            names = self._names(self._most_named, other)
            self._overlay.post(turn, other, HyparviewDisconnect(self._number, True, names))
            self._remove(turn, other, "displaced")
            self.views.remember(other)
            self.requests.pop(other, None)  # its answer may be older than this disconnect
            self._overlay.release(turn, other)
        self.views.activate(peer)
        self._overlay.neighbour_up(turn, self._number, peer)

    def _remove(self, turn: Turn, peer: NodeId, reason: str) -> None:
        del self.views.active[peer]
        self._overlay.neighbour_down(turn, self._number, peer, reason)

    # --------------------------------------------------------------------------------------------------- requests

    def expire(self, turn: Turn) -> None:
        """Give up requests without an answer in time."""
        overdue = [peer for peer, request in self.requests.items() if request.due_ns <= turn.now_ns]
        for peer in overdue:
            self._fail(peer)
            self._overlay.release(turn, peer)
        if overdue:
            self._refill(turn)

    def _fail(self, peer: NodeId) -> None:
        """Forget a node that does not answer."""
        del self.requests[peer]
        self.views.passive.pop(peer, None)
        self._tried.add(peer)

    def _ask(self, turn: Turn, peer: NodeId, frame: SwarmFrame, *, urgent: bool) -> None:
        self.requests[peer] = Request(frame, turn.now_ns + self._timeout_ns, urgent)
        self._overlay.post(turn, peer, frame)
        self._overlay.await_answers(turn)

    def _join(self, turn: Turn, contact: NodeId) -> None:
        self._ask(turn, contact, HyparviewJoin(self._number), urgent=True)

    def _refill(self, turn: Turn) -> None:
        """Ask a node of the passive view to become a neighbour if a place is free; urgently if there is none."""
        pending = sum(peer not in self.views.active for peer in self.requests)
        if self.views.free <= pending or pending >= MOST_REQUESTS:
            return
        isolated = not self.views.active
        peer = self.views.pick_passive(self.requests, self._tried)
        if peer is None and isolated:
            peer = self.views.pick_passive(self.requests)
        if peer is not None:
            self._ask(turn, peer, HyparviewNeighbour(self._number, isolated), urgent=isolated)
        elif isolated and not pending:
            contact = self._overlay.contact(self._number, self._tried)
            if contact is not None:
                self._join(turn, contact)

    # --------------------------------------------------------------------------------------------------- shuffles

    def tick(self, turn: Turn) -> None:
        """Begin a shuffle, and try again to fill the active view with all known nodes."""
        is_stuck = not self.views.active or self.views.free >= SCARCE
        is_stuck &= not self.requests and self._tried.issuperset(self.views.passive)
        self._tried.clear()
        stranger = self._overlay.stranger(self._number, self.views.active) if is_stuck else None
        if stranger is not None:
            self._join(turn, stranger)
        else:
            self._refill(turn)
        self._shuffle(turn)

    def _shuffle(self, turn: Turn) -> None:
        target = self.views.pick_active()
        if target is None:
            return
        active = self.views.sample_active(self._p.shuffle_active, target)
        self._shuffled = (*active, *self.views.sample_passive(self._p.shuffle_passive))
        walk = HyparviewShuffle(self._number, self._state.node, self._p.shuffle_walk, self._shuffled)
        self._overlay.post(turn, target, walk)

    def _take_shuffle(self, turn: Turn, peer: NodeId, origin: NodeId, ttl: int, nodes: tuple[NodeId, ...]) -> None:
        """Forward a shuffle. If it ends here, return as many names as it has, and learn its nodes.

        Args:
            turn: the present turn.
            peer: the node that forwarded it.
            origin: the node that began it.
            ttl: the hops left, including this one.
            nodes: the nodes that it names.
        """
        if origin == self._state.node or not self._state.may_be_node(origin):
            return
        following = self.views.pick_active(peer, origin) if ttl > 1 else None
        if following is not None:
            self._overlay.post(turn, following, HyparviewShuffle(self._number, origin, ttl - 1, nodes))
            return
        given = self._names(len(nodes) + 1, origin)
        if given:
            self._overlay.post(turn, origin, HyparviewShuffleReply(self._number, given))
        self._learn((origin, *nodes), given)

    def _names(self, count: int, receiver: NodeId) -> tuple[NodeId, ...]:
        """Return random nodes for another node's passive view: passive ones first, then neighbours."""
        passive = self.views.sample_passive(count, receiver)
        return (*passive, *self.views.sample_active(count - len(passive), receiver))

    def _learn(self, nodes: Iterable[NodeId], sent: tuple[NodeId, ...]) -> None:
        for node in nodes:
            if self._state.may_be_node(node):
                self.views.remember(node, sent)
