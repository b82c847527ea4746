"""The parameters of HyParView and Plumtree."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=255)]
Seconds = Annotated[float, Meta(gt=0, le=604_800)]
Milliseconds = Annotated[float, Meta(gt=0, le=600_000)]


class PlumtreeParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Plumtree's broadcast trees over HyParView's active and passive views."""

    scope: Literal["topic", "shared"] = "topic"
    """`topic`: the subscribers of each topic have views and a tree of their own; topics share physical links. `shared`:
    all nodes have one overlay and one tree, and relay messages on topics to which they do not subscribe."""
    active_view: Annotated[int, Meta(ge=2, le=255)] = 5
    """Most neighbours of a node in an overlay. With one, nodes would displace each other without end."""
    passive_view: Annotated[int, Meta(ge=0, le=10_000)] = 30
    """Most other nodes that a node remembers in an overlay, to replace neighbours."""
    active_walk: Count = 6
    """Hops after which a forwarded join ends at a node that becomes a neighbour. (ARWL)"""
    passive_walk: Count = 3
    """Hops left at which a forwarded join enters a passive view. (PRWL)"""
    shuffle_s: Seconds = 10.0
    """Time between two shuffles of a node in each of its overlays."""
    shuffle_walk: Annotated[int, Meta(ge=1, le=255)] = 6
    """Hops of a shuffle."""
    shuffle_active: Count = 3
    """Neighbours that a shuffle names. (k_a)"""
    shuffle_passive: Count = 4
    """Nodes of the passive view that a shuffle names. (k_p)"""
    request_timeout_s: Seconds = 3.0
    """Time to wait for an answer to a join or a request before another node is asked."""
    ihave_delay_ms: Milliseconds = 5.0
    """Time for which announcements are collected before they are sent in one frame."""
    missing_timeout_ms: Milliseconds = 500.0
    """Time in which an announced message may arrive over the tree before it is asked for."""
    graft_timeout_ms: Milliseconds = 250.0
    """Time after which a message that was asked for is requested from the next node that announced it."""
    optimisation_threshold: Annotated[int, Meta(ge=1, le=255)] = 7
    """Hops that a copy must have taken more than the copy announced over a lazy link, for the lazy link to replace the
    eager one."""
    cache_s: Seconds = 30.0
    """Time for which a node keeps messages for nodes that ask for them."""
    seen_messages: Annotated[int, Meta(ge=1)] = 1 << 16
    """Latest messages that a node remembers."""
