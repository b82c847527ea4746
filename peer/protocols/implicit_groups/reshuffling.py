"""Reshuffling: nodes that manage much more than their neighbours hand extents to them, for a fair load."""

from peer.core.contract import NodeId
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.implicit_groups.addressing.region import Region
from peer.protocols.implicit_groups.encoding import unpack_all
from peer.protocols.implicit_groups.frames import GroupRefusal, GroupWelcome
from peer.protocols.implicit_groups.neighbours import SECOND_NS
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters
from peer.protocols.implicit_groups.shortcuts import ShortcutOverlay
from peer.protocols.implicit_groups.surface import NOWHERE, cells

RESHUFFLE = "overlay/reshuffle"

OVERLOAD = 2
"""A node is overloaded if it manages more than this many times the mean of its neighbours."""


class ReshufflingOverlay(ShortcutOverlay):
    """Hands extents to neighbours if it manages several extents and much more than the neighbours do on average.

    In the paper, such a node leaves and joins again: its extents go to neighbours, and it gets back the one that covers
    its address. Here it keeps that extent and hands over the others by the rules of LEAVE. So it never leaves, misses
    no message, and needs no JOIN. It keeps an extent if the neighbour that manages the least would manage more with it
    than the node without it, since that would only move the load.

    Reshuffling ends if no node joins or leaves. Heirs check the same condition when they get extents, and refuse if it
    does not hold, since another node may have given them extents at the same time. So each accepted hand-over replaces
    the largest of some loads by smaller ones, and the number of ways to divide the same extents among nodes is finite.
    Sizes are compared as whole numbers.

    Source: section 5.1. The threshold and the condition are ours.
    """

    def __init__(self, state: State, membership: Membership, parameters: PlacedImplicitGroupsParameters) -> None:
        super().__init__(state, membership, parameters)
        self._reshuffle_ns = round(parameters.reshuffle_s * SECOND_NS)

    def start(self, turn: Turn) -> None:
        super().start(turn)
        if self._reshuffle_ns:
            self._wait_to_reshuffle(turn)

    def fire(self, turn: Turn, name: str) -> None:
        if name == RESHUFFLE:
            self._reshuffle(turn)
            self._wait_to_reshuffle(turn)
        else:
            super().fire(turn, name)

    def _wait_to_reshuffle(self, turn: Turn) -> None:
        """Set the timer to a random instant, so that neighbours do not act at the same time again and again."""
        turn.set_timer(RESHUFFLE, turn.now_ns + round(self._reshuffle_ns * (0.5 + self._draws.random())))

    def _reshuffle(self, turn: Turn) -> None:
        """Hand over the extents that neighbours should manage, unless an earlier hand-over is not acknowledged yet."""
        surface = self.surface
        if self._given or not self._is_overloaded():
            return
        spare = frozenset(extent for extent in surface.extents if not extent.covers(surface.own))
        left = self._cells(surface.extents)

        def is_fair(load: int, size: int) -> bool:
            nonlocal left
            fair = load + size <= left - size
            left -= size * fair
            return fair

        heirs = self._share_out(spare, is_fair)
        if not heirs:
            return
        for region in heirs.values():
            surface.give_up(region)
        self._welcome_heirs(turn, heirs, surface.neighbours | {self.state.node: surface.extents}, ())
        managed = {heir: surface.neighbours[heir] | region for heir, region in heirs.items()}
        for heir, region in managed.items():
            surface.keep(heir, region)
        self._given.update(heirs)
        self._announce(turn, managed)
        self._prune(turn)

    def _is_overloaded(self) -> bool:
        surface = self.surface
        if len(surface.extents) < 2 or not surface.neighbours or not self.has_place:
            return False
        around = sum(map(self._cells, surface.neighbours.values()))
        return self._cells(surface.extents) * len(surface.neighbours) > OVERLOAD * around

    def _take_welcome(self, turn: Turn, peer: NodeId, frame: GroupWelcome) -> None:
        """Take over extents. Refuse those of a neighbour that stays if this node would manage more than it then."""
        stays = any(node == peer for node, _ in frame.entries)
        if self._reshuffle_ns and self.has_place and stays and frame.extents:
            given = unpack_all(frame.extents, self._space)
            before = self.surface.neighbours.get(peer, NOWHERE)
            if self._cells(self.surface.extents) + self._cells(given) > self._cells(before) - self._cells(given):
                turn.trace("reject", peer=peer, kind=frame.kind, reason="overloaded")
                turn.send(peer, GroupRefusal(self.state.node))
                return
        super()._take_welcome(turn, peer, frame)

    def _cells(self, region: Region) -> int:
        return cells(region, self._space.depth)
