"""The protocols by name, and the parts that they are made of.

A new protocol adds its parts to the registries and a default composition to ``PROTOCOLS``; nothing else knows the
names. A part's ``Parameters`` say what may be set of it, in an experiment's section of its name too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from peer.core.adversary import ADVERSARIES
from peer.core.composition import ComposedNode
from peer.core.contract import NodeId, TopicId
from peer.core.dissemination.flood import Flood
from peer.core.dissemination.topic_flood import TopicFlood
from peer.core.interests import AnnouncedInterests, PrivateInterests, ToldInterests
from peer.core.membership.cyclon import Cyclon
from peer.core.membership.full_view import FullView
from peer.core.membership.newscast import Newscast
from peer.core.membership.partial_view import PartialView
from peer.core.node import Part, State, StatefulNode
from peer.core.processing import UnhurriedNode
from peer.protocols.complete_graph.overlay import CompleteGraph
from peer.protocols.gossipsub.bounded import BoundedGossipsub
from peer.protocols.gossipsub.mesh import Mesh
from peer.protocols.gossipsub.router import Router
from peer.protocols.random_graph.overlay import RandomGraph
from peer.protocols.ring_per_topic.overlay import RingPerTopic
from peer.protocols.scribe.multicast import Multicast
from peer.protocols.scribe.overlay import Scribe
from peer.protocols.similarity.overlay import Similarity
from peer.protocols.spidercast.overlay import SpiderCast
from peer.protocols.stan.overlay import Stan
from peer.protocols.topiary.overlay import Topiary

Made = TypeVar("Made")

Choice = dict[str, Any]
"""A part as an experiment names it: ``name`` and the part's own parameters."""

MEMBERSHIPS: dict[str, type[Part]] = {
    "full": FullView,
    "partial": PartialView,
    "cyclon": Cyclon,
    "newscast": Newscast,
}
INTERESTS: dict[str, type[Part]] = {
    "announced": AnnouncedInterests,
    "announced-only": ToldInterests,
    "private": PrivateInterests,
}
OVERLAYS: dict[str, type[Part]] = {
    "random": RandomGraph,
    "complete": CompleteGraph,
    "stan": Stan,
    "spidercast": SpiderCast,
    "similarity": Similarity,
    "ring-per-topic": RingPerTopic,
    "topiary": Topiary,
    "gossipsub": Mesh,
    "gossipsub-bounded": BoundedGossipsub,
    "scribe": Scribe,
}
DISSEMINATIONS: dict[str, type[Part]] = {
    "flood": Flood,
    "topic-flood": TopicFlood,
    "gossipsub": Router,
    "scribe": Multicast,
}


class Composition(Struct, frozen=True):
    """The parts that make a protocol.

    ``needs_interests``: whether its nodes are told what others subscribe to, although they keep their own interests
    private; a protocol that works without is told nothing.
    """

    overlay: Choice
    dissemination: Choice = field(default_factory=lambda: {"name": "flood"})
    membership: Choice = field(default_factory=lambda: {"name": "full"})
    interests: str = "announced"
    needs_interests: bool = True


PROTOCOLS: dict[str, Composition] = {
    "random": Composition(overlay={"name": "random"}),
    "complete": Composition(overlay={"name": "complete"}),
    "stan": Composition(
        overlay={"name": "stan"}, dissemination={"name": "topic-flood"}, interests="private", needs_interests=False
    ),
    "spidercast": Composition(
        overlay={"name": "spidercast"}, dissemination={"name": "topic-flood", "whole": True}, interests="private"
    ),
    "similarity": Composition(
        overlay={"name": "similarity"}, dissemination={"name": "topic-flood", "whole": True}, interests="private"
    ),
    "ring-per-topic": Composition(
        overlay={"name": "ring-per-topic"}, dissemination={"name": "topic-flood", "whole": True}, interests="private"
    ),
    "topiary": Composition(overlay={"name": "topiary"}),
    "gossipsub": Composition(
        overlay={"name": "gossipsub"}, dissemination={"name": "gossipsub"}, interests="announced-only"
    ),
    "gossipsub-bounded": Composition(overlay={"name": "gossipsub-bounded"}),
    "scribe": Composition(overlay={"name": "scribe"}, dissemination={"name": "scribe"}, interests="announced-only"),
}
"""Every protocol's default composition."""


def compose(
    node: NodeId,
    seed: int,
    topics: tuple[TopicId, ...],
    parts: Composition,
    behaviour: Choice | None = None,
    processing_ns: int = 0,
    nodes: int = 0,
) -> StatefulNode:
    """A node of these parts.

    Args:
        node: its number.
        seed: the run's, from which its parts draw.
        topics: what it subscribes to at first.
        parts: what it is made of.
        behaviour: how it misbehaves (``ADVERSARIES``); None = not at all.
        processing_ns: how long after its arrival it handles a frame.
        nodes: how many nodes the plan has; their numbers are those below. 0 = only the bootstrap service names nodes.

    Raises:
        ValueError: a part or the behaviour has an unknown name or parameter.
    """
    state = State(node, seed, topics, nodes)
    membership = _make("membership", MEMBERSHIPS, parts.membership, state)
    overlay = _make("overlay", OVERLAYS, parts.overlay, state, membership)
    made = {
        "membership": membership,
        "interests": INTERESTS[parts.interests](state),
        "overlay": overlay,
        "dissemination": _make("dissemination", DISSEMINATIONS, parts.dissemination, state, overlay),
    }
    whole: StatefulNode = ComposedNode(state, made)
    if behaviour is not None:
        whole = _make("behaviour", ADVERSARIES, behaviour, state, made)
    return UnhurriedNode(whole, processing_ns) if processing_ns else whole


def _make(role: str, registry: Mapping[str, Callable[..., Made]], chosen: Choice, *context: object) -> Made:
    given = dict(chosen)
    name = given.pop("name", None)
    part: Any = registry.get(name) if isinstance(name, str) else None
    if part is None:
        raise ValueError(f"no {role} is called {name!r}; there are: {', '.join(sorted(registry))}")
    try:
        parameters = msgspec.convert(given, part.Parameters)
    except msgspec.ValidationError as error:
        raise ValueError(f"{role} {name!r}: {error}") from None
    if role == "dissemination":
        context = _foundation(part, str(name), *context)
    made: Made = part(*context, parameters)
    return made


def _foundation(part: type[Part], name: str, state: object, overlay: object) -> tuple[object, ...]:
    """What a dissemination is made on: the node's state, and the overlay where it rides on one of that kind."""
    if part.rides_on is None:
        return (state,)
    if not isinstance(overlay, part.rides_on):
        below = next(name for name, kind in OVERLAYS.items() if kind is part.rides_on)
        raise ValueError(f"dissemination {name!r} needs the overlay {below!r} below it")
    return state, overlay
