"""The parameters of Scribe."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class ScribeParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Trees over Pastry routing."""

    grouping: Literal["topic", "random"] = "topic"
    """``topic``: one group per topic; its members are the subscribers. ``random``: every node is in one group, drawn
    regardless of topics, and publishes in it."""
    groups: Annotated[int, Meta(ge=1)] = 40
    """Number of random groups."""
    degree: Annotated[int, Meta(ge=1)] = 6
    """Most links that a node opens, to its parents in all trees together."""
    children: Annotated[int, Meta(ge=1)] = 12
    """Most children of a node, in all trees together."""
    digit_bits: Literal[1, 2, 4, 8] = 1
    """b: bits of a digit of Pastry's keys."""
    leaf_set: Annotated[int, Meta(ge=2)] = 16
    """|L|: nodes next to a node on the ring that Pastry routes to directly."""
    heartbeat_s: Annotated[float, Meta(ge=0.001, le=604_800)] = 5.0
    """Time between two heartbeats from the root of a tree."""
    heartbeats_missed: Annotated[int, Meta(ge=2)] = 3
    """A node leaves a parent that was silent for this many heartbeats."""
    seen_messages: Annotated[int, Meta(ge=1)] = 1 << 16
    """Number of latest messages that a node remembers."""
