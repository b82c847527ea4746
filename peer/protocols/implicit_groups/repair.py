"""Repair (ours): nodes find unknown neighbours, detect lost ones, and take over their extents.

The paper leaves unexpected departures and concurrent JOINs to future work, and suggests a takeover as in CAN.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from peer.core.bitset import members
from peer.core.contract import NodeId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.addressing.region import Region, difference, intersection, merge, uncovered
from peer.protocols.implicit_groups.encoding import pack
from peer.protocols.implicit_groups.frames import GroupAlive, GroupFind
from peer.protocols.implicit_groups.neighbours import SECOND_NS, UNUSED
from peer.protocols.implicit_groups.overlay import GroupOverlay
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters
from peer.protocols.implicit_groups.surface import NOWHERE, overlapping, volume

CHECK, HEARTBEAT = "overlay/check", "overlay/heartbeat"

HEARTBEATS_MISSED = 3
"""A neighbour that was silent for this many heartbeats counts as lost."""

REMEMBERED_NS = 10 * SECOND_NS
"""How long a node remembers extents of other nodes (ns).

This applies to nodes that are not neighbours but manage a part of a hole, and to the last reports of nodes whose links
ended."""

UNKNOWN_FACTOR = 4
"""A node takes over a hole with an unknown last manager after this many times the time for other holes.

