"""The protocols by name, the parts by role and name, and the function that makes a node of parts.

Add the ``PROTOCOL`` of a new protocol of Trellis to ``_OWN``; no other code lists names. The protocols and adversaries
of plugins follow (``peer.plugins``).
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from peer.core.adversary import ADVERSARIES as OWN_ADVERSARIES
from peer.core.adversary import Adversary
from peer.core.contract import NodeId, TopicId
from peer.core.dissemination.flood import Flood
from peer.core.dissemination.notify_pull import NotifyPull
from peer.core.dissemination.topic_flood import TopicFlood
from peer.core.interests import AnnouncedInterests, PrivateInterests, ToldInterests
from peer.core.membership.cyclon import Cyclon
from peer.core.membership.full_view import FullView
from peer.core.membership.newscast import Newscast
from peer.core.membership.partial_view import PartialView
from peer.core.node import ComposedNode, StatefulNode
from peer.core.observed_links import ObservedLinks
from peer.core.parts import Part, State
from peer.core.processing_delay import UnhurriedNode
from peer.plugins import PluginError, add_extensions, added
from peer.protocols import (
    complete_graph,
    gossipsub,
    implicit_groups,
    opt,
    plumtree,
    random_graph,
    ring_per_topic,
    rvr,
    scribe,
    similarity,
    spidercast,
    stan,
    topiary,
    vitis,
)
from peer.protocols.description import Choice, Composition, Description

Made = TypeVar("Made")

_OWN: dict[str, Description] = {
    protocol.name: protocol
    for protocol in (
        random_graph.PROTOCOL,
        complete_graph.PROTOCOL,
        stan.PROTOCOL,
        spidercast.PROTOCOL,
        similarity.PROTOCOL,
        ring_per_topic.PROTOCOL,
        gossipsub.PROTOCOL,
        gossipsub.BOUNDED,
        scribe.PROTOCOL,
        plumtree.PROTOCOL,
        topiary.PROTOCOL,
        vitis.PROTOCOL,
        rvr.PROTOCOL,
        opt.PROTOCOL,
        implicit_groups.PROTOCOL,
    )
}
"""The protocols of Trellis."""

DEFAULT = random_graph.PROTOCOL.name
"""The protocol of experiments that name none."""

MEMBERSHIPS: dict[str, type[Part]] = {"full": FullView, "partial": PartialView, "cyclon": Cyclon, "newscast": Newscast}
INTERESTS: dict[str, type[Part]] = {
    "announced": AnnouncedInterests,
    "announced-only": ToldInterests,
    "private": PrivateInterests,
}
SHARED_DISSEMINATIONS: dict[str, type[Part]] = {
    "flood": Flood,
    "topic-flood": TopicFlood,
    "notify-pull": NotifyPull,
}
"""The disseminations that work with every protocol."""


def _may_lend(lender: Description | None) -> bool:
    """Return whether another protocol may use the overlay of this one: the plan gives it only its parameters."""
    return (
        lender is not None
        and "overlay" in lender.parts
        and lender.draw_initial_state is None
        and not lender.needs_rates
    )


PROTOCOLS = add_extensions(_OWN, "protocols", Description, (*MEMBERSHIPS, *SHARED_DISSEMINATIONS, "protocol"))
"""Every protocol; experiments have their sections in this order."""


def _check_borrowed_overlays() -> None:
    """Check that the protocols of plugins can use the overlays that they name.

    Raises:
        PluginError: a protocol cannot.
    """
    for plugin, protocol in added("protocols", Description):
        lender = str(protocol.composition.overlay["name"])
        if "overlay" not in protocol.parts and not _may_lend(PROTOCOLS.get(lender)):
            problem = f"{protocol.name!r} has no overlay of its own and cannot use {lender!r}"
            raise PluginError(f"{plugin.shown}: {problem}")


_check_borrowed_overlays()

ADVERSARIES: dict[str, Adversary] = add_extensions(OWN_ADVERSARIES, "adversaries", Adversary, ("none",))
"""Every kind of adversary."""


def _own_parts(role: str) -> dict[str, type[Part]]:
    """Return the parts in a role that belong to a protocol, by the name of the protocol."""
    return {name: protocol.parts[role] for name, protocol in PROTOCOLS.items() if role in protocol.parts}


OVERLAYS: dict[str, type[Part]] = _own_parts("overlay")
DISSEMINATIONS = SHARED_DISSEMINATIONS | _own_parts("dissemination")


def background_kinds() -> frozenset[int]:
    """Return the kinds of all frames that nodes send without churn, too (``Description.background_frames``)."""
    return frozenset(frame.kind for protocol in PROTOCOLS.values() for frame in protocol.background_frames)


def copies_follow_links(dissemination: Choice, interests: str, *, several: bool) -> bool:
    """Return whether a copy between two honest subscribers of its topic travels only on a logical link.

    Args:
        dissemination: its name and parameters, as in the specification of a node. The result is False for an unknown
            one.
        interests: the name of the nodes' interests part.
        several: whether messages are on several topics.
    """
    part = DISSEMINATIONS.get(dissemination["name"])
    told = INTERESTS.get(interests) is AnnouncedInterests
    return part is not None and part.copies_follow_links(dissemination, told=told, several=several)


def copies_may_wait(dissemination: Choice) -> bool:
    """Return whether a publisher's first copy may wait for other nodes; False for an unknown dissemination."""
    part = DISSEMINATIONS.get(dissemination["name"])
    return part is not None and part.copies_may_wait(dissemination)


