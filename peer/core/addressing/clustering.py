"""Divisive clustering of extents by their direction from a peer, which decides where a CAST branches."""

from collections.abc import Iterable
from itertools import combinations
from math import pi

from peer.core.addressing.extent import Extent
from peer.core.addressing.geometry import Vector, angle, centre, shortest


def cluster(origin: Vector, extents: Iterable[Extent], phi: float) -> tuple[tuple[Extent, ...], ...]:
    """Divide extents until no two of a cluster differ in direction by more than the branch factor.

    A cluster is divided by its two members that differ most; the others go to the nearer of the two, and to the lower
    one if both are equally near. The work grows with the third power of the number of extents at worst, so callers
    bound it (``Target.expand`` has a limit).

    Args:
        origin: the peer's point on the surface.
        extents: what is to be reached; the order does not matter.
        phi: the branch factor in radians, 0 to 2 pi. From pi on, there is one cluster. With 0, rounding may divide
            extents of the same direction.

    Returns:
        The clusters, each in rising order, ordered by their first extents.

    Raises:
        ValueError: if phi is out of its range.
    """
    if not 0.0 <= phi <= 2 * pi:
        raise ValueError(f"branch factor {phi}: 0 to 2 pi radians are possible")
    ways = {extent: shortest(origin, centre(extent)) for extent in extents}
    done = []
    pending = [sorted(ways)] if ways else []
    while pending:
        members = pending.pop()
        widest, low, high = phi, None, None
        for one, other in combinations(members, 2):
            apart = angle(ways[one], ways[other])
            if apart > widest:
                widest, low, high = apart, one, other
        if low is None or high is None:
            done.append(tuple(members))
            continue
        nearer = [angle(ways[low], ways[extent]) <= angle(ways[high], ways[extent]) for extent in members]
        pending.append([extent for extent, is_low in zip(members, nearer, strict=True) if is_low])
        pending.append([extent for extent, is_low in zip(members, nearer, strict=True) if not is_low])
    return tuple(sorted(done))
