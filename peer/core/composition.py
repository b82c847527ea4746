"""Composes a node from its parts and gives each event to those that it concerns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from peer.core.contract import (
    ContractError,
    Effect,
    Event,
    FrameReceived,
    Leaving,
    LinkDown,
    LinkUp,
    NodeId,
    PeerList,
    Publish,
    Started,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from peer.core.frames import Frame
from peer.core.node import Neighbour, Part, State, Turn


class ComposedNode:
    """A node made of parts, which hear of each event in the order of ``parts``.

    Args:
        state: shared by all parts.
        parts: role ("membership", "interests", "overlay", "dissemination") to part. A timer's name starts with the
            role of the part that set it.
    """

    __slots__ = ("_borrower", "_each", "_handlers", "_hearers", "_now_ns", "_parts", "_takers", "state")

    def __init__(self, state: State, parts: dict[str, Part]) -> None:
        self.state = state
        self._parts = parts
        self._each = tuple(parts.values())
        self._borrower = next((part for part in self._each if part.borrows), None)
        self._takers = {kind.kind: part for part in self._each for kind in part.frames}
        self._hearers = _hearers(tuple(type(part) for part in self._each))
        self._now_ns = 0
        self._handlers = _AT_FIRST

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        """See ``peer.core.contract.Node``."""
        if now_ns < self._now_ns:
            raise ContractError(f"time ran back from {self._now_ns} to {now_ns} ns")
        handler = self._handlers.get(type(event))
        if handler is None:
            raise self._refuse(event)
        self._now_ns = now_ns
        turn = Turn(self.state, now_ns)
        handler(self, turn, event)
        while turn.claimed:
            peer, *turn.claimed = turn.claimed
            self._show(turn, peer)
        return turn.effects

    def _refuse(self, event: Event) -> ContractError:
        name = type(event).__name__
        if self._handlers is _AT_FIRST:
            return ContractError(f"{name} before Started")
        return ContractError(f"{name} after Started" if isinstance(event, Started) else f"{name} is not an event")

    def _start(self, turn: Turn, event: Started) -> None:
        self._handlers = _LATER
        for part in self._each:
            part.start(turn)

    def _meet(self, turn: Turn, event: PeerList) -> None:
        self.state.numbers = max(self.state.numbers, event.directory.nodes.bit_length())
        for part in self._each:
            part.meet(turn, event.directory)

    def _leave(self, turn: Turn, event: Leaving) -> None:
        for part in self._each:
            part.leave(turn)

    def _link_up(self, turn: Turn, event: LinkUp) -> None:
        state, peer = self.state, event.peer
        if state.is_linked(peer):
            raise ContractError(f"a second link to {peer}")
        if self._borrower is not None and peer not in state.wanted:
            state.aside.add(peer)
            self._borrower.link_up(turn, peer)
            return
        state.neighbours[peer] = Neighbour(event.outbound)
        for part in self._each:
            part.link_up(turn, peer)

    def _show(self, turn: Turn, peer: NodeId) -> None:
        """Let all parts see a link that so far only one used: another one of this node, or of the peer, needs it."""
        state = self.state
        if peer in state.aside:
            state.aside.remove(peer)
            state.neighbours[peer] = Neighbour(peer in state.wanted)
            for part in self._each:
                if part is not self._borrower:
                    part.link_up(turn, peer)

    def _link_down(self, turn: Turn, event: LinkDown) -> None:
        state, peer = self.state, event.peer
        if not event.retrying:
            state.wanted.discard(peer)
            state.borrowed.discard(peer)
        if peer in state.aside:
            assert self._borrower is not None, "only its links stand aside"
            state.aside.remove(peer)
            self._borrower.link_down(turn, peer, event.reason, event.retrying)
        else:
            neighbour = state.drop_neighbour(peer)
            if neighbour is not None and neighbour.logical:
                turn.trace("prune", peer=peer, topics=neighbour.logical, reason=event.reason)
            for part in self._each:
                part.link_down(turn, peer, event.reason, event.retrying)
        if self._borrower is not None and event.retrying and not (peer in state.wanted or peer in state.borrowed):
            turn.disconnect(peer, "unused")  # it was borrowed, given back while the peer used it, and then it broke

    def _receive(self, turn: Turn, event: FrameReceived) -> None:
        peer, frame = event.peer, event.frame
        if peer not in self.state.neighbours:
            self._require_link(turn, peer, frame)
        hearers = self._hearers.get(frame.kind)
        if hearers is None:
            turn.trace("reject", peer=peer, kind=frame.kind, reason="unexpected_kind")
        else:
            each = self._each
            for place, hear in hearers:
                hear(each[place], turn, peer, frame)

    def _require_link(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Let all parts see a link over which a frame comes that is not for the part that borrows."""
        if not self.state.is_linked(peer):
            raise ContractError(f"a frame from {peer}, to which there is no link")
        if self._takers.get(frame.kind, self._borrower) is not self._borrower:
            self._show(turn, peer)

    def _fire(self, turn: Turn, event: TimerFired) -> None:
        part = self._parts.get(event.name.partition("/")[0])
        if part is None:
            raise ContractError(f"no part set a timer called {event.name}")
        part.fire(turn, event.name)

    def _publish(self, turn: Turn, event: Publish) -> None:
        for part in self._each:
            part.publish(turn, event)

    def _subscribe(self, turn: Turn, event: Subscribe) -> None:
        if event.topic not in self.state.topics:
            for part in self._each:
                part.subscribe(turn, event.topic)

    def _unsubscribe(self, turn: Turn, event: Unsubscribe) -> None:
        if event.topic in self.state.topics:
            for part in self._each:
                part.unsubscribe(turn, event.topic)


_Hearer = tuple[int, Callable[[Any, Turn, NodeId, Any], None]]


@cache
def _hearers(parts: tuple[type[Part], ...]) -> dict[int, tuple[_Hearer, ...]]:
    """Who hears of a frame, by its kind: the parts' places and methods, in order; the one that takes it comes last.

    All nodes of the same parts share it, so that a simulation of many has it at hand.
    """
    return {
        taken.kind: (
            *((place, part.overhear) for place, part in enumerate(parts) if issubclass(taken, part.overhears)),
            (taker, parts[taker].receive),
        )
        for taker in range(len(parts))
        for taken in parts[taker].frames
    }


_Handler = Callable[[ComposedNode, Turn, Any], None]
_AT_FIRST: dict[type[Event], _Handler] = {Started: ComposedNode._start}
_LATER: dict[type[Event], _Handler] = {
    PeerList: ComposedNode._meet,
    LinkUp: ComposedNode._link_up,
    LinkDown: ComposedNode._link_down,
    FrameReceived: ComposedNode._receive,
    TimerFired: ComposedNode._fire,
    Publish: ComposedNode._publish,
    Subscribe: ComposedNode._subscribe,
    Unsubscribe: ComposedNode._unsubscribe,
    Leaving: ComposedNode._leave,
}
