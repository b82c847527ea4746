"""Watches a simulation: the deliveries of its messages, and the last change of the overlay."""

from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from msgspec import Struct

from harness.studies.carried import CarriedMessage
from harness.studies.groups import Delay, WatchedMessage
from metrics.facts.disclosures import Conclusions
from metrics.facts.groups import Rate
from metrics.facts.population import CHANGES, TracedPopulation
from metrics.measures.deliveries import Deliveries, TopicDeliveries
from metrics.measures.groups import NEWCOMER_S
from metrics.measures.measure import Values
from peer.core.bitset import Bitset
from peer.core.contract import Message, MessageId, NodeId, TopicId
from peer.core.schedule import Population
from peer.trace import JOINED, TraceEvent

LATEST_NS = 600_000_000_000
"""How long a message is watched: ten hops through nodes with the longest processing time, one minute. Later copies do
not count, and only the batch of the message is kept."""

NO_EXPRESSIONS: Final[Mapping[MessageId | None, str]] = MappingProxyType({})


class Batch:
    """Consecutive messages: their expected deliveries and those that happened, and their copies by node."""

    __slots__ = (
        "at_relay",
        "carried",
        "copies",
        "delays_ns",
        "due",
        "duplicates",
        "groups",
        "hops",
        "messages",
        "number",
        "relays",
        "repeated",
        "sent",
        "settled_delivered",
        "settled_due",
        "topics",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.messages = self.due = self.duplicates = self.relays = self.repeated = 0
        self.settled_due = self.settled_delivered = 0  # of the messages of settled publishers
        self.delays_ns = array("q")
        self.hops = array("B")
        self.copies = array("I")
        self.at_relay = array("I")
        self.topics: dict[TopicId, TopicDeliveries] = {}
        self.groups: list[WatchedMessage] = []  # the messages with expressions
        self.carried: list[CarriedMessage] = []  # every message, if copies are watched on their way
        self.sent = array("I")  # of these by node: how many copies it sent

    def count_copy(self, node: NodeId, at_relay: bool) -> None:
        """Count a copy that a node received."""
        if node >= len(self.copies):
            _lengthen(node, self.copies, self.at_relay)
        self.copies[node] += 1
        self.at_relay[node] += at_relay

    def count_sent(self, node: NodeId) -> None:
        """Count a copy that a node sent."""
        _lengthen(node, self.sent)
        self.sent[node] += 1


def _lengthen(node: NodeId, *counts: "array[int]") -> None:
    """Lengthen arrays of counts by node so that they have a count of this node."""
    for each in counts:
        each.extend([0] * (node + 1 - len(each)))


class Flight(Struct):
    """A message in flight.

    ``asked``: the honest nodes that it is for, except the publisher. ``due``: those to which it was not yet delivered.
    ``relays``: the nodes that relayed it, or published it without delivering it to themselves. ``settled``: whether its
    publisher was settled.
    """

    published_ns: int
    asked: Bitset
    due: Bitset
    relays: Bitset
    settled: bool
    batch: Batch
    topic: TopicDeliveries
    group: WatchedMessage | None = None
    carried: CarriedMessage | None = None


class Watch:
    """The observer of a study's run.

    Args:
        population: the nodes that are up at the start, with their topics.
        adversaries: nodes whose copies, changes and scores do not count.
        batch_messages: number of messages in a batch; None = all of them.
        skip_messages: number of messages at the start of each batch that do not count.
        settle_ns: how long no deliveries are expected of a node after it has joined during the run. Then it is settled.
        window_ns: length of the span of publication time of a batch, instead of ``batch_messages``.
        zero_ns: the instant at which the first of these spans begins.
        expressions: of the messages that have one.
        delay_ns: one-way delay of each directed pair, needed with expressions or ``carries``.
        carries: whether the way of every copy is kept.
        false_positive_rate: what the protocol predicts of a node; None = nothing.

    Attributes:
        changed_ns: when a logical link last began or ended.
        population: the nodes that are up now, with their topics.
        changes: joins, leaves and crashes of honest nodes so far.
        batches: the batches in order of publication, those without messages left out.
        scores: scores of the neighbours that honest nodes kept, by epoch.
        conclusions: what adversaries that ask have concluded so far.
    """

    frames = False

    def __init__(
        self,
        population: Population,
        adversaries: Bitset,
        batch_messages: int | None,
        skip_messages: int = 0,
        *,
        settle_ns: int = 0,
        window_ns: int | None = None,
        zero_ns: int = 0,
        expressions: Mapping[MessageId | None, str] = NO_EXPRESSIONS,
        delay_ns: Delay = lambda source, destination: 0,
        false_positive_rate: Rate | None = None,
        carries: bool = False,
    ) -> None:
        self.changed_ns = 0
        self.population = TracedPopulation(population.interests, settle_ns)
        self.changes = 0
        self.batches: list[Batch] = []
        self.scores: dict[int, list[float]] = {}
        self._adversaries = adversaries
        self._batch_messages = batch_messages
        self._skip_messages = skip_messages
        self._window_ns = window_ns
        self._zero_ns = zero_ns
        self._expressions = expressions
        self._delay_ns = delay_ns
        self._rate = false_positive_rate
        self._carries = carries
        self._published = 0
        self.flights: dict[MessageId | None, Flight] = {}
        self._order: deque[MessageId] = deque()  # messages in flight, the oldest first
        self.conclusions = Conclusions()
        self._handlers: dict[str, Callable[[TraceEvent], None]] = {
            "publish": self._publish,
            "duplicate": self._count_copy,
            "relay": self._count_copy,
            "graft": self._relink,
            "prune": self._relink,
            "join": self._join,
            "leave": self._change,
            "epoch": self._end_epoch,
            "disclose": self._disclose,
        }
        if expressions or carries:
            self._handlers["deliver"] = self._receive

    def trace(self, event: TraceEvent) -> None:
        handler = self._handlers.get(event.event)
        if handler is not None:
            handler(event)

    def deliver(self, now_ns: int, node: NodeId, message: Message) -> None:
        flight = self.flights.get(message.message_id)
        if flight is None or self._adversaries >> node & 1:
            return
        if message.hops:
            flight.batch.count_copy(node, at_relay=False)
        else:
            flight.relays &= ~(1 << node)
        if flight.due >> node & 1:
            flight.due ^= 1 << node
            delay_ns = now_ns - flight.published_ns
            flight.batch.delays_ns.append(delay_ns)
            flight.batch.hops.append(message.hops)
            flight.batch.settled_delivered += flight.settled
            flight.topic.delivered += 1
            flight.topic.delay_ns += delay_ns
        elif flight.asked >> node & 1:
            flight.batch.repeated += 1

    def _publish(self, event: TraceEvent) -> None:
        number, place = self._place(event.ts_ns)
        self._published += 1
        if not self.batches or self.batches[-1].number < number:
            self.batches.append(Batch(number))
        if place < self._skip_messages:
            return
        batch = self.batches[-1]
        own = 1 << event.node
        assert event.topics and event.message_id is not None, "publications have both"
        expression = self._expressions.get(event.message_id)
        unsettled = self.population.find_unsettled(event.ts_ns)
        settled = not unsettled & own
        due = self.population.find_audience(event.topics, expression) & ~(self._adversaries | unsettled | own)
        relays = own  # until it delivers its own message
        batch.messages += 1
        batch.due += due.bit_count()
        if settled:
            batch.settled_due += due.bit_count()
        of_topic = batch.topics.setdefault(event.topics[0], TopicDeliveries())
        of_topic.expected += due.bit_count()
        group = None
        if expression is not None:
            group = WatchedMessage.begin(expression, event.node, self.population, ~self._adversaries, self._rate)
            batch.groups.append(group)
        carried = CarriedMessage(event.node, due) if self._carries else None
        if carried is not None:
            batch.carried.append(carried)
        self.flights[event.message_id] = Flight(event.ts_ns, due, due, relays, settled, batch, of_topic, group, carried)
        self._order.append(event.message_id)
        while self.flights[self._order[0]].published_ns < event.ts_ns - LATEST_NS:
            del self.flights[self._order.popleft()]

    def _place(self, now_ns: int) -> tuple[int, int]:
        """Return the number of the batch of a message that is published now, and the message's place there."""
        if self._window_ns is not None:
            return (now_ns - self._zero_ns) // self._window_ns, 0
        return divmod(self._published, self._batch_messages) if self._batch_messages else (0, self._published)

    def _count_copy(self, event: TraceEvent) -> None:
        flight = self.flights.get(event.message_id)
        if flight is None or self._adversaries >> event.node & 1:
            return
        if event.event == "relay":
            flight.relays |= 1 << event.node
            flight.batch.relays += 1
        else:
            flight.batch.duplicates += 1
        flight.batch.count_copy(event.node, at_relay=bool(flight.relays >> event.node & 1))
        if flight.group is not None or flight.carried is not None:
            self._receive(event)

    def _receive(self, event: TraceEvent) -> None:
        """Take a copy of a message with an expression, or one whose way is kept."""
        flight = self.flights.get(event.message_id)
        if flight is None or event.peer is None or self._adversaries >> event.node & 1:
            return
        if flight.carried is not None:
            flight.carried.receive(event, self._delay_ns(event.peer, event.node))
        if flight.group is not None:
            flight.group.receive(event, self.population.subscribers, self._delay_ns(event.peer, event.node))
            flight.batch.count_sent(event.peer)

    def _relink(self, event: TraceEvent) -> None:
        self.changed_ns = event.ts_ns

    def _join(self, event: TraceEvent) -> None:
        self._change(event)
        if event.reason == JOINED and self._expressions and not self._adversaries >> event.node & 1:
            self._meet_newcomer(event)

    def _meet_newcomer(self, event: TraceEvent) -> None:
        """Inform the latest messages with expressions of a node that has joined."""
        for message in reversed(self._order):
            flight = self.flights[message]
            if flight.published_ns < event.ts_ns - NEWCOMER_S * 1_000_000_000:
                break
            if flight.group is not None:
                flight.group.meet(event.node, self.population.subscribers)

    def _change(self, event: TraceEvent) -> None:
        """Take an event with which a node joins or leaves, or changes its topics."""
        self.population.take(event)
        if event.reason in CHANGES:
            self.changes += not self._adversaries >> event.node & 1

    def _end_epoch(self, event: TraceEvent) -> None:
        assert event.epoch is not None and event.score is not None, "epochs that end have both"
        if not self._adversaries >> event.node & 1:
            self.scores.setdefault(event.epoch, []).append(event.score)

    def _disclose(self, event: TraceEvent) -> None:
        assert event.peer is not None and event.topics, "conclusions have both"
        self.conclusions.add(event.node, event.peer, event.topics)


def sum_up(batches: Sequence[Batch]) -> Deliveries:
    """Return the deliveries of some batches together. The publisher's own copy is not due."""
    delays_ns = np.frombuffer(b"".join(batch.delays_ns.tobytes() for batch in batches), np.int64)
    hops = np.frombuffer(b"".join(batch.hops.tobytes() for batch in batches), np.uint8)
    copies, at_relay = _add_up([batch.copies for batch in batches]), _add_up([batch.at_relay for batch in batches])
    topics: dict[TopicId, TopicDeliveries] = {}
    for batch in batches:
        for topic, part in batch.topics.items():
            whole = topics.setdefault(topic, TopicDeliveries())
            whole.expected += part.expected
            whole.delivered += part.delivered
            whole.delay_ns += part.delay_ns
    return Deliveries(
        messages=sum(batch.messages for batch in batches),
        expected=sum(batch.due for batch in batches),
        delivered=len(delays_ns),
        settled_expected=sum(batch.settled_due for batch in batches),
        settled_delivered=sum(batch.settled_delivered for batch in batches),
        delays_ms=delays_ns / 1e6,
        hops=hops,
        repeated=sum(batch.repeated for batch in batches),
        relays=sum(batch.relays for batch in batches),
        duplicates=sum(batch.duplicates for batch in batches),
        copies=copies[copies > 0],
        at_relay=at_relay[copies > 0],
        topics=dict(sorted(topics.items())),
    )


def _add_up(counts: "Sequence[array[int]]") -> Values:
    """Return the sums of the counts by node; an array may end early."""
    whole = np.zeros(max(map(len, counts), default=0), np.int64)
    for part in counts:
        whole[: len(part)] += np.frombuffer(part, np.uint32)
    return whole
