"""Access for tests to a node's effects by kind, and to its parts."""

from collections.abc import Iterable
from typing import Any

from peer.core import contract
from peer.core.contract import Effect, Message, Node, NodeId, one_by_one
from peer.core.frames import Frame
from peer.core.node import ComposedNode
from peer.trace import TraceEvent


def sends(effects: Iterable[Effect]) -> list[tuple[NodeId, Frame]]:
    """Return (receiver, frame) of every frame that is sent, in order."""
    return [(effect.peer, effect.frame) for effect in one_by_one(effects) if isinstance(effect, contract.Send)]


def connects(effects: Iterable[Effect]) -> list[NodeId]:
    """Return the nodes to which a link is asked for, in order."""
    return [effect.peer for effect in effects if isinstance(effect, contract.Connect)]


def disconnects(effects: Iterable[Effect]) -> list[tuple[NodeId, str]]:
    """Return (peer, reason) of every link that is closed, in order."""
    return [(effect.peer, effect.reason) for effect in effects if isinstance(effect, contract.Disconnect)]


def timers(effects: Iterable[Effect]) -> dict[str, int]:
    """Return the instant (ns) of every timer that is set, by name."""
    return {effect.name: effect.at_ns for effect in effects if isinstance(effect, contract.SetTimer)}


def traces(effects: Iterable[Effect]) -> list[TraceEvent]:
    """Return the trace events, in order."""
    return [effect.event for effect in effects if isinstance(effect, contract.Trace)]


def deliveries(effects: Iterable[Effect]) -> list[Message]:
    """Return the delivered messages, in order."""
    return [effect.message for effect in effects if isinstance(effect, contract.Deliver)]


def part_of(node: Node, role: str) -> Any:  # noqa: ANN401 - a test knows the class of the part
    """Return the part of a composed node in a role: "membership", "interests", "overlay" or "dissemination"."""
    assert isinstance(node, ComposedNode), f"{type(node).__name__} has no parts"
    return node.parts[role]
