"""The node: it consists of parts, and passes each event to the parts that handle it."""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from peer.core import contract
from peer.core.contract import ContractError, Effect, Event, Node, NodeId
from peer.core.frames import Frame
from peer.core.parts import Neighbour, Part, State, Turn


class StatefulNode(Node, Protocol):
    """A node whose state its driver may read."""

    state: State


class ComposedNode:
    """A node that consists of parts. It passes each event to them in the order of ``parts``.

    Attributes:
        state: shared by all parts.
        parts: role ("membership", "interests", "overlay", "dissemination") to part. A timer's name starts with the
            role of the part that set it. A part in two roles gets each event once.

    Raises:
        ValueError: two parts write the same field of the state, or receive the same frames.
    """

    __slots__ = (
        "_at_link_down",
        "_at_link_up",
        "_borrower",
        "_each",
        "_handlers",
        "_hearers",
        "_now_ns",
        "_takers",
        "parts",
        "state",
    )

    def __init__(self, state: State, parts: dict[str, Part]) -> None:
        self.state = state
        self.parts = parts
        self._each = tuple(dict.fromkeys(parts.values()))
        self._borrower = next((part for part in self._each if part.borrows), None)
        self._takers = {kind.kind: part for part in self._each for kind in part.frames}
        types = tuple(type(part) for part in self._each)
        self._hearers = _hearers(types)
        self._at_link_up, self._at_link_down = _overriders(types, "link_up"), _overriders(types, "link_down")
        self._now_ns = 0
        self._handlers = _AT_FIRST

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        if now_ns < self._now_ns:
            raise ContractError(f"time ran backwards from {self._now_ns} to {now_ns} ns")
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
        problem = "after Started" if isinstance(event, contract.Started) else "is not an event"
        return ContractError(f"{name} {problem}")

    def _start(self, turn: Turn, event: contract.Started) -> None:
        self._handlers = _LATER
        for part in self._each:
            part.start(turn)

    def _meet(self, turn: Turn, event: contract.PeerList) -> None:
        object.__setattr__(self.state, "numbers", max(self.state.numbers, event.directory.nodes.bit_length()))
        for part in self._each:
            part.meet(turn, event.directory)

    def _leave(self, turn: Turn, event: contract.Leaving) -> None:
        for part in self._each:
            part.leave(turn)

    def _link_up(self, turn: Turn, event: contract.LinkUp) -> None:
        state, peer = self.state, event.peer
        if state.is_linked(peer):
            raise ContractError(f"a second link to {peer}")
        if self._borrower is not None and peer not in state._wanted:
            state._aside[peer] = None
            self._borrower.link_up(turn, peer)
            return
        state._neighbours[peer] = Neighbour(event.outbound)
        for place, link_up in self._at_link_up:
            link_up(self._each[place], turn, peer)

    def _show(self, turn: Turn, peer: NodeId) -> None:
        """Show all parts a link that only the borrower used: another part of this node or of the peer needs it."""
        state = self.state
        if peer in state._aside:
            del state._aside[peer]
            state._neighbours[peer] = Neighbour(peer in state._wanted)
            for part in self._each:
                if part is not self._borrower:
                    part.link_up(turn, peer)

    def _link_down(self, turn: Turn, event: contract.LinkDown) -> None:
        state, peer = self.state, event.peer
        if not event.retrying:
            state._wanted.pop(peer, None)
            state._borrowed.pop(peer, None)
        if peer in state._aside:
            assert self._borrower is not None, "only the borrower has such links"
            del state._aside[peer]
            self._borrower.link_down(turn, peer, event.reason, event.retrying)
        else:
            state._receivers.clear()
            neighbour = state._neighbours.pop(peer, None)
            if neighbour is not None and neighbour.logical:
                turn.trace("prune", peer=peer, topics=neighbour.logical, reason=event.reason)
            for place, link_down in self._at_link_down:
                link_down(self._each[place], turn, peer, event.reason, event.retrying)
        if self._borrower is not None and event.retrying and not (peer in state._wanted or peer in state._borrowed):
            turn.disconnect(peer, "unused")  # the borrower released it while the peer used it, and then it broke

    def _receive(self, turn: Turn, event: contract.FrameReceived) -> None:
        peer, frame = event.peer, event.frame
        if peer not in self.state._neighbours:
            self._require_link(turn, peer, frame)
        hearers = self._hearers.get(frame.kind)
        if hearers is None:
            turn.trace("reject", peer=peer, kind=frame.kind, reason="unexpected_kind")
        else:
            each = self._each
            for place, hear in hearers:
                hear(each[place], turn, peer, frame)

    def _require_link(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Check that there is a link. Show it to all parts if the frame is not for the part that borrows."""
        if not self.state.is_linked(peer):
            raise ContractError(f"got a frame from {peer} without a link to it")
        if self._takers.get(frame.kind, self._borrower) is not self._borrower:
            self._show(turn, peer)

    def _fire(self, turn: Turn, event: contract.TimerFired) -> None:
        part = self.parts.get(event.name.partition("/")[0])
        if part is None:
            raise ContractError(f"no part set a timer called {event.name}")
        part.fire(turn, event.name)

    def _publish(self, turn: Turn, event: contract.Publish) -> None:
        for part in self._each:
            part.publish(turn, event)

    def _subscribe(self, turn: Turn, event: contract.Subscribe) -> None:
        if event.topic not in self.state.topics:
            for part in self._each:
                part.subscribe(turn, event.topic)

    def _unsubscribe(self, turn: Turn, event: contract.Unsubscribe) -> None:
        if event.topic in self.state.topics:
            for part in self._each:
                part.unsubscribe(turn, event.topic)


_Hearer = tuple[int, Callable[..., None]]
"""The place of a part among the parts of its node, and one of its methods."""


@cache
def _hearers(parts: tuple[type[Part], ...]) -> dict[int, tuple[_Hearer, ...]]:
    """Return the methods that get a frame, by its kind: overhearing parts in order, then the part that receives it.

    All nodes with the same parts share the result.

    Raises:
        ValueError: two of the parts write the same field of the state, or receive the same frames.
    """
    owners: dict[str, type[Part]] = {}
    for part in parts:
        for claim in (*sorted(part.writes), *(taken.__name__ for taken in part.frames)):
            if claim in owners:
                raise ValueError(f"{owners[claim].__name__} and {part.__name__} both own {claim}")
            owners[claim] = part
    return {
        taken.kind: (
            *((place, part.overhear) for place, part in enumerate(parts) if issubclass(taken, part.overhears)),
            (taker, parts[taker].receive),
        )
        for taker in range(len(parts))
        for taken in parts[taker].frames
    }


@cache
def _overriders(parts: tuple[type[Part], ...], name: str) -> tuple[_Hearer, ...]:
    """Return the parts that override a method of ``Part``, each with its own method, in order."""
    methods = [(place, getattr(part, name)) for place, part in enumerate(parts)]
    return tuple((place, method) for place, method in methods if method is not getattr(Part, name))


_Handler = Callable[[ComposedNode, Turn, Any], None]
_AT_FIRST: dict[type[Event], _Handler] = {contract.Started: ComposedNode._start}
_LATER: dict[type[Event], _Handler] = {
    contract.PeerList: ComposedNode._meet,
    contract.LinkUp: ComposedNode._link_up,
    contract.LinkDown: ComposedNode._link_down,
    contract.FrameReceived: ComposedNode._receive,
    contract.TimerFired: ComposedNode._fire,
    contract.Publish: ComposedNode._publish,
    contract.Subscribe: ComposedNode._subscribe,
    contract.Unsubscribe: ComposedNode._unsubscribe,
    contract.Leaving: ComposedNode._leave,
}
