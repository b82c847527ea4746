"""Sets of extents: intersection, difference, neighbours, and the extents that a peer hands over to a newcomer."""

from collections import Counter
from collections.abc import Iterable

from peer.protocols.implicit_groups.addressing.extent import Extent

Region = frozenset[Extent]
"""Extents of the same dimensions. Results of this module are disjoint; arguments need not be."""


class Cover:
    """A set of extents with an index of the surface that they cover.

    Args:
        extents: of the same dimensions; they need not be disjoint.
    """

    __slots__ = ("_above", "_paths", "extents")

    def __init__(self, extents: Iterable[Extent]) -> None:
        self.extents = frozenset(extents)
        self._paths: dict[int, set[int]] = {}
        for _, depth, path in self.extents:
            self._paths.setdefault(depth, set()).add(path)
        self._above: set[Extent] | None = None

    def covers(self, extent: Extent, strictly: bool = False) -> bool:
        """Return whether one of the extents covers this one; ``strictly``: whether a larger one does."""
        dimensions, depth, path = extent
        for above, paths in self._paths.items():
            if above + strictly <= depth and path >> (depth - above) * dimensions in paths:
                return True
        return False

    def divides(self, extent: Extent) -> bool:
        """Return whether one of the extents is a smaller part of this one."""
        if self._above is None:
            self._above = {above for each in self.extents for above in each.ancestors() if above != each}
        return extent in self._above

    def remove_from(self, extents: Iterable[Extent]) -> Region:
        """Return extents that exactly cover the part of some disjoint extents that these do not cover.

        An extent is divided only if part of it is removed. So each removed extent adds at most (2**d - 1) * depth
        extents to the result.
        """
        left = []
        pending = [extent for extent in extents if not self.covers(extent)]
        while pending:
            extent = pending.pop()
            if self.divides(extent):
                pending += [part for part in extent.split() if part not in self.extents]
            else:
                left.append(extent)
        return frozenset(left)


def disjoint(extents: Iterable[Extent]) -> Region:
    """Return the extents without those that another one covers."""
    given = Cover(extents)
    return frozenset([extent for extent in given.extents if not given.covers(extent, strictly=True)])


def intersection(first: Iterable[Extent], second: Iterable[Extent]) -> Region:
    """Return extents that exactly cover the surface that both sets cover."""
    one, other = Cover(first), Cover(second)
    return disjoint([e for e in one.extents if other.covers(e)] + [e for e in other.extents if one.covers(e)])


def difference(first: Iterable[Extent], second: Iterable[Extent]) -> Region:
    """Return extents that exactly cover the surface of the first set that the second set does not cover.

    ``Cover.remove_from`` bounds their number.
    """
    return Cover(disjoint(second)).remove_from(disjoint(first))


def merge(region: Iterable[Extent]) -> Region:
    """Return the largest extents that exactly cover the surface of disjoint extents."""
    levels: dict[int, set[Extent]] = {}
    for extent in region:
        levels.setdefault(extent.depth, set()).add(extent)
    merged = set[Extent]()
    depth = max(levels, default=0)
    while depth >= 0:
        level = levels.pop(depth, set())
        above = Counter(extent.parent() for extent in level) if depth else Counter()
        whole = {parent for parent, parts in above.items() if parts == 1 << parent.dimensions}
        merged.update(extent for extent in level if not depth or extent.parent() not in whole)
        levels.setdefault(depth - 1, set()).update(whole)
        depth -= 1
    return frozenset(merged)


def neighbours(own: Iterable[Extent], others: Iterable[Extent]) -> Region:
    """Return the other extents that are adjacent to at least one of the own ones."""
    mine = frozenset(own)
    return frozenset(other for other in others if any(other.adjacent(extent) for extent in mine))


def uncovered(own: Iterable[Extent], others: Iterable[Extent]) -> Region:
    """Return the surface next to the own extents that no known peer manages: neither they nor the others cover it.

    Each extent of this surface is at most as large as the own extent that it is next to. The work grows with the depth
    of the others only next to the own extents.
    """
    mine = frozenset(own)
    known = Cover((*mine, *others))
    found = set()
    for extent in mine:
        pending = [beside for beside in extent.beside() if beside != extent]
        while pending:
            cell = pending.pop()
            if known.covers(cell):
                continue
            if known.divides(cell):
                pending += [part for part in cell.split() if part.adjacent(extent)]
            else:
                found.add(cell)
    return disjoint(found)


def hand_over(managed: Iterable[Extent], own: Extent, newcomer: Extent) -> tuple[Region, Extent | None]:
    """Return the largest extent that contains the newcomer's address but not the own one, and the rest (Algorithm 2).

    Args:
        managed: the extents that the peer manages, disjoint.
        own: the smallest extent of the peer's address.
        newcomer: the smallest extent of the newcomer's address.

    Returns:
        The extents that the peer keeps, and the extent that the newcomer gets: ``None`` for a cohabitant.

    Raises:
        ValueError: if the peer does not manage the newcomer's address.

    Source: Algorithm 2, lines 1 to 16.
    """
    kept = frozenset(managed)
    extent = next((extent for extent in kept if extent.covers(newcomer)), None)
    if extent is None:
        raise ValueError(f"no managed extent covers {newcomer}")
    if own.covers(newcomer):
        return kept, None
    kept -= {extent}
    while extent.covers(own):
        parts = extent.split()
        extent = next(part for part in parts if part.covers(newcomer))
        kept |= set(parts) - {extent}
    return kept, extent
