"""Distances and directions on the torus, whose sides have length 1."""

from math import atan2, hypot

from peer.core.addressing.extent import Extent

Vector = tuple[float, ...]
"""One component per axis."""


def centre(extent: Extent) -> Vector:
    """The extent's centre, each coordinate between 0 and 1."""
    side = 2.0**-extent.depth
    return tuple((low + 0.5) * side for low in extent.corner())


def shortest(origin: Vector, goal: Vector) -> Vector:
    """The shortest vector from the origin to the goal around the torus; each component is in (-1/2, 1/2].

    If both ways along an axis are equally long, the vector points to the higher coordinate.
    """
    return tuple(0.5 - (0.5 - (end - start)) % 1.0 for start, end in zip(origin, goal, strict=True))


def distance(first: Extent, second: Extent) -> tuple[float, float]:
    """How far apart two extents are: between their nearest points, and (to break ties) between their centres."""
    between = shortest(centre(first), centre(second))
    reach = (2.0**-first.depth + 2.0**-second.depth) / 2
    return hypot(*(max(0.0, abs(component) - reach) for component in between)), hypot(*between)


def angle(first: Vector, second: Vector) -> float:
    """The angle between two vectors in radians, 0 to pi; 0 if one of them is zero, since it has no direction."""
    one, other = hypot(*first), hypot(*second)
    if one == 0.0 or other == 0.0:
        return 0.0
    pairs = [(a / one, b / other) for a, b in zip(first, second, strict=True)]
    return 2 * atan2(hypot(*(a - b for a, b in pairs)), hypot(*(a + b for a, b in pairs)))
