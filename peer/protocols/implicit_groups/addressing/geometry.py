"""Distances and directions on the torus.

For directions, the torus has sides of length 1. Distances are whole numbers, in units so small that every centre has
whole coordinates, since routing compares distances and must not depend on rounding.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import atan2, hypot, inf

from peer.protocols.implicit_groups.addressing.extent import Extent

Vector = tuple[float, ...]
"""One component per axis."""

Span = tuple[int, int]
"""An extent along one axis: the lowest coordinate and the length."""


def centre(extent: Extent) -> Vector:
    """Return the extent's centre, each coordinate between 0 and 1."""
    side = 2.0**-extent.depth
    return tuple((low + 0.5) * side for low in extent.corner())


def shortest(origin: Vector, goal: Vector) -> Vector:
    """Return the shortest vector from the origin to the goal around the torus; each component is in (-1/2, 1/2].

    If both ways along an axis are equally long, the vector points to the higher coordinate.
    """
    return tuple(0.5 - (0.5 - (end - start)) % 1.0 for start, end in zip(origin, goal, strict=True))


def distance(extent: Extent, goal: Extent, depth: int) -> tuple[int, int]:
    """Return the distances of an extent from a goal (between nearest points) and from the goal's centre, for ties.

    If an extent does not overlap the goal, one of its adjacent extents is closer by this order. So greedy routing has
    no local minimum if nodes know all their neighbours. The reason: the extent's nearest point to the goal is also in
    the adjacent extent in the direction of the goal, along an axis in which the extent does not reach the goal yet.

    Args:
        extent: at most ``depth`` deep.
        goal: at most ``depth`` deep.
        depth: the depth of the smallest extents of the surface.

    Returns:
        Two squared Euclidean distances, in units of 2**-(depth + 1) of the torus's side.
    """
    nearest = nearer(spans(extent, depth), (spans(goal, depth),), depth, (inf, inf))
    assert nearest is not None
    return nearest


def nearer(
    extent: Sequence[Span], goals: Iterable[Sequence[Span]], depth: int, best: tuple[float, float]
) -> tuple[int, int] | None:
    """Return the shortest distance (``distance``) from an extent to some goals; None if it is not below a known one.

    Routing spends most of its time here, so the loop leaves a goal as soon as it is known to be too far.

    Args:
        extent: the sides of the extent (``spans``).
        goals: the sides of each goal.
        depth: the depth of the smallest extents of the surface.
        best: the known distance, in the units of ``distance``.
    """
    around = 1 << depth + 1
    found = None
    limit, tie = best
    for goal in goals:
        between = 0
        for (low, length), (start, goal_length) in zip(extent, goal):  # noqa: B905  # strict costs a fifth more
            ahead = (start - low) % around
            if ahead >= length:
                behind = around - ahead
                if behind >= goal_length:
                    ahead -= length
                    behind -= goal_length
                    between += ahead * ahead if ahead < behind else behind * behind
                    if between > limit:
                        break
        else:
            from_centre = 0
            for (low, length), (start, goal_length) in zip(extent, goal):  # noqa: B905
                middle = (start + (goal_length >> 1) - low) % around
                if middle > length:
                    from_centre += min(middle - length, around - middle) ** 2
            if between < limit or from_centre < tie:
                found = limit, tie = between, from_centre
    return found


def angle(first: Vector, second: Vector) -> float:
    """Return the angle between two vectors in radians, 0 to pi; 0 if one of them is zero and so has no direction."""
    one, other = hypot(*first), hypot(*second)
    if one == 0.0 or other == 0.0:
        return 0.0
    pairs = [(a / one, b / other) for a, b in zip(first, second, strict=True)]
    return 2 * atan2(hypot(*(a - b for a, b in pairs)), hypot(*(a + b for a, b in pairs)))


@lru_cache(1 << 16)
def spans(extent: Extent, depth: int) -> tuple[Span, ...]:
    """Return the extent's sides in units of 2**-(depth + 1), in which its centre has whole coordinates."""
    shift = depth + 1 - extent.depth
    return tuple((low << shift, 1 << shift) for low in extent.corner())
