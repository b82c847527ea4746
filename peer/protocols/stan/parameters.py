"""The parameters of StAN, and those that the plan adds."""

from typing import Annotated

from msgspec import Meta, Struct


class StanParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """StAN: one aligned overlay per topic."""

    period_s: Annotated[float, Meta(gt=0, le=604_800)] = 1.0
    """Time between two walks of a node in each of its topics."""
    walk_ttl: Annotated[int, Meta(ge=0, le=255)] = 5
    """A walk visits this many nodes plus one."""
    degree_factor: Annotated[float, Meta(gt=0, le=100)] = 1.0
    """Mean size of the initial views, divided by the natural logarithm of the number of the topic's subscribers."""
    both_directions: bool = True
    """Send messages to the nodes in a node's views and to nodes that have it in theirs, or only to the former."""
    learn_from_walks: bool = False
    """Align views on passing walks, too; in the paper nodes do so only on the answers to their own walks."""
    literal: bool = False
    """Collect only the ids of the nodes on the walk, as line 8 of the listing prints, not those in their views."""


class PlacedStanParameters(StanParameters, frozen=True):
    """StAN's parameters with those that the plan gives a node for each topic of its first instance."""

    views: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(topic, nodes): the initial view."""
    members: tuple[tuple[int, Annotated[str, Meta(pattern="^[0-9a-f]+\\Z")]], ...] = ()
    """(topic, list): all subscribers of the topic, as the hexadecimal digits of a bitset."""