def observe_links(overlay: Choice, interests: str) -> type[ObservedLinks] | None:
    """Return how an observer of the frames reads the logical links of nodes; None = it cannot.

    Unknown parts decide on no logical links.

    Args:
        overlay: its name and parameters, as in the specification of a node.
        interests: the name of the nodes' interests part.
    """
    for part, parameters in ((INTERESTS.get(interests), {}), (OVERLAYS.get(str(overlay.get("name"))), overlay)):
        if part is not None and "logical" in part.writes:
            return part.observe_links(parameters)
    return None


def compose(
    node: NodeId,
    seed: int,
    topics: tuple[TopicId, ...],
    parts: Composition,
    behaviour: Choice | None = None,
    processing_ns: int = 0,
    nodes: int = 0,
) -> StatefulNode:
    """Return a node that consists of these parts.

    Args:
        node: its number.
        seed: the seed of its parts' random draws.
        topics: its subscriptions at the start.
        parts: the parts.
        behaviour: the adversary that it is (``ADVERSARIES``), with parameters; None = it is honest.
        processing_ns: how long after its arrival the node handles a frame (ns).
        nodes: the number of nodes in the plan; their numbers are lower. 0 = only the bootstrap service names nodes.

    Raises:
        ValueError: a part or the behaviour has an unknown name or parameter, or two parts do not fit together.
    """
    state = State(node, seed, topics, nodes)
    membership = _make("membership", MEMBERSHIPS, parts.membership, state)
    made = {"membership": membership, "interests": INTERESTS[parts.interests](state)}
    if _fills_both_roles(parts):
        both = _make("dissemination", DISSEMINATIONS, parts.overlay | parts.dissemination, state, membership)
        made |= {"overlay": both, "dissemination": both}
    else:
        made["overlay"] = _make("overlay", OVERLAYS, parts.overlay, state, membership)
        made["dissemination"] = _make("dissemination", DISSEMINATIONS, parts.dissemination, state)
    whole: StatefulNode = ComposedNode(state, made)
    if behaviour is not None:
        behaviours = {name: adversary.behaviour for name, adversary in ADVERSARIES.items()}
        whole = _make("behaviour", behaviours, behaviour, state, made)
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
    made: Made = part(*context, parameters)
    return made


def _fills_both_roles(parts: Composition) -> bool:
    """Return whether the dissemination fills the role of the overlay, too. Raise ``ValueError`` if they differ."""
    name = str(parts.dissemination.get("name"))
    overlay, dissemination = OVERLAYS.get(name), DISSEMINATIONS.get(name)
    if overlay is None or dissemination is None or not issubclass(dissemination, overlay):
        return False
    if parts.overlay.get("name") != name:
        raise ValueError(f"dissemination {name!r} needs the overlay {name!r}")
    return True
