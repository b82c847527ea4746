"""What a node knows of the surface: its own extents, and those of the nodes next to it."""

from collections.abc import Collection, Iterable, Mapping
from math import inf

from peer.core.contract import NodeId
from peer.protocols.implicit_groups.addressing.bloom import Address
from peer.protocols.implicit_groups.addressing.extent import AddressSpace, Extent
from peer.protocols.implicit_groups.addressing.geometry import nearer, spans
from peer.protocols.implicit_groups.addressing.region import Cover, Region, difference, disjoint, hand_over

NOWHERE: Region = frozenset()
Hop = tuple[NodeId, bool]
"""The next node, and whether it is no nearer to the destination than this one."""


class Surface:
    """A node's place on the surface, and the next hops of ROUTE from there.

    Attributes:
        space: how addresses lie on the surface.
        own: the smallest extent of the node's address.
        extents: what the node manages, disjoint; empty for a cohabitant, and before it has joined.
        neighbours: what each known node next to the own extents manages, as it or another one said.
        shortcuts: what linked nodes manage that lie anywhere (``shortcuts.ShortcutOverlay``).
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
        """Whether one of the own extents covers an extent."""
        return self._cover.covers(extent)

    def without_own(self, region: Region) -> Region:
        """The part of some disjoint extents that the node does not manage."""
        return self._cover.remove_from(region)

    def is_next_to(self, region: Iterable[Extent]) -> bool:
        """Whether one of some extents is adjacent to an own one, or overlaps it."""
        return _touch(self.extents, region)

    def take(self, region: Region) -> None:
        """Manage more extents."""
        self._manage(disjoint(self.extents | region))

    def give_up(self, region: Region) -> None:
        """Manage the surface of some extents no more."""
        self._manage(difference(self.extents, region))

    def give_to(self, newcomer: Extent) -> Extent | None:
        """JOIN, Algorithm 2: the extent for a node whose address has this smallest extent; None for a cohabitant.

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
        """Another node manages these extents, and no others. Return whether it is a neighbour."""
        is_neighbour = self.is_next_to(region)
        if is_neighbour:
            self.keep(node, region)
        else:
            self.forget(node)
        return is_neighbour

    def keep(self, node: NodeId, region: Region) -> None:
        """Route by way of a node that manages these extents, be they adjacent or not."""
        if self.neighbours.get(node) != region:
            self.neighbours[node] = region
            self._around = None
            self.version += 1

    def forget(self, node: NodeId) -> None:
        """Do not route by way of a node."""
        if self.neighbours.pop(node, None) is not None:
            self._around = None
            self.version += 1

    def keep_shortcut(self, node: NodeId, region: Region) -> None:
        """Route by way of a node that manages these extents, too, where it is nearer to the destination."""
        if self.shortcuts.get(node) != region:
            self.shortcuts[node] = region
            self._around = None

    def forget_shortcut(self, node: NodeId) -> None:
        """Do not route by way of a node, unless it is a neighbour."""
        if self.shortcuts.pop(node, None) is not None:
            self._around = None

    def next_to(self, region: Region) -> dict[NodeId, Region]:
        """The neighbours with extents that are adjacent to some extents or overlap them, each with those."""
        return touching(self.neighbours, region)

    def next_hop(self, goals: Iterable[Extent], visited: Collection[NodeId]) -> Hop | None:
        """ROUTE: the neighbour or shortcut to which a message for these extents goes next.

        One whose extents overlap a goal is taken at once. Otherwise it is the one that is nearest to any of the goals.
        If it is no nearer than this node, then this node does not know all its neighbours. The hop is a detour: the
        message must name the nodes that it visits from here on, so that it does not come back to them.

        Args:
            goals: the destination extents, none of which this node manages.
            visited: nodes to pass over.

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
        """The manager of an extent that covers the goal or is a part of it."""
        if goal in self._above:
            return self._above[goal]
        return next((self.extents[above] for above in goal.ancestors() if above in self.extents), None)


def touching(regions: Mapping[NodeId, Region], region: Region) -> dict[NodeId, Region]:
    """The nodes with extents that are adjacent to some extents or overlap them, each with those."""
    found = {}
    for node, extents in regions.items():
        near = frozenset(extent for extent in extents if _touch((extent,), region))
        if near:
            found[node] = near
    return found


def overlapping(regions: Mapping[NodeId, Region]) -> list[tuple[NodeId, NodeId]]:
    """The pairs of nodes that manage some of the same surface, each once."""
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
    """The share of the surface that some disjoint extents have."""
    return sum(2.0 ** -(extent.depth * extent.dimensions) for extent in region)


def cells(region: Iterable[Extent], depth: int) -> int:
    """The share of the surface that some disjoint extents have, exactly: in extents of this depth."""
    return sum(1 << (depth - extent.depth) * extent.dimensions for extent in region)
