"""A node's knowledge of the surface: its own extents, and the extents of the nodes next to it."""

from collections.abc import Collection, Iterable, Mapping
from math import inf

from peer.core.contract import NodeId
from peer.protocols.implicit_groups.addressing.bloom import Address
from peer.protocols.implicit_groups.addressing.extent import AddressSpace, Extent
from peer.protocols.implicit_groups.addressing.geometry import nearer, spans
from peer.protocols.implicit_groups.addressing.region import Cover, Region, difference, disjoint, hand_over

NOWHERE: Region = frozenset()
Hop = tuple[NodeId, bool]
"""The next node, and whether the hop is a detour: it is no nearer to the destination than this node."""


class Surface:
    """A node's place on the surface, and the next hops of ROUTE from there.

    Attributes:
        space: the mapping of addresses to the surface.
        own: the smallest extent of the node's address.
        extents: the extents that the node manages, disjoint; empty for a cohabitant, and before it has joined.
        neighbours: the extents of each known node next to the own extents, as it or another node reported them.
        shortcuts: the extents of linked nodes anywhere on the surface (``shortcuts.ShortcutOverlay``).
        version: counts the changes of ``extents`` and ``neighbours``.

    Source: sections 2.3, 2.4 and 3.1.
    """

    __slots__ = ("_around", "_cover", "extents", "neighbours", "own", "shortcuts", "space", "version")

    def __init__(self, space: AddressSpace, address: Address) -> None:
        self.space = space
        self.own = space.extent(address)
        self.extents = NOWHERE
        self.neighbours: dict[NodeId, Region] = {}
        self.shortcuts: dict[NodeId, Region] = {}
        self.version = 0
        self._cover = Cover(NOWHERE)
        self._around: _Around | None = None

    def manages(self, extent: Extent) -> bool:
        """Return whether one of the own extents covers an extent."""
        return self._cover.covers(extent)

    def without_own(self, region: Region) -> Region:
        """Return the part of disjoint extents that the node does not manage."""
        return self._cover.remove_from(region)

    def is_next_to(self, region: Iterable[Extent]) -> bool:
        """Return whether an extent is adjacent to an own one, or overlaps it."""
        return _touch(self.extents, region)

    def take(self, region: Region) -> None:
        """Add extents to the own ones."""
        self._manage(disjoint(self.extents | region))

    def give_up(self, region: Region) -> None:
        """Remove the surface of extents from the own ones."""
        self._manage(difference(self.extents, region))

    def give_to(self, newcomer: Extent) -> Extent | None:
        """Give up and return the extent for a newcomer with this smallest extent; None for a cohabitant (Algorithm 2).

        Raises:
            ValueError: this node does not manage the address.
        """
        kept, given = hand_over(self.extents, self.own, newcomer)
        self._manage(kept)
        return given

    def _manage(self, extents: Region) -> None:
        self.extents = extents
        self._cover = Cover(extents)
        self.version += 1

    def learn(self, node: NodeId, region: Region) -> bool:
        """Note all extents of another node. Return whether it is a neighbour."""
        is_neighbour = self.is_next_to(region)
        if is_neighbour:
            self.keep(node, region)
        else:
            self.forget(node)
        return is_neighbour

    def keep(self, node: NodeId, region: Region) -> None:
        """Route through a node that manages these extents, even if they are not adjacent."""
        if self.neighbours.get(node) != region:
            self.neighbours[node] = region
            self._around = None
            self.version += 1

    def forget(self, node: NodeId) -> None:
        """Stop routing through a node."""
        if self.neighbours.pop(node, None) is not None:
            self._around = None
            self.version += 1

    def keep_shortcut(self, node: NodeId, region: Region) -> None:
        """Route through a node with these extents, too, if it is nearer to the destination."""
        if self.shortcuts.get(node) != region:
            self.shortcuts[node] = region
            self._around = None

    def forget_shortcut(self, node: NodeId) -> None:
        """Stop routing through a node, unless it is a neighbour."""
        if self.shortcuts.pop(node, None) is not None:
            self._around = None

    def next_to(self, region: Region) -> dict[NodeId, Region]:
        """Return the neighbours with extents that are adjacent to given ones or overlap them, with these extents."""
        return touching(self.neighbours, region)

    def next_hop(self, goals: Iterable[Extent], visited: Collection[NodeId]) -> Hop | None:
        """Return the neighbour or shortcut to which a message for these extents goes next (ROUTE).

        It is a node whose extents overlap a goal or, if there is none, the node that is nearest to any of the goals. If
        that node is no nearer than this one, this node does not know all its neighbours. Then the hop is a detour: the
        message must name the nodes that it visits from then on, so that it does not come back to them.

        Args:
            goals: the destination extents, none of which this node manages.
            visited: the nodes to avoid.

        Returns:
            The next hop; None if there is none.

        Source: Algorithm 1. The detour is ours.
        """
        if self._around is None:
            self._around = _Around(self.neighbours | self.shortcuts)
        around, goals = self._around, sorted(goals)
        for goal in goals:
            node = around.overlapping(goal)
            if node is not None and node not in visited:
                return node, False
        nearest, best = None, (inf, inf)
        depth = self.space.depth
        ends = [spans(goal, depth) for goal in goals]
        for extent, node in around.extents.items():
            if node not in visited:
                far = nearer(spans(extent, depth), ends, depth, best)
                if far is not None:
                    nearest, best = node, far
        if nearest is None:
            return None
        at_most = (best[0], best[1] + 1)  # distances are whole numbers
        return nearest, any(nearer(spans(extent, depth), ends, depth, at_most) for extent in self.extents)


