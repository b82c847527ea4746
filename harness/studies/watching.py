"""Watches a simulation: what became of its messages, and when the overlay last changed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from harness.workload.interests import Interests
from peer.core.bitset import Bitset, bitset
from peer.core.contract import Message, MessageId, NodeId
from peer.trace import TraceEvent


class Batch:
    """Consecutive messages: what was due of them, and what came."""

    __slots__ = ("delays_ns", "due", "duplicates", "hops", "messages", "relays")

    def __init__(self) -> None:
        self.messages = self.due = self.hops = self.duplicates = self.relays = 0
        self.delays_ns = array("q")


class Flight(Struct):
    """A message under way: ``due`` are the subscribers at the instant of its publication but the publisher."""

    published_ns: int
    due: Bitset
    batch: Batch


class Watch:
    """The observer of a study's run.

    Args:
        interests: every node's topics at the start.
        batch_messages: how many messages make a batch; None = all of them.

    Attributes:
        changed_ns: when a logical link last began or ended.
        joined_ns: when each node last joined during the run.
        changes: joins, leaves and crashes so far.
        batches: in the order of publication.
    """

    frames = False

    def __init__(self, interests: Interests, batch_messages: int | None) -> None:
        self.changed_ns = 0
        self.joined_ns: dict[NodeId, int] = {}
        self.changes = 0
        self.batches: list[Batch] = []
        self._batch_messages = batch_messages
        self._flights: dict[MessageId, Flight] = {}
        self._subscribers = _by_topic(interests)
        self._handlers: dict[str, Callable[[TraceEvent], None]] = {
            "publish": self._publish,
            "duplicate": self._duplicate,
            "relay": self._relay,
            "graft": self._relink,
            "prune": self._relink,
            "join": self._join,
            "leave": self._leave,
        }

    def trace(self, event: TraceEvent) -> None:
        """See ``Observer``."""
        handler = self._handlers.get(event.event)
        if handler is not None:
            handler(event)

    def deliver(self, now_ns: int, node: NodeId, message: Message) -> None:
        """Note a delivery that was due."""
        flight = self._flights.get(message.message_id)
        if flight is not None and flight.due >> node & 1:
            flight.batch.delays_ns.append(now_ns - flight.published_ns)
            flight.batch.hops += message.hops

    def _publish(self, event: TraceEvent) -> None:
        if not self.batches or self.batches[-1].messages == self._batch_messages:
            self.batches.append(Batch())
        batch = self.batches[-1]
        due = 0
        for topic in event.topics or ():
            due |= self._subscribers.get(topic, 0)
        due &= ~(1 << event.node)
        batch.messages += 1
        batch.due += due.bit_count()
        assert event.message_id is not None, "publications have one"
        self._flights[event.message_id] = Flight(event.ts_ns, due, batch)

    def _duplicate(self, event: TraceEvent) -> None:
        if (flight := self._flights.get(event.message_id or 0)) is not None:
            flight.batch.duplicates += 1

    def _relay(self, event: TraceEvent) -> None:
        if (flight := self._flights.get(event.message_id or 0)) is not None:
            flight.batch.relays += 1

    def _relink(self, event: TraceEvent) -> None:
        self.changed_ns = event.ts_ns

    def _join(self, event: TraceEvent) -> None:
        if event.reason is not None:
            self.joined_ns[event.node] = event.ts_ns
            self.changes += 1
        for topic in event.topics or ():
            self._subscribers[topic] = self._subscribers.get(topic, 0) | 1 << event.node

    def _leave(self, event: TraceEvent) -> None:
        self.changes += event.reason is not None
        for topic in event.topics or ():
            self._subscribers[topic] = self._subscribers.get(topic, 0) & ~(1 << event.node)


def _by_topic(interests: Interests) -> dict[int, Bitset]:
    nodes: dict[int, list[int]] = {}
    for node, topics in enumerate(interests):
        for topic in topics:
            nodes.setdefault(topic, []).append(node)
    return {topic: bitset(subscribers) for topic, subscribers in nodes.items()}


def measure_deliveries(batches: Sequence[Batch]) -> Iterator[tuple[str, float]]:
    """The measures of some batches together; those that nothing can be said of are left out.

    Yields:
        (measure, value); delays in ms. The publisher's own copy is not due.
    """
    delays_ms = np.frombuffer(b"".join(batch.delays_ns.tobytes() for batch in batches), np.int64) / 1e6
    delivered = len(delays_ms)
    due = sum(batch.due for batch in batches)
    duplicates = sum(batch.duplicates for batch in batches)
    relays = sum(batch.relays for batch in batches)
    yield "messages", sum(batch.messages for batch in batches)
    if due:
        yield "delivery_ratio", delivered / due
    if delivered:
        yield "propagation_delay_ms_mean", float(delays_ms.mean())
        yield "propagation_delay_ms_p50", float(np.quantile(delays_ms, 0.5))
        yield "propagation_delay_ms_p99", float(np.quantile(delays_ms, 0.99))
        yield "hops_mean", sum(batch.hops for batch in batches) / delivered
        yield "duplicates_per_delivery", duplicates / delivered
    if copies := delivered + duplicates + relays:
        yield "relay_ratio", relays / copies
