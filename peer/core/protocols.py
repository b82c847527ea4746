"""The protocols by name, and the parts that they are made of.

A new protocol adds its parts to the registries and a default composition to ``PROTOCOLS``; nothing else knows the
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field

from peer.core.composition import ComposedNode
from peer.core.contract import NodeId, TopicId
from peer.core.dissemination.flood import Flood
from peer.core.interests import Interests
from peer.core.membership.full_view import FullView
from peer.core.node import Part, State
from peer.core.overlay.complete_graph import CompleteGraph
from peer.core.overlay.random_graph import RandomGraph

Parameters = Mapping[str, Any]
"""A part as an experiment names it: ``name`` and the part's own parameters."""


MEMBERSHIPS: dict[str, Callable[..., Part]] = {"full": FullView}
OVERLAYS: dict[str, Callable[..., Part]] = {"random": RandomGraph, "complete": CompleteGraph}
DISSEMINATIONS: dict[str, Callable[..., Part]] = {"flood": Flood}


class Composition(Struct, frozen=True):
    """The parts that make a protocol."""

    overlay: dict[str, Any]
    dissemination: dict[str, Any] = field(default_factory=lambda: {"name": "flood"})
    membership: dict[str, Any] = field(default_factory=lambda: {"name": "full"})


PROTOCOLS: dict[str, Composition] = {
    "random": Composition(overlay={"name": "random", "degree": 5}),
    "complete": Composition(overlay={"name": "complete"}),
}
"""Every protocol's default composition."""

Made = TypeVar("Made")


def compose(node: NodeId, seed: int, topics: tuple[TopicId, ...], parts: Composition) -> ComposedNode:
    """A node of these parts.

    Raises:
        ValueError: a part has an unknown name or parameter.
    """
    state = State(node, seed, topics)
    membership = _make("membership", MEMBERSHIPS, parts.membership, state)
    return ComposedNode(
        state,
        {
            "membership": membership,
            "interests": Interests(state),
            "overlay": _make("overlay", OVERLAYS, parts.overlay, state, membership),
            "dissemination": _make("dissemination", DISSEMINATIONS, parts.dissemination, state),
        },
    )


def _make(role: str, registry: Mapping[str, Callable[..., Made]], chosen: Parameters, *context: object) -> Made:
    parameters = dict(chosen)
    name = parameters.pop("name", None)
    maker = registry.get(name) if isinstance(name, str) else None
    if maker is None:
        raise ValueError(f"no {role} is called {name!r}; there are: {', '.join(sorted(registry))}")
    try:
        return maker(*context, **parameters)
    except TypeError as error:
        raise ValueError(f"{role} {name!r}: {error}") from None