If the hole lies next to one that the node took over, the time counts from the instant at which that one was found."""

LOOKED_FOR_CHECKS = 2
"""Least number of checks at which a node looks for the manager of such a hole before it takes it over."""

MOST_FINDS = 8
"""Most holes whose managers a node looks for at one check."""


class Known(NamedTuple):
    """The instants from which a hole is known.

    Attributes:
        since_ns: when this hole was found, or an adjacent one that was taken over (ns).
        found_ns: when this hole was found (ns).
    """

    since_ns: int
    found_ns: int


class RepairedOverlay(GroupOverlay):
    """Checks periodically that known neighbours manage all of the surface next to the node's own extents.

    A part of that surface without a known manager is a *hole*. Its manager may be a node that this one does not know,
    since both joined at the same time. So the node sends a question that is routed around the hole. Or the manager has
    crashed. Then the neighbours take over the hole: as in CAN, a node does so sooner if it manages less than its own
    neighbours. If two nodes take it over, or the manager is up, they become neighbours, and one of the two gives up the
    extents that both manage.

    If several adjacent managers crashed, no node that knows some of their extents is next to these. A node takes them
    over one after another. Each next hole is as large as all extents taken over before together. The node waits for it
    only as long as it takes to ask for its manager, since the hole counts as known from when the first one was found.

    Attributes:
        holes: each hole, and from when it is known.

    Source: section 5.1; Ratnasamy et al., A Scalable Content-Addressable Network (SIGCOMM 2001), section 2.3.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = (*GroupOverlay.frames, GroupFind, GroupAlive)

    def __init__(self, state: State, membership: Membership, parameters: PlacedImplicitGroupsParameters) -> None:
        super().__init__(state, membership, parameters)
        self._check_ns = round(parameters.check_s * SECOND_NS)
        self._takeover_ns = round(parameters.takeover_s * SECOND_NS)
        self._heartbeat_ns = round(parameters.heartbeat_s * SECOND_NS)
        self.holes: dict[Extent, Known] = {}
        self._taken: dict[Extent, int] = {}
        self._heard: dict[NodeId, int] = {}
        self._vacant: Region = NOWHERE
        self._checked = -1
        self._overlapping: list[tuple[NodeId, NodeId]] = []
        self._helper: NodeId | None = None
        self._is_cut_off = False
        self._beyond: dict[NodeId, tuple[int, Region]] = {}
        self._former: dict[NodeId, tuple[int, Region]] = {}

    def start(self, turn: Turn) -> None:
        super().start(turn)
        for name, period_ns in ((CHECK, self._check_ns), (HEARTBEAT, self._heartbeat_ns)):
            if period_ns:
                turn.set_timer(name, turn.now_ns + 1 + self._draws.randrange(period_ns))

    def fire(self, turn: Turn, name: str) -> None:
        if name == CHECK:
            self._check(turn)
            turn.set_timer(CHECK, turn.now_ns + self._check_ns)
        elif name == HEARTBEAT:
            self._beat(turn)
            turn.set_timer(HEARTBEAT, turn.now_ns + self._heartbeat_ns)
        else:
            super().fire(turn, name)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        self._heard[peer] = turn.now_ns
        self._former.pop(peer, None)
        super().link_up(turn, peer)
        if peer == self._helper:
            self._ask(turn, peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Handle the end of a link. A node that takes over holes does not wait until the driver gives up the link."""
        self._heard.pop(peer, None)
        self._beyond.pop(peer, None)
        if reason != UNUSED:
            self._vacant |= self.surface.neighbours.get(peer, NOWHERE)
        if retrying and self._takeover_ns:
            turn.disconnect(peer, "lost")
            retrying = False
        if not retrying:
            said = self._heard_of_itself.get(peer, NOWHERE) if reason == UNUSED else NOWHERE
            self._former[peer] = (turn.now_ns, said)
        super().link_down(turn, peer, reason, retrying)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        self._heard[peer] = turn.now_ns
        super().receive(turn, peer, frame)

    def _take(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, GroupFind):
            self._take_find(turn, frame)
        elif not isinstance(frame, GroupAlive):
            super()._take(turn, peer, frame)

    # -------------------------------------------------------------------------------------------------- holes

    def _check(self, turn: Turn) -> None:
        surface, now = self.surface, turn.now_ns
        if self._checked == surface.version and surface.neighbours and not self.holes and not self._overlapping:
            return
        self._checked = surface.version
        if self._takeover_ns:
            self._introduce(turn)
        self._beyond = {node: entry for node, entry in self._beyond.items() if now - entry[0] < REMEMBERED_NS}
        managed = {extent for region in surface.neighbours.values() for extent in region}
        managed.update(extent for _, region in self._beyond.values() for extent in region)
        found = sorted(uncovered(merge(surface.extents), managed)) if surface.extents else []
        self.holes = {hole: self._date(turn, hole) for hole in found}
        self._taken = {}
        if self._takeover_ns and self.holes:
            self._take_over(turn, managed)
        waiting = [hole for hole, (since_ns, _) in self.holes.items() if since_ns < now]
        for hole in waiting[:MOST_FINDS]:
            self._route(turn, GroupFind(self.state.node, pack(hole), 0, ()), hole)
        if not self.holes:
            self._vacant = NOWHERE
        was_cut_off, self._is_cut_off = self._is_cut_off, bool(surface.extents) and not surface.neighbours
        is_cut_off = was_cut_off and self._is_cut_off
        self._scout(turn, is_cut_off or any(now - self.holes[hole].since_ns > 2 * self._check_ns for hole in waiting))

    def _date(self, turn: Turn, hole: Extent) -> Known:
        """Return from when a hole is known. It may be part of an earlier hole, or next to one that was taken over."""
        earlier = [known for other, known in self.holes.items() if other.overlaps(hole)]
        before = [since_ns for taken, since_ns in self._taken.items() if taken.adjacent(hole) or taken.overlaps(hole)]
        return Known(
            min([known.since_ns for known in earlier] + before, default=turn.now_ns),
            min([known.found_ns for known in earlier], default=turn.now_ns),
        )

    def _scout(self, turn: Turn, is_needed: bool) -> None:
        """Ask for holes through any other node, too, since this node and its neighbours may be cut off from the others.

        A node without neighbours asks for other managers of its own address, even if it took over the whole surface.
        """
        before, self._helper = self._helper, None
        near = {*self.surface.neighbours, *self.cohabitants}
        known = [node for node in members(self._membership.known) if node not in near]
        if is_needed and known:
            self._helper = self._draws.choice(known)
            if self._helper in self.state.neighbours:
                self._ask(turn, self._helper)
            else:
                turn.connect(self._helper)
        if before is not None:
            self._close_unused(turn, before)

    def _ask(self, turn: Turn, helper: NodeId) -> None:
        for hole in list(self.holes)[:MOST_FINDS] or [self.surface.own]:
            turn.send(helper, GroupFind(self.state.node, pack(hole), 1, ()))

    def _take_over(self, turn: Turn, managed: Iterable[Extent]) -> None:
        """Take over vacant extents next to the own ones and, after a longer time, holes without a known manager."""
        patience_ns = self._patience_ns()
        old = {hole: known for hole, known in self.holes.items() if turn.now_ns - known.since_ns >= patience_ns}
        vacant = frozenset(
            extent for extent in difference(self._vacant, managed) if any(extent.overlaps(hole) for hole in old)
        )
        unknown = {
            hole
            for hole, known in old.items()
            if turn.now_ns - known.since_ns >= UNKNOWN_FACTOR * patience_ns
            and turn.now_ns - known.found_ns >= LOOKED_FOR_CHECKS * self._check_ns
        }
        taken = difference(vacant | difference(unknown, vacant), self.surface.extents)
        if taken:
            turn.trace("takeover", score=volume(taken))
            self.surface.take(taken)
            self._recall()
            self._taken = {hole: known.since_ns for hole, known in old.items() if intersection((hole,), taken)}
            self.holes = {hole: known for hole, known in self.holes.items() if hole not in self._taken}
            self._announce(turn, {})

    def _patience_ns(self) -> int:
        """Return the time after which this node takes over a hole (ns). It is shorter if the node manages less."""
        own = volume(self.surface.extents)
        others = [volume(region) for region in self.surface.neighbours.values()]
        mean = sum(others) / len(others) if others else own
        return round(self._takeover_ns * (1 + own / (own + mean)))

    def _take_update(self, turn: Turn, peer: NodeId, extents: Region, entries: Mapping[NodeId, Region]) -> None:
        super()._take_update(turn, peer, extents, entries)
        if intersection(extents, self.holes):
            self._beyond[peer] = (turn.now_ns, extents)
        self._vacant = difference(self._vacant, extents) if self._vacant else NOWHERE

    def _hear_of(self, turn: Turn, node: NodeId, region: Region, replace: bool = False) -> None:
        """Note the extents that a third node reports, but for some time only those that the node itself reported last.

        A lost node manages nothing. Other nodes may not have noticed that yet, and this node would repeat their
        reports.
        """
        since_ns, said = self._former.get(node, (turn.now_ns - REMEMBERED_NS, NOWHERE))
        super()._hear_of(turn, node, said if turn.now_ns - since_ns < REMEMBERED_NS else region, replace)

    def _introduce(self, turn: Turn) -> None:
        """Name neighbours that manage the same extents to each other, so that one of them gives them up."""
        regions = self.surface.neighbours
        self._overlapping = overlapping(regions)
        for one, other in self._overlapping:
            for node, another in ((one, other), (other, one)):
                if node in self.state.neighbours:
                    self._say(turn, (node,), {another: regions[another]})

    def _take_find(self, turn: Turn, frame: GroupFind) -> None:
        if frame.node == self.state.node or not self.state.may_be_node(frame.node):
            return
        hole = self._goal_of(frame)
        if any(extent.overlaps(hole) for extent in self.surface.extents):
            self._greet(turn, frame.node)
        else:
            self._route(turn, frame, hole)

    # --------------------------------------------------------------------------------------------- heartbeats

    def _beat(self, turn: Turn) -> None:
        """Send heartbeats to the neighbours, and give up neighbours that were silent for too long.

        A neighbour to which no link opens is silent, too: it has vanished, and a node that had not noticed reported it.
        """
        now, linked = turn.now_ns, self._linked()
        watched = dict.fromkeys((*linked, *self.surface.neighbours, *self.cohabitants))
        self._heard = {peer: self._heard.get(peer, now) for peer in (*watched, *self.state.neighbours)}
        for peer in watched:
            if now - self._heard[peer] > HEARTBEATS_MISSED * self._heartbeat_ns:
                turn.disconnect(peer, "silent")
                self.link_down(turn, peer, "silent", retrying=False)
        turn.send_each([peer for peer in linked if peer in self._heard], GroupAlive())
