"""What happens to a node at its join, its leave and its crash, for all drivers alike: without I/O and without a clock.

A *life* of a node is the time from one join to the next leave or crash. Nothing of a life is left in the next one: the
node is made anew, and draws other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peer.core import contract
from peer.core.contract import Event
from peer.core.node import StatefulNode
from peer.core.payload import make_payload
from peer.core.randomness import substream
from peer.protocols.registry import Composition, compose
from peer.runtime.spec import Action, NodeSpec
from peer.trace import JOINED, TraceEvent

JOIN, LEAVE, CRASH = "join", "leave", "crash"
SUBSCRIBE, UNSUBSCRIBE, PUBLISH = "subscribe", "unsubscribe", "publish"

ACTIONS: Final = (PUBLISH, SUBSCRIBE, UNSUBSCRIBE, JOIN, LEAVE, CRASH)
"""Every action of a schedule."""


def make_node(spec: NodeSpec, life: int = 0, topics: Sequence[int] | None = None) -> StatefulNode:
    """The node of a specification.

    Args:
        spec: which parts it is made of.
        life: how many lives it has had before; each draws from streams of its own.
        topics: what it subscribes to in this life; None = what the specification says.

    Raises:
        ValueError: a part has an unknown name or parameter.
    """
    parts = Composition(spec.overlay, spec.dissemination, spec.membership, spec.interests)
    chosen = spec.topics if topics is None else tuple(topics)
    return compose(spec.node, life_seed(spec.seed, life), chosen, parts, spec.behaviour, spec.processing_ns, spec.nodes)


def life_seed(seed: int, life: int) -> int:
    """The seed from which a node's parts draw in one of its lives; that of the first one is the run's own."""
    return substream(seed, life, "lives").getrandbits(63) if life else seed


def make_events(action: Action) -> tuple[Event, ...]:
    """What a node that is up is told of a scheduled action, in order.

    Raises:
        ValueError: an action that is no event of a node's life.
    """
    if action.action == PUBLISH:
        payload = make_payload(action.message_id, action.sequence, action.payload_bytes)
        return (contract.Publish(action.topics, action.message_id, payload),)
    if action.action == SUBSCRIBE:
        return tuple(contract.Subscribe(topic) for topic in action.topics)
    if action.action == UNSUBSCRIBE:
        return tuple(contract.Unsubscribe(topic) for topic in action.topics)
    raise ValueError(f"no event of a node's life is called {action.action!r}")


def announce_join(node: StatefulNode, now_ns: int) -> TraceEvent:
    """What is traced when a node joins during the run: its subscriptions begin."""
    return TraceEvent("join", now_ns, node.state.node, topics=tuple(sorted(node.state.topics)), reason=JOINED)


def announce_end(node: StatefulNode, now_ns: int, reason: str) -> list[TraceEvent]:
    """What is traced when a life ends: its logical links and its subscriptions end, all at this instant."""
    state = node.state
    events = [
        TraceEvent("prune", now_ns, state.node, peer, topics=neighbour.logical, reason=reason)
        for peer, neighbour in state.neighbours.items()
        if neighbour.logical
    ]
    topics = tuple(sorted(state.topics))
    return [*events, TraceEvent("leave", now_ns, state.node, topics=topics, reason=reason)]
