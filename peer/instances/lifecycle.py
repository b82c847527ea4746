"""The effects of the schedule's actions on a node, for all drivers, without I/O and without a clock.

An *instance* of a node lasts from a join to the next leave or crash. The next instance keeps no state of it: it is made
from the specification again and draws other numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from peer.core import contract
from peer.core.contract import Directory, Event, NodeId, TopicId
from peer.core.node import StatefulNode
from peer.core.payload import make_payload
from peer.core.randomness import substream
from peer.core.schedule import Crash, Join, Leave, Publish, Subscribe, Unsubscribe, Vanish
from peer.instances.bootstrap import Step, tell
from peer.instances.spec import NodeSpec
from peer.protocols.description import Composition
from peer.protocols.registry import compose
from peer.trace import JOINED, TraceEvent

Joining = TypeVar("Joining", covariant=True)


class Slot(Protocol[Joining]):
    """A node's place in the network, in which its instances run one after another. Drivers pass it to ``enact``.

    ``Joining`` is the result of ``join``: an awaitable, or None.
    """

    def join(self, topics: Sequence[TopicId], directory: Directory) -> Joining:
        """Start a new instance with these interests; ``directory``: the bootstrap service's answer for it."""
        ...

    def leave(self) -> None:
        """End the instance in order."""
        ...

    def crash(self) -> None:
        """End the instance like a killed process."""
        ...

    def vanish(self) -> None:
        """End the instance like a host without power: it closes no connection and answers nothing."""
        ...

    def feed(self, event: Event) -> None:
        """Give the instance an event. Do nothing while the node is down."""
        ...


def enact(step: Step, spec: NodeSpec, slot: Slot[Joining]) -> Joining | None:
    """Carry out a step of the schedule or the bootstrap service for one node.

    Args:
        step: a refresh, or an action of this node.
        spec: the node.
        slot: the slot in which it runs.

    Returns:
        The result of ``slot.join``; None if the step is not a join.
    """
    action = step.action
    directory = None if step.directory is None else tell(spec, step.directory)
    match action:
        case Publish():
            payload = make_payload(action.message_id, action.sequence, action.payload_bytes, action.expression)
            slot.feed(contract.Publish(action.topics, action.message_id, payload, action.expression))
        case Subscribe():
            for topic in action.topics:
                slot.feed(contract.Subscribe(topic))
        case Unsubscribe():
            for topic in action.topics:
                slot.feed(contract.Unsubscribe(topic))
        case Join():
            assert directory is not None, "a join has a directory"
            return slot.join(action.topics, directory)
        case Leave():
            slot.leave()
        case Crash():
            slot.crash()
        case Vanish():
            slot.vanish()
        case None:
            assert directory is not None, "a refresh has a directory"
            slot.feed(contract.PeerList(directory))
    return None


def make_node(spec: NodeSpec, instance: int = 0, topics: Sequence[int] | None = None) -> StatefulNode:
    """Make the node of a specification.

    Args:
        spec: the specification.
        instance: the number of instances before; each draws from its own substreams.
        topics: the subscriptions of this instance; None = those of the specification.

    Raises:
        ValueError: a part has an unknown name or parameter.
    """
    parts = Composition(spec.overlay, spec.dissemination, spec.membership, spec.interests)
    chosen = spec.topics if topics is None else tuple(topics)
    return compose(
        spec.node, instance_seed(spec.seed, instance), chosen, parts, spec.behaviour, spec.processing_ns, spec.nodes
    )


def instance_seed(seed: int, instance: int) -> int:
    """Return the seed for the parts of an instance. The first instance uses the seed of the run."""
    return substream(seed, instance, "lives").getrandbits(63) if instance else seed


def announce_join(node: StatefulNode, now_ns: int) -> TraceEvent:
    """Return the trace event of a join during the run: the node's subscriptions begin."""
    return trace_join(node.state.node, node.state.topics, now_ns)


def trace_join(node: NodeId, topics: Iterable[TopicId], now_ns: int) -> TraceEvent:
    """Return the same as ``announce_join``.

    Args:
        node: the node.
        topics: its subscriptions.
        now_ns: the instant (ns).
    """
    return TraceEvent("join", now_ns, node, topics=tuple(sorted(topics)), reason=JOINED)


def announce_end(node: StatefulNode, now_ns: int, reason: str) -> list[TraceEvent]:
    """Return the trace events of an instance's end: its logical links and subscriptions end.

    Args:
        node: the node.
        now_ns: the instant (ns).
        reason: why the instance ends.
    """
    state = node.state
    logical = {peer: neighbour.logical for peer, neighbour in state.neighbours.items()}
    return trace_end(state.node, state.topics, logical, now_ns, reason)


def trace_end(
    node: NodeId, topics: Iterable[TopicId], logical: Mapping[NodeId, Iterable[TopicId]], now_ns: int, reason: str
) -> list[TraceEvent]:
    """Return the same as ``announce_end``.

    Args:
        node: the node.
        topics: its subscriptions.
        logical: the topics of its logical links by neighbour.
        now_ns: the instant (ns).
        reason: why the instance ends.
    """
    ends = {peer: tuple(links) for peer, links in logical.items()}
    events = [
        TraceEvent("prune", now_ns, node, peer, topics=links, reason=reason) for peer, links in ends.items() if links
    ]
    return [*events, TraceEvent("leave", now_ns, node, topics=tuple(sorted(topics)), reason=reason)]
