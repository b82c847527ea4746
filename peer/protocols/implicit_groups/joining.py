"""JOIN: a newcomer gets a part of the extents of the manager of its address."""

from collections.abc import Iterator, Mapping

from peer.core.bitset import members
from peer.core.contract import NodeId
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.implicit_groups.addressing.bloom import Address
from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.addressing.region import Region, difference, intersection
from peer.protocols.implicit_groups.encoding import pack_all, unpack_all
from peer.protocols.implicit_groups.frames import GroupJoin, GroupRefusal, GroupWelcome, Routed
from peer.protocols.implicit_groups.neighbours import SECOND_NS, NeighbouringOverlay
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters
from peer.protocols.implicit_groups.surface import NOWHERE, touching

JOIN = "overlay/join"


class JoiningOverlay(NeighbouringOverlay):
    """Joins, and gives newcomers their extents.

    A node that joins sends JOIN through any member. The manager of its address opens a link to it. When the link is up,
    the manager gives it an extent or makes it a cohabitant. So a manager handles two JOINs for the same extent one
    after the other. If it gave the address of the second away, it forwards that JOIN.

    Source: section 3.2, Algorithm 2.
    """

    def __init__(self, state: State, membership: Membership, parameters: PlacedImplicitGroupsParameters) -> None:
        super().__init__(state, membership, parameters)
        self._newcomers: dict[NodeId, Address] = {}
        self._given: dict[NodeId, Region] = {}
        self._contact: NodeId | None = None
        self._passed_over: dict[NodeId, None] = {}

    # ------------------------------------------------------------------------------------------- the newcomer

    def _seek(self, turn: Turn) -> None:
        """Send a JOIN through a node that was not asked yet. A node that knows no other manages the whole surface."""
        previous, self._contact = self._contact, None
        if previous is not None:
            self._passed_over[previous] = None
        known = [node for node in members(self._membership.known) if node not in self._passed_over]
        if not known:
            self._passed_over.clear()
            known = list(members(self._membership.known))
        if not known:
            self._become_member(turn, frozenset({Extent(self._space.dimensions)}), {})
            return
        self._contact = self._draws.choice(known)
        if self._contact in self.state.neighbours:
            self.link_up(turn, self._contact)
        else:
            turn.connect(self._contact)
        if previous is not None:
            self._close_unused(turn, previous)
        turn.set_timer(JOIN, turn.now_ns + round(self._p.join_timeout_s * SECOND_NS))

    def _take_refusal(self, turn: Turn, peer: NodeId, frame: GroupRefusal) -> None:
        if frame.node == peer:
            self.cohabitants.pop(peer, None)
            if given := self._given.pop(peer, NOWHERE):
                self._take_back(turn, peer, given)
        elif peer == self._contact and not self.has_place:
            self._seek(turn)

    def _take_welcome(self, turn: Turn, peer: NodeId, frame: GroupWelcome) -> None:
        """Take over extents, as the answer to a JOIN or because their manager gives them away.

        Raises:
            ValueError: the answer has extents, but none that covers this node's address.
        """
        extents, entries = unpack_all(frame.extents, self._space), self._read(frame.entries)
        if not self.has_place:
            if extents and not any(extent.covers(self.surface.own) for extent in extents):
                raise ValueError("no extent covers this node's address")
            if not extents:
                self.host = peer
                self.surface.keep(peer, entries.get(peer, NOWHERE))
            self._become_member(turn, extents, entries)
            return
        if peer == self.host and not extents:  # the host got this node's JOIN twice
            return
        given = self.surface.neighbours.get(peer, NOWHERE)
        if not extents or intersection(extents, given) != extents:
            turn.trace("reject", peer=peer, kind=frame.kind, reason="not_the_manager")
            turn.send(peer, GroupRefusal(self.state.node))
            return
        if peer == self.host:
            self.host = None
            self.cohabitants = dict.fromkeys(node for node in frame.cohabitants if self.state.may_be_node(node))
            self.cohabitants.pop(self.state.node, None)
        self._become_member(turn, extents, entries)

    def _become_member(self, turn: Turn, extents: Region, entries: Mapping[NodeId, Region]) -> None:
        """Take over extents and tell the nodes next to them.

        Args:
            turn: the present turn.
            extents: the extents.
            entries: the managers of adjacent extents.
        """
        self.surface.take(extents)
        contact, self._contact = self._contact, None
        turn.cancel_timer(JOIN)
        self._passed_over.clear()
        self._recall()
        for node, region in entries.items():
            self._hear_of(turn, node, region)
        if self.surface.extents:
            self._say(turn, tuple(self.state.neighbours), {})
        if contact is not None:
            self._close_unused(turn, contact)
        for newcomer in [node for node in self._newcomers if node in self.state.neighbours]:
            self._welcome(turn, newcomer)

    def _join_again(self, turn: Turn, contact: NodeId) -> None:
        self._contact = contact
        turn.send(contact, GroupJoin(self.state.node, self._own_address(), 1, ()))
        turn.set_timer(JOIN, turn.now_ns + round(self._p.join_timeout_s * SECOND_NS))

    # -------------------------------------------------------------------------------------------- the manager

    def _take_join(self, turn: Turn, peer: NodeId, frame: GroupJoin) -> None:
        if not self.is_member:
            turn.send(peer, GroupRefusal(frame.node))
            return
        address = int.from_bytes(frame.goal, "big")
        goal = self._space.extent(address)
        if frame.node == self.state.node or not self.state.may_be_node(frame.node):
            turn.trace("reject", peer=peer, kind=frame.kind, reason="bad_node")
        elif not self.surface.manages(goal):
            self._route(turn, frame, goal)
        else:
            self._newcomers[frame.node] = address
            if frame.node in self.state.neighbours:
                self._welcome(turn, frame.node)
            else:
                turn.connect(frame.node)

    def _goal_of(self, frame: Routed) -> Extent:
        if isinstance(frame, GroupJoin):
            return self._space.extent(int.from_bytes(frame.goal, "big"))
        return super()._goal_of(frame)

    def _welcome(self, turn: Turn, newcomer: NodeId) -> None:
        """Give a newcomer its extent when its link is up (Algorithm 2). Forward its JOIN if its address moved away."""
        address = self._newcomers.pop(newcomer)
        goal = self._space.extent(address)
        surface = self.surface
        if not surface.manages(goal):
            content = address.to_bytes(-(-self._space.bits // 8), "big")
            self._route(turn, GroupJoin(newcomer, content, 0, ()), goal)
            return
        surface.forget(newcomer)
        given = surface.give_to(goal)
        if given is None:
            beside = tuple(self.cohabitants)
            self.cohabitants[newcomer] = None
            entries = self._entries({self.state.node: surface.extents})
            turn.send(newcomer, GroupWelcome((), entries, (self.state.node, *beside)))
            return
        region = frozenset({given})
        around = surface.next_to(region) | touching({self.state.node: surface.extents}, region)
        turn.send(newcomer, GroupWelcome(pack_all(region), self._entries(around), ()))
        surface.keep(newcomer, region)
        self._given[newcomer] = region
        self._announce(turn, {newcomer: region}, besides=newcomer)
        self._prune(turn)

    def _is_current(self, peer: NodeId, extents: Region) -> bool:
        if peer in self._given and not extents:  # it sent this before it got the Welcome
            return False
        if peer in self._given and not difference(self._given[peer], extents):
            del self._given[peer]  # it has taken the extents
        return True

    def _needed(self) -> Iterator[NodeId | None]:
        yield from super()._needed()
        yield self._contact
        yield from self._newcomers
        yield from self._given

    def _take_back(self, turn: Turn, newcomer: NodeId, region: Region) -> None:
        """Take back extents that a newcomer or an heir was given, but did not take.

        Args:
            turn: the present turn.
            newcomer: the newcomer or heir.
            region: the extents.
        """
        self.surface.take(region)
        self.surface.forget(newcomer)
        if before := self._heard_of_itself.get(newcomer):
            self.surface.learn(newcomer, before)
        self._announce(turn, {})
