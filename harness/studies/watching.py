"""Watches a simulation: the deliveries of its messages, and the last change of the overlay."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from harness.studies.measures import Value
from peer.core.bitset import Bitset, bitset
from peer.core.contract import Message, MessageId, NodeId, TopicId
from peer.core.schedule import Change, Crash, Join, Leave, Population, Subscribe, Unsubscribe
from peer.trace import CRASHED, TraceEvent

QUANTILES = tuple(place / 50 for place in range(51))
"""The shares of nodes at which the distribution of scores is recorded."""


LATEST_NS = 600_000_000_000
"""How long a message is watched: ten hops through nodes with the longest processing time, one minute. Later copies do
not count, and only the batch of the message is kept."""


class Batch:
    """Consecutive messages: their expected deliveries and those that happened."""

    __slots__ = ("delays_ns", "due", "duplicates", "hops", "messages", "relays", "topics")

    def __init__(self) -> None:
        self.messages = self.due = self.hops = self.duplicates = self.relays = 0
        self.delays_ns = array("q")
        self.topics: dict[TopicId, TopicBatch] = {}


class TopicBatch(Struct):
    """The messages of a batch with the same first topic."""

    due: int = 0
    delivered: int = 0
    delay_ns: int = 0


class Flight(Struct):
    """A message in flight. ``due``: the honest subscribers at its publication, except the publisher.

    Nodes to which it was delivered are removed.
    """

    published_ns: int
    due: Bitset
    batch: Batch
    topic: TopicBatch


class Watch:
    """The observer of a study's run.

    Args:
        population: the population at the start; updated with the traced joins, leaves and changes of interests.
        adversaries: nodes whose copies, changes and scores do not count.
        batch_messages: number of messages in a batch; None = all of them.
        skip_messages: number of messages at the start of each batch that do not count.

    Attributes:
        changed_ns: when a logical link last began or ended.
        joined_ns: when each node last joined during the run.
        changes: joins, leaves and crashes of honest nodes so far.
        batches: the batches in order of publication.
        scores: scores of the neighbours that honest nodes kept, by epoch.
        concluded: conclusions of asking adversaries so far: asker -> topic -> nodes.
        ever: every topic's subscribers so far, including former ones.
    """

    frames = False

    def __init__(
        self, population: Population, adversaries: Bitset, batch_messages: int | None, skip_messages: int = 0
    ) -> None:
        self.changed_ns = 0
        self.joined_ns: dict[NodeId, int] = {}
        self.changes = 0
        self.batches: list[Batch] = []
        self.scores: dict[int, list[float]] = {}
        self._adversaries = adversaries
        self._batch_messages = batch_messages
        self._skip_messages = skip_messages
        self._published = 0
        self._flights: dict[MessageId | None, Flight] = {}
        self._order: deque[MessageId] = deque()  # messages in flight, the oldest first
        self.concluded: dict[NodeId, dict[TopicId, Bitset]] = {}
        self._population = population
        self._subscribers = _by_topic(population)
        self.ever = dict(self._subscribers)
        self._handlers: dict[str, Callable[[TraceEvent], None]] = {
            "publish": self._publish,
            "duplicate": self._duplicate,
            "relay": self._relay,
            "graft": self._relink,
            "prune": self._relink,
            "join": self._change,
            "leave": self._change,
            "epoch": self._end_epoch,
            "disclose": self._disclose,
        }

    def trace(self, event: TraceEvent) -> None:
        """See ``Observer``."""
        handler = self._handlers.get(event.event)
        if handler is not None:
            handler(event)

    def deliver(self, now_ns: int, node: NodeId, message: Message) -> None:
        """Record an expected delivery."""
        flight = self._flights.get(message.message_id)
        if flight is not None and flight.due >> node & 1:
            flight.due ^= 1 << node
            delay_ns = now_ns - flight.published_ns
            flight.batch.delays_ns.append(delay_ns)
            flight.batch.hops += message.hops
            flight.topic.delivered += 1
            flight.topic.delay_ns += delay_ns

    def _publish(self, event: TraceEvent) -> None:
        place = self._published % self._batch_messages if self._batch_messages else self._published
        self._published += 1
        if place == 0:
            self.batches.append(Batch())
        if place < self._skip_messages:
            return
        batch = self.batches[-1]
        due = 0
        assert event.topics and event.message_id is not None, "publications have both"
        for topic in event.topics:
            due |= self._subscribers.get(topic, 0)
        due &= ~(self._adversaries | 1 << event.node)
        batch.messages += 1
        batch.due += due.bit_count()
        of_topic = batch.topics.setdefault(event.topics[0], TopicBatch())
        of_topic.due += due.bit_count()
        self._flights[event.message_id] = Flight(event.ts_ns, due, batch, of_topic)
        self._order.append(event.message_id)
        while self._flights[self._order[0]].published_ns < event.ts_ns - LATEST_NS:
            del self._flights[self._order.popleft()]

    def _duplicate(self, event: TraceEvent) -> None:
        if batch := self._batch_of_honest_copy(event):
            batch.duplicates += 1

    def _relay(self, event: TraceEvent) -> None:
        if batch := self._batch_of_honest_copy(event):
            batch.relays += 1

    def _batch_of_honest_copy(self, event: TraceEvent) -> Batch | None:
        flight = self._flights.get(event.message_id)
        return None if flight is None or self._adversaries >> event.node & 1 else flight.batch

    def _relink(self, event: TraceEvent) -> None:
        self.changed_ns = event.ts_ns

    def _change(self, event: TraceEvent) -> None:
        change, bit = _observed_change(event), 1 << event.node
        if isinstance(change, Join):
            self.joined_ns[event.node] = event.ts_ns
        if isinstance(change, Join | Leave | Crash):
            self.changes += not self._adversaries & bit
        begun, ended = self._population.apply(change)
        for topic in begun:
            self._subscribers[topic] = self._subscribers.get(topic, 0) | bit
            self.ever[topic] = self.ever.get(topic, 0) | bit
        for topic in ended:
            self._subscribers[topic] &= ~bit

    def _end_epoch(self, event: TraceEvent) -> None:
        assert event.epoch is not None and event.score is not None, "epochs that end have both"
        if not self._adversaries >> event.node & 1:
            self.scores.setdefault(event.epoch, []).append(event.score)

    def _disclose(self, event: TraceEvent) -> None:
        assert event.peer is not None and event.topics, "conclusions have both"
        topics = self.concluded.setdefault(event.node, {})
        for topic in event.topics:
            topics[topic] = topics.get(topic, 0) | 1 << event.peer


def _observed_change(event: TraceEvent) -> Change:
    """Return the change of a ``join`` or ``leave`` event."""
    at_ns, node, topics = event.ts_ns, event.node, event.topics or ()
    if event.event == "join":
        return Subscribe(at_ns, node, topics) if event.reason is None else Join(at_ns, node, topics)
    if event.reason is None:
        return Unsubscribe(at_ns, node, topics)
    return Crash(at_ns, node) if event.reason == CRASHED else Leave(at_ns, node)


def _by_topic(population: Population) -> dict[TopicId, Bitset]:
    nodes: dict[TopicId, list[NodeId]] = {}
    for node, topics in population.interests.items():
        for topic in sorted(topics):
            nodes.setdefault(topic, []).append(node)
    return {topic: bitset(subscribers) for topic, subscribers in nodes.items()}


def measure_deliveries(batches: Sequence[Batch]) -> Iterator[Value]:
    """Yield the measures of some batches together; measures without a value are left out.

    Yields:
        Values; delays in ms. The publisher's own copy is not expected.
    """
    delays_ms = np.frombuffer(b"".join(batch.delays_ns.tobytes() for batch in batches), np.int64) / 1e6
    delivered = len(delays_ms)
    due = sum(batch.due for batch in batches)
    duplicates = sum(batch.duplicates for batch in batches)
    relays = sum(batch.relays for batch in batches)
    yield "messages", None, sum(batch.messages for batch in batches)
    if due:
        yield "delivery_ratio", None, delivered / due
    if delivered:
        yield "propagation_delay_ms_mean", None, float(delays_ms.mean())
        yield "propagation_delay_ms_p50", None, float(np.quantile(delays_ms, 0.5))
        yield "propagation_delay_ms_p99", None, float(np.quantile(delays_ms, 0.99))
        yield "hops_mean", None, sum(batch.hops for batch in batches) / delivered
        yield "duplicates_per_delivery", None, duplicates / delivered
    if copies := delivered + duplicates + relays:
        yield "relay_ratio", None, relays / copies
    yield from _measure_topics(batches)


def _measure_topics(batches: Sequence[Batch]) -> Iterator[Value]:
    for topic in sorted({topic for batch in batches for topic in batch.topics}):
        parts = [batch.topics[topic] for batch in batches if topic in batch.topics]
        due, delivered = sum(part.due for part in parts), sum(part.delivered for part in parts)
        if due:
            yield "topic_delivery_ratio", topic, delivered / due
        if delivered:
            yield "topic_delay_ms_mean", topic, sum(part.delay_ns for part in parts) / delivered / 1e6


def measure_scores(scores: Sequence[float]) -> Iterator[Value]:
    """Yield the mean of at least one node's scores, and the sorted scores: one value per 50th of the nodes.

    Source: Topiary section V-A, performance measures 3 and 4.
    """
    yield "score_mean", None, float(np.mean(scores))
    for share in QUANTILES:
        yield "score_quantiles", share, float(np.quantile(scores, share))
