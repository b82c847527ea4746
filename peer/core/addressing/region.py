"""Sets of extents: intersection, difference, neighbours, and what a peer hands over to a newcomer."""

from collections.abc import Iterable

from peer.core.addressing.extent import Extent

Region = frozenset[Extent]
"""Extents of the same dimensions. Results of this module are disjoint; arguments need not be."""


def disjoint(extents: Iterable[Extent]) -> Region:
    """The same surface without the extents that another one covers."""
    given = frozenset(extents)
    return frozenset(extent for extent in given if not _strictly_covered(extent, given))


def intersection(first: Iterable[Extent], second: Iterable[Extent]) -> Region:
    """Extents that exactly cover the surface that both sets cover."""
    one, other = frozenset(first), frozenset(second)
    return disjoint([e for e in one if _covered(e, other)] + [e for e in other if _covered(e, one)])


def difference(first: Iterable[Extent], second: Iterable[Extent]) -> Region:
    """Extents that exactly cover the surface of the first set that the second set does not cover.

    An extent is divided only where part of it is subtracted, so the result has at most (2**d - 1) * depth extents per
    subtracted extent, besides those of the first set.
    """
    removed = disjoint(second)
    divided = {above for extent in removed for above in extent.ancestors()} - removed
    left = set()
    pending = [extent for extent in disjoint(first) if not _covered(extent, removed)]
    while pending:
        extent = pending.pop()
        if extent in divided:
            pending += [part for part in extent.split() if part not in removed]
        else:
            left.add(extent)
    return frozenset(left)


def neighbours(own: Iterable[Extent], others: Iterable[Extent]) -> Region:
    """Those of the other extents that are adjacent to at least one of the own ones."""
    mine = frozenset(own)
    return frozenset(other for other in others if any(other.adjacent(extent) for extent in mine))


def hand_over(managed: Iterable[Extent], own: Extent, newcomer: Extent) -> tuple[Region, Extent | None]:
    """Algorithm 2, lines 1 to 16: the largest extent that contains the newcomer's address but not the own one.

    Args:
        managed: the extents that the peer manages, disjoint.
        own: the smallest extent of the peer's address.
        newcomer: the smallest extent of the newcomer's address.

    Returns:
        The extents that the peer keeps, and the one that the newcomer gets: ``None`` for a cohabitant.

    Raises:
        ValueError: if the peer does not manage the newcomer's address.
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


def _covered(extent: Extent, region: Region) -> bool:
    return any(above in region for above in extent.ancestors())


def _strictly_covered(extent: Extent, region: Region) -> bool:
    return any(above in region for above in extent.ancestors() if above != extent)
