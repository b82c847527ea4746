"""What may be set of StAN, and what the plan adds to it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class StanParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """StAN: an aligned overlay for each topic."""

    period_s: Annotated[float, Meta(gt=0, le=604_800)] = 1.0
    """Time between two walks of a node in each of its topics."""
    walk_ttl: Annotated[int, Meta(ge=0, le=255)] = 5
    """A walk visits one node more than this."""
    degree_factor: Annotated[float, Meta(gt=0, le=100)] = 1.0
    """Mean size of the initial views: this times the natural logarithm of the topic's subscribers."""
    both_directions: bool = True
    """Messages go to the nodes in a node's views and to those that have it in theirs; else only to the former."""
    learn_from_walks: bool = False
    """Nodes align their views on walks that pass, too; in the paper only on the answers to their own."""
    literal: bool = False
    """Collect only the ids of the nodes on the walk, as line 8 of the listing is printed, not those in their views."""


class PlacedStanParameters(StanParameters, frozen=True):
    """StAN with what the plan gives a node for each topic of its first life."""

    views: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(topic, nodes): its initial view."""
    members: tuple[tuple[int, Annotated[str, Meta(pattern="^[0-9a-f]+\\Z")]], ...] = ()
    """(topic, list): all subscribers of the topic, as the hexadecimal digits of a bitset."""
