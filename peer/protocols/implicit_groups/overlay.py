"""The surface as an overlay: the handling of events and frames."""

from typing import ClassVar

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame
from peer.core.parts import Turn
from peer.protocols.implicit_groups.addressing.region import Region
from peer.protocols.implicit_groups.encoding import unpack_all
from peer.protocols.implicit_groups.frames import (
    GroupJoin,
    GroupLeave,
    GroupRefusal,
    GroupUpdate,
    GroupWelcome,
)
from peer.protocols.implicit_groups.joining import JOIN
from peer.protocols.implicit_groups.leaving import LeavingOverlay
from peer.protocols.implicit_groups.neighbours import SECOND_NS, UNUSED
from peer.protocols.implicit_groups.surface import NOWHERE


class GroupOverlay(LeavingOverlay):
    """The surface of the paper: nodes join and leave, and have links to the managers of adjacent extents.

    Source: sections 2.4, 3.2 and 3.3.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = (GroupJoin, GroupWelcome, GroupUpdate, GroupLeave, GroupRefusal)

    def start(self, turn: Turn) -> None:
        """Take the place that the plan gives, or join: at once, or within the given time if a run starts."""
        p = self._p
        if p.first_seed != self.state.seed:
            turn.set_timer(JOIN, turn.now_ns + 1)
        elif p.extents or p.linked:
            self._place(turn, unpack_all([bytes.fromhex(extent) for extent in p.extents], self._space))
        else:
            turn.set_timer(JOIN, turn.now_ns + 1 + round(self._draws.random() * p.join_spread_s * SECOND_NS))

    def _place(self, turn: Turn, extents: Region) -> None:
        p = self._p
        self.surface.take(extents)
        self.cohabitants = dict.fromkeys(p.cohabitants)
        if not extents:
            [self.host] = p.linked
        for peer in (*p.linked, *p.cohabitants):
            if self.state.node < peer:
                turn.connect(peer)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        for frame in self._queued.pop(peer, ()):
            turn.send(peer, frame)
        if peer in self._newcomers:
            self._welcome(turn, peer)
        elif self.is_member:
            self._update(turn, peer)
        if peer == self._contact and not self.has_place:
            turn.send(peer, GroupJoin(self.state.node, self._own_address(), 1, ()))

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Redial a neighbour that closed the link as unused. Otherwise forget a node that the driver gave up."""
        self._told.pop(peer, None)
        self._heard_of_itself.pop(peer, None)
        if retrying:
            return
        queued = self._queued.pop(peer, ())
        self._newcomers.pop(peer, None)
        self.cohabitants.pop(peer, None)
        if given := self._given.pop(peer, NOWHERE):
            self._take_back(turn, peer, given)
        if peer in self.surface.neighbours and reason == UNUSED:
            turn.connect(peer)
        else:
            self.surface.forget(peer)
        if peer == self.host:
            self.host = None
        if not self.has_place and (peer == self._contact or not self.is_member):
            self._seek(turn)
        for frame in queued:
            self._route_again(turn, frame)

    def leave(self, turn: Turn) -> None:
        self._hand_off(turn)
        self._forget_all()

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        self._move(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        self._move(turn)

    def fire(self, turn: Turn, name: str) -> None:
        """Send a JOIN, for the first time or because there was no answer."""
        if name == JOIN and not self.has_place:
            self._seek(turn)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        try:
            self._take(turn, peer, frame)
        except ValueError:  # invalid extents or addresses
            turn.trace("reject", peer=peer, kind=frame.kind, reason="bad_extents")

    def _take(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        match frame:
            case GroupJoin():
                self._take_join(turn, peer, frame)
            case GroupWelcome():
                self._take_welcome(turn, peer, frame)
            case GroupUpdate():
                self._take_update(turn, peer, unpack_all(frame.extents, self._space), self._read(frame.entries))
            case GroupLeave():
                self._take_leave(turn, peer, self._read(frame.entries))
            case GroupRefusal():
                self._take_refusal(turn, peer, frame)
