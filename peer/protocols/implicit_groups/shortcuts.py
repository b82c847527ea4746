"""Random shortcuts: links to nodes anywhere on the surface, which shorten the ways of messages."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import ClassVar

from msgspec.structs import replace

from peer.core.bitset import members
from peer.core.contract import NodeId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.addressing.region import Region
from peer.protocols.implicit_groups.encoding import pack
from peer.protocols.implicit_groups.frames import GroupShortcut, Routed
from peer.protocols.implicit_groups.neighbours import SECOND_NS, UNUSED
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters
from peer.protocols.implicit_groups.repair import RepairedOverlay

SEARCH = "overlay/shortcut"

MOST_PASSED = 16
"""Most nodes that a search lists."""

MOST_DOUBLINGS = 5
"""Most doublings of the pause between two searches that found nothing."""


def sample_way(passed: Sequence[NodeId], node: NodeId, number: int, draws: Random) -> tuple[NodeId, ...]:
    """Return the list of a search with one more node, so that the list stays a uniform sample of the nodes on the way.

    Args:
        passed: the list so far.
        node: the next node on the way.
        number: the node's position on the way; the first is 1.
        draws: the generator that decides whether the node replaces another one on a full list.
    """
    if len(passed) < MOST_PASSED:
        return (*passed, node)
    place = draws.randrange(max(number, 1))
    return (*passed[:place], node, *passed[place + 1 :]) if place < MOST_PASSED else tuple(passed)


class ShortcutOverlay(RepairedOverlay):
    """Keeps links to nodes on the ways from random nodes to its own address, and routes through them.

    In the paper, a newcomer links to one of the nodes that its JOIN passed on the way from its bootstrap node. Here a
    separate frame takes this way: from a node drawn from all known nodes that are not neighbours, to the node's own
    address. So a node also finds shortcuts if the plan placed it, if it wants several, and after it lost one. The nodes
    that route the frame add themselves to a list in it, which stays a uniform sample of at most ``MOST_PASSED`` nodes.

    ROUTE treats shortcuts as neighbours: the next hop is the nearest of all to a destination. Every hop that is not a
    detour is nearer than the one before, so no message comes back. For this a node must know the present extents of its
    shortcuts, so nodes report their extents to all linked nodes, not only to neighbours. The search stops when there
    are enough shortcuts. It pauses longer and longer if it finds only neighbours, as in small networks.

    Attributes:
        shortcuts: the nodes to which it keeps or opens a link.

    Source: section 5.1. The replacement of shortcuts is ours.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = (*RepairedOverlay.frames, GroupShortcut)

    def __init__(self, state: State, membership: Membership, parameters: PlacedImplicitGroupsParameters) -> None:
        super().__init__(state, membership, parameters)
        self.shortcuts: dict[NodeId, None] = {}
        self._guide: NodeId | None = None
        self._fruitless = 0

    def start(self, turn: Turn) -> None:
        super().start(turn)
        if self._p.shortcuts:
            turn.set_timer(SEARCH, turn.now_ns + 1 + self._draws.randrange(SECOND_NS))

    def fire(self, turn: Turn, name: str) -> None:
        if name == SEARCH:
            self._search(turn)
        else:
            super().fire(turn, name)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        super().link_up(turn, peer)
        if peer == self._guide:
            self._ask_for_shortcut(turn, peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Redial a shortcut if the other node closed the link as unused. Otherwise replace it."""
        self.surface.forget_shortcut(peer)
        super().link_down(turn, peer, reason, retrying)
        if peer not in self.shortcuts:
            return
        if reason == UNUSED:
            turn.connect(peer)
            return
        del self.shortcuts[peer]
        if retrying:
            self._close_unused(turn, peer)
        turn.set_timer(SEARCH, turn.now_ns + 1)

    def _take(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, GroupShortcut):
            self._take_search(turn, peer, frame)
        else:
            super()._take(turn, peer, frame)

    def _become_member(self, turn: Turn, extents: Region, entries: Mapping[NodeId, Region]) -> None:
        super()._become_member(turn, extents, entries)
        if len(self.shortcuts) < self._p.shortcuts:
            turn.set_timer(SEARCH, turn.now_ns + 1)

    def _take_update(self, turn: Turn, peer: NodeId, extents: Region, entries: Mapping[NodeId, Region]) -> None:
        super()._take_update(turn, peer, extents, entries)
        if peer in self.shortcuts:
            if extents and peer not in self.surface.neighbours:
                self.surface.keep_shortcut(peer, extents)
            else:
                self._drop_shortcut(turn, peer)

    def _take_leave(self, turn: Turn, peer: NodeId, entries: Mapping[NodeId, Region]) -> None:
        super()._take_leave(turn, peer, entries)
        if peer in self.shortcuts:
            self._drop_shortcut(turn, peer)

    def _drop_shortcut(self, turn: Turn, peer: NodeId) -> None:
        """Replace a shortcut that became a neighbour or manages nothing."""
        del self.shortcuts[peer]
        self.surface.forget_shortcut(peer)
        self._close_unused(turn, peer)
        turn.set_timer(SEARCH, turn.now_ns + 1)

    def _linked(self) -> list[NodeId]:
        """Return all linked nodes if there are shortcuts, since some of them may have this node as a shortcut."""
        return list(self.state.neighbours) if self._p.shortcuts else super()._linked()

    def _needed(self) -> Iterator[NodeId | None]:
        yield from super()._needed()
        yield from self.shortcuts
        yield self._guide

    def _move(self, turn: Turn) -> None:
        before = list(self.shortcuts)
        super()._move(turn)
        for peer in before:
            self._close_unused(turn, peer)

    def _forget_all(self) -> None:
        super()._forget_all()
        self.shortcuts = {}

    # ------------------------------------------------------------------------------------------------- search

    def _search(self, turn: Turn) -> None:
        """Look for a shortcut through a random node, if one is missing."""
        before, self._guide = self._guide, None
        if self.surface.extents and len(self.shortcuts) < self._p.shortcuts:
            near = {*self.surface.neighbours, *self.cohabitants, *self.shortcuts}
            if known := [node for node in members(self._membership.known) if node not in near]:
                self._guide = self._draws.choice(known)
                if self._guide in self.state.neighbours:
                    self._ask_for_shortcut(turn, self._guide)
                else:
                    turn.connect(self._guide)
            pause_s = self._p.join_timeout_s * 2 ** min(self._fruitless, MOST_DOUBLINGS)
            self._fruitless += 1
            turn.set_timer(SEARCH, turn.now_ns + round(pause_s * SECOND_NS))
        if before is not None:
            self._close_unused(turn, before)

    def _ask_for_shortcut(self, turn: Turn, guide: NodeId) -> None:
        turn.send(guide, GroupShortcut(self.state.node, pack(self.surface.own), 1, (), ()))

    def _take_search(self, turn: Turn, peer: NodeId, frame: GroupShortcut) -> None:
        goal = self._goal_of(frame)
        if len(frame.passed) > MOST_PASSED or not self.state.may_be_node(frame.node):
            turn.trace("reject", peer=peer, kind=frame.kind, reason="bad_node")
        elif frame.node == self.state.node:
            self._choose_shortcut(turn, frame.passed)
        elif not self.surface.manages(goal):
            self._route(turn, frame, goal)

    def _route(self, turn: Turn, frame: Routed, goal: Extent) -> None:
        """Forward a request. A search ends at the node that sent it; other requests avoid that node."""
        if isinstance(frame, GroupShortcut):
            if self.surface.extents:
                frame = replace(frame, passed=sample_way(frame.passed, self.state.node, frame.hops, self._draws))
            if frame.node in self.surface.neighbours:
                self._pass(turn, frame.node, replace(frame, hops=frame.hops + 1))
                return
        super()._route(turn, frame, goal)

    def _choose_shortcut(self, turn: Turn, passed: Sequence[NodeId]) -> None:
        """Link to one of the nodes that this node's own search passed."""
        guide, self._guide = self._guide, None
        if guide is None:  # the search is late, or was never sent
            return
        near = {self.state.node, *self.surface.neighbours, *self.cohabitants, *self.shortcuts}
        far = [node for node in dict.fromkeys(passed) if node not in near and self.state.may_be_node(node)]
        if far:
            self._fruitless = 0
            chosen = self._draws.choice(far)
            self.shortcuts[chosen] = None
            if region := self._heard_of_itself.get(chosen):
                self.surface.keep_shortcut(chosen, region)
            turn.connect(chosen)
            self._search(turn)
        self._close_unused(turn, guide)
