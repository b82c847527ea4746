"""The reports of neighbours on the extents that they manage, and the links between them."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from peer.core.addressing.keywords import keywords
from peer.core.contract import NodeId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.implicit_groups.addressing.bloom import Address
from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.addressing.region import Region, intersection
from peer.protocols.implicit_groups.encoding import MOST_EXTENTS, pack_all, unpack, unpack_all
from peer.protocols.implicit_groups.frames import Entries, GroupUpdate, Routed
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters
from peer.protocols.implicit_groups.surface import NOWHERE, Surface

UNUSED = "unused"
SECOND_NS = 1_000_000_000
MOST_QUEUED = 256
"""Most routed frames that wait for a link."""

MOST_ENTRIES = 1024
"""Most nodes that a frame may name."""


class NeighbouringOverlay(Part):
    """Keeps the node's extents, and a link to every node that manages adjacent extents.

    Neighbours tell each other their extents when these change. If the extents of a neighbour grew, a node also names
    its own neighbours that are next to the new extents. So nodes that joined at the same time find each other (ours).

    Attributes:
        surface: the node's place on the surface.
        cohabitants: the other nodes at the node's address, if it manages the address.
        host: the manager of the node's address, for a cohabitant; otherwise None.

    Source: section 2.4.
    """

    Parameters = PlacedImplicitGroupsParameters

    def __init__(self, state: State, membership: Membership, parameters: PlacedImplicitGroupsParameters) -> None:
        Part.__init__(self, state)
        self._membership = membership
        self._p = parameters
        self.scheme, self._space = parameters.scheme, parameters.space
        self._draws = substream(state.seed, state.node, "overlay")
        self._prefix = parameters.prefix if parameters.first_seed == state.seed else 0
        self.address: Address = self._make_address()
        self.surface = Surface(self._space, self.address)
        self.cohabitants: dict[NodeId, None] = {}
        self.host: NodeId | None = None
        self._told: dict[NodeId, Region] = {}
        self._heard_of_itself: dict[NodeId, Region] = {}
        self._queued: dict[NodeId, list[Frame]] = {}

    @property
    def is_member(self) -> bool:
        """Whether it has joined."""
        return bool(self.surface.extents) or self.host is not None

    @property
    def has_place(self) -> bool:
        """Whether it manages its own address, or is a cohabitant of the manager."""
        return self.host is not None or self.surface.manages(self.surface.own)

    # ------------------------------------------------------------------------------------------ announcements

    def _take_update(self, turn: Turn, peer: NodeId, extents: Region, entries: Mapping[NodeId, Region]) -> None:
        surface = self.surface
        self._heard_of_itself[peer] = extents
        if peer == self.host:
            surface.keep(peer, extents)
            return
        if not surface.extents:
            if self._told.get(peer) != NOWHERE:
                self._say(turn, (peer,), {})
            return
        if not self._is_current(peer, extents):
            return
        if intersection(extents, surface.extents):
            self._resolve(turn, peer, extents)
        gained = extents - surface.neighbours.get(peer, NOWHERE) if peer in surface.neighbours else extents
        if surface.learn(peer, extents):
            near = surface.next_to(gained)
            near.pop(peer, None)
            if near or self._told.get(peer) != surface.extents:
                self._say(turn, (peer,), near)
        else:
            if self._told.get(peer) != surface.extents:
                self._update(turn, peer)
            self._close_unused(turn, peer)
        for node, region in entries.items():
            self._hear_of(turn, node, region)

    def _resolve(self, turn: Turn, peer: NodeId, extents: Region) -> None:
        """Resolve that this node and a peer manage the same extents: the higher number gives them up (ours).

        A node that gives up its own address joins again through the other node.
        """
        turn.trace("reject", peer=peer, kind=GroupUpdate.kind, reason="overlapping_extents")
        surface = self.surface
        if self.state.node < peer:
            self._say(turn, (peer,), {})
            return
        surface.give_up(extents)
        surface.keep(peer, extents)
        self._announce(turn, {})
        self._prune(turn)
        if not self.has_place:
            self._join_again(turn, peer)

    def _hear_of(self, turn: Turn, node: NodeId, region: Region, replace: bool = False) -> None:
        """Note that a third node reported the extents of a node. A neighbour's own report takes precedence.

        Args:
            turn: the present turn.
            node: the node that manages the extents.
            region: the extents.
            replace: whether the report replaces the neighbour's own.
        """
        known = node in self.surface.neighbours
        if node == self.state.node or node in self.cohabitants or (known and not replace):
            return
        if not replace:
            region = self._heard_of_itself.get(node, region)
        if self.surface.is_next_to(region):
            self.surface.keep(node, region)
            self._greet(turn, node)

    def _recall(self) -> None:
        """Find linked nodes that became neighbours because the own extents grew, from their earlier reports."""
        for peer, region in self._heard_of_itself.items():
            if peer not in self.surface.neighbours and self.surface.is_next_to(region):
                self.surface.keep(peer, region)

    def _greet(self, turn: Turn, node: NodeId) -> None:
        """Open a link to a node, over which both report their extents."""
        if node not in self.state.neighbours:
            turn.connect(node)
        else:
            self._update(turn, node)

    def _update(self, turn: Turn, peer: NodeId) -> None:
        """Tell a node the own extents, and the neighbours that are next to that node's extents."""
        surface = self.surface
        if not surface.extents:
            return
        near = surface.next_to(surface.neighbours.get(peer, NOWHERE))
        near.pop(peer, None)
        self._say(turn, (peer,), near)

    def _announce(self, turn: Turn, entries: Mapping[NodeId, Region], besides: NodeId | None = None) -> None:
        """Tell all neighbours and cohabitants the own extents.

        Args:
            turn: the present turn.
            entries: the new managers of extents that this node gave away.
            besides: a node that is not told.
        """
        self._say(turn, [peer for peer in self._linked() if peer != besides], entries)

    def _say(self, turn: Turn, peers: Sequence[NodeId], entries: Mapping[NodeId, Region]) -> None:
        """Send the own extents, and extents of other nodes.

        Args:
            turn: the present turn.
            peers: the receivers.
            entries: the other nodes and their extents.
        """
        self._told.update(dict.fromkeys(peers, self.surface.extents))
        turn.send_each(peers, GroupUpdate(pack_all(self.surface.extents), self._entries(entries)))

    def _is_current(self, peer: NodeId, extents: Region) -> bool:
        """Return whether a neighbour's Update counts. It does not if the neighbour sent it before it got a Welcome."""
        return True

    def _join_again(self, turn: Turn, contact: NodeId) -> None:
        """Join through a neighbour, since this node does not manage its own address any more."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------- links

    def _pass(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Send a routed frame to a neighbour, or queue it until the link is up."""
        if peer in self.state.neighbours:
            turn.send(peer, frame)
        elif len(queued := self._queued.setdefault(peer, [])) < MOST_QUEUED:
            queued.append(frame)
        else:
            turn.trace("reject", peer=peer, kind=frame.kind, reason="queue_full")

    def _route(self, turn: Turn, frame: Routed, goal: Extent) -> None:
        """Forward a request towards an extent that this node does not manage."""
        if max(frame.hops, len(frame.visited)) >= self._p.hop_limit:
            turn.trace("reject", kind=frame.kind, reason="hop_limit")
            return
        hop = self.surface.next_hop((goal,), (*frame.visited, frame.node))
        if hop is None:
            turn.trace("reject", kind=frame.kind, reason="no_way")
            return
        node, is_detour = hop
        visited = (*frame.visited, self.state.node) if is_detour or frame.visited else ()
        self._pass(turn, node, replace(frame, hops=frame.hops + 1, visited=visited))

    def _route_again(self, turn: Turn, frame: Frame) -> None:
        """Route a frame again, since the link to its next node ended."""
        if isinstance(frame, Routed):
            self._route(turn, frame, self._goal_of(frame))

    def _goal_of(self, frame: Routed) -> Extent:
        """Return the destination of a request."""
        return unpack(frame.goal, self._space)

    def _linked(self) -> list[NodeId]:
        """Return the neighbours and cohabitants to which a link is up."""
        near = dict.fromkeys((*self.surface.neighbours, *self.cohabitants))
        return [peer for peer in near if peer in self.state.neighbours]

    def _prune(self, turn: Turn) -> None:
        """Forget the nodes that are not neighbours any more."""
        surface = self.surface
        gone = [node for node, region in surface.neighbours.items() if not surface.is_next_to(region)]
        for node in gone:
            surface.forget(node)
            self._close_unused(turn, node)

    def _close_unused(self, turn: Turn, peer: NodeId) -> None:
        if peer in self.state.wanted and peer not in self._needed():
            turn.disconnect(peer, UNUSED)

    def _needed(self) -> Iterator[NodeId | None]:
        """Yield the nodes to which the node keeps a link."""
        yield self.host
        yield from self.surface.neighbours
        yield from self.cohabitants

    # ------------------------------------------------------------------------------------------------ entries

    def _make_address(self) -> Address:
        """Return the node's address: the prefix and the filter of its attributes."""
        return self._prefix << self.scheme.bits | self.scheme.address(keywords(self.state.topics))

    def _own_address(self) -> bytes:
        return self.address.to_bytes(-(-self._space.bits // 8), "big")

    def _entries(self, regions: Mapping[NodeId, Region]) -> Entries:
        return tuple((node, pack_all(region)) for node, region in regions.items())

    def _read(self, entries: Entries) -> dict[NodeId, Region]:
        """Return the nodes in a frame and their extents.

        Raises:
            ValueError: an extent is invalid, or there are more than ``MOST_ENTRIES`` nodes or ``MOST_EXTENTS`` extents.
        """
        if len(entries) > MOST_ENTRIES:
            raise ValueError(f"{len(entries)} entries")
        regions = {}
        if sum(len(extents) for _, extents in entries) > MOST_EXTENTS:
            raise ValueError(f"more than {MOST_EXTENTS} extents")
        for node, extents in entries:
            if self.state.may_be_node(node):
                regions[node] = unpack_all(extents, self._space)
        return regions
