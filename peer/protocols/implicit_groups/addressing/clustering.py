"""Divisive clustering of extents by their direction from a peer. It determines where a CAST branches."""

from collections.abc import Iterable, Sequence
from math import hypot, pi
from operator import mul

from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.addressing.geometry import Vector, angle, centre, shortest

SAME = 2.0
"""A number greater than every cosine."""


def cluster(origin: Vector, extents: Iterable[Extent], phi: float) -> tuple[tuple[Extent, ...], ...]:
    """Divide extents into clusters in which no two directions differ by more than the branch factor.

    The two members of a cluster that differ most divide it. The others go to the nearer of the two, or to the lower one
    if both are equally near. An extent at the origin has no direction, and differs from no other. The work is at most
    proportional to the third power of the number of extents, so callers bound it (``Target.expand`` has a limit).

    Args:
        origin: the peer's point on the surface.
        extents: the extents to reach; their order does not matter.
        phi: the branch factor in radians, 0 to 2 pi. From pi on, there is one cluster. Directions are compared with an
            error of about 1e-7. So with 0, extents of the same direction may be divided, and nearly equal ones not.

    Returns:
        The clusters, each in rising order, ordered by their first extents.

    Raises:
        ValueError: if phi is out of its range.
    """
    if not 0.0 <= phi <= 2 * pi:
        raise ValueError(f"expected a branch factor from 0 to 2 pi radians, got {phi}")
    members = sorted(set(extents))
    if phi >= pi or len(members) < 2:
        return (tuple(members),) if members else ()
    ways = [shortest(origin, centre(extent)) for extent in members]
    alike = _compare(ways)
    done = []
    pending = [list(range(len(members)))]
    while pending:
        group = pending.pop()
        least, low, high = SAME, group[0], group[0]
        for one in group:
            row = alike[one]
            among = row if len(group) == len(row) else [row[other] for other in group]
            if (lowest := min(among)) < least:
                least, low, high = lowest, one, group[among.index(lowest)]
        if angle(ways[low], ways[high]) <= phi:
            done.append(tuple(members[place] for place in group))
            continue
        pending.append([place for place in group if alike[low][place] >= alike[high][place]])
        pending.append([place for place in group if alike[low][place] < alike[high][place]])
    return tuple(sorted(done))


def _compare(ways: Sequence[Vector]) -> list[list[float]]:
    """Return the cosine of the angle between each two vectors.

    It is ``SAME`` for a vector and itself, and if a vector has no direction.
    """
    lengths = [hypot(*way) for way in ways]
    units = [tuple(part / length for part in way) if length else () for way, length in zip(ways, lengths, strict=True)]
    directed = [place for place, unit in enumerate(units) if unit]
    dense = [units[place] for place in directed]
    alike = []
    for place, unit in enumerate(units):
        if len(dense) == len(units):
            row = _cosines(unit, dense)
        else:
            row = [SAME] * len(units)
            for other, cosine in zip(directed, _cosines(unit, dense) if unit else (), strict=bool(unit)):
                row[other] = cosine
        row[place] = SAME
        alike.append(row)
    return alike


def _cosines(unit: Vector, units: Sequence[Vector]) -> list[float]:
    """Return the cosines of the angles between a vector of length 1 and others."""
    if len(unit) == 2:  # the usual case, in which a CAST spends most of its time
        right, down = unit
        return [right * x + down * y for x, y in units]
    return [sum(map(mul, unit, other)) for other in units]