class _Around:
    """The extents of neighbours with their managers."""

    __slots__ = ("_above", "extents")

    def __init__(self, neighbours: Mapping[NodeId, Region]) -> None:
        self.extents = {extent: node for node, region in neighbours.items() for extent in sorted(region)}
        self._above: dict[Extent, NodeId] = {}
        for extent, node in self.extents.items():
            for above in extent.ancestors():
                if above in self._above:
                    break
                self._above[above] = node

    def overlapping(self, goal: Extent) -> NodeId | None:
        """Return the manager of an extent that covers the goal or is a part of it."""
        if goal in self._above:
            return self._above[goal]
        return next((self.extents[above] for above in goal.ancestors() if above in self.extents), None)


def touching(regions: Mapping[NodeId, Region], region: Region) -> dict[NodeId, Region]:
    """Return the nodes with extents that are adjacent to given ones or overlap them, with these extents."""
    found = {}
    for node, extents in regions.items():
        near = frozenset(extent for extent in extents if _touch((extent,), region))
        if near:
            found[node] = near
    return found


def overlapping(regions: Mapping[NodeId, Region]) -> list[tuple[NodeId, NodeId]]:
    """Return each pair of nodes that manage a part of the surface in common, once."""
    managers: dict[Extent, list[NodeId]] = {}
    for node, region in regions.items():
        for extent in region:
            managers.setdefault(extent, []).append(node)
    pairs = {
        (min(one, other), max(one, other))
        for extent, nodes in managers.items()
        for above in extent.ancestors()
        if above in managers
        for one in nodes
        for other in managers[above]
        if one != other
    }
    return sorted(pairs)


def _touch(one: Iterable[Extent], other: Iterable[Extent]) -> bool:
    return any(extent.touches(near) for extent in one for near in other)


def volume(region: Iterable[Extent]) -> float:
    """Return the share of the surface that disjoint extents cover."""
    return sum(2.0 ** -(extent.depth * extent.dimensions) for extent in region)


def cells(region: Iterable[Extent], depth: int) -> int:
    """Return the size of disjoint extents as a whole number, in extents of this depth."""
    return sum(1 << (depth - extent.depth) * extent.dimensions for extent in region)
