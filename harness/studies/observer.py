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
from metrics.facts.groups import Rate, count_sets, predict
from metrics.measures.deliveries import Deliveries, TopicDeliveries
from metrics.measures.groups import NEWCOMER_S
from metrics.measures.measure import Values
from peer.core.addressing.keywords import find_members
from peer.core.bitset import Bitset, bitset
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
        "last_hops",
        "messages",
        "number",
        "reached",
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
        self.reached = self.last_hops = 0  # messages with a delivery; the most links of one, over these messages
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
    publisher was settled. ``last_hop``: the most links that a delivered copy has crossed so far.
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
    last_hop: int = 0


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
        joined_ns: when each node last joined during the run.
        changes: joins, leaves and crashes of honest nodes so far.
        batches: the batches in order of publication, those without messages left out.
        scores: scores of the neighbours that honest nodes kept, by epoch.
        concluded: conclusions of asking adversaries so far: asker -> topic -> nodes.
        ever: every topic's subscribers so far, including former ones.
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
        self.joined_ns: dict[NodeId, int] = {}
        self.changes = 0
        self.batches: list[Batch] = []
        self.scores: dict[int, list[float]] = {}
        self._adversaries = adversaries
        self._batch_messages = batch_messages
        self._skip_messages = skip_messages
        self._settle_ns = settle_ns
        self._settling: Bitset = 0  # nodes that have joined, until they are settled
        self._joins: deque[tuple[int, NodeId]] = deque()  # their joins, the oldest first
        self._window_ns = window_ns
        self._zero_ns = zero_ns
        self._expressions = expressions
        self._delay_ns = delay_ns
        self._rate = false_positive_rate
        self._carries = carries
        self._up = bitset(population.interests)
        self._published = 0
        self.flights: dict[MessageId | None, Flight] = {}
        self._order: deque[MessageId] = deque()  # messages in flight, the oldest first
        self.concluded: dict[NodeId, dict[TopicId, Bitset]] = {}
        self._subscribers = _by_topic(population)
        self.ever = dict(self._subscribers)
        self._handlers: dict[str, Callable[[TraceEvent], None]] = {
            "publish": self._publish,
            "duplicate": self._count_copy,
            "relay": self._count_copy,
            "graft": self._relink,
            "prune": self._relink,
            "join": self._join,
            "leave": self._leave,
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
            if message.hops > flight.last_hop:
                flight.batch.reached += not flight.last_hop
                flight.batch.last_hops += message.hops - flight.last_hop
                flight.last_hop = message.hops
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
        due = members = self._members(event.message_id, event.topics)
        relays = own  # until it delivers its own message
        unsettled = self._unsettled(event.ts_ns)
        settled = not unsettled & own
        due &= ~(self._adversaries | unsettled | own)
        batch.messages += 1
        batch.due += due.bit_count()
        if settled:
            batch.settled_due += due.bit_count()
        of_topic = batch.topics.setdefault(event.topics[0], TopicDeliveries())
        of_topic.expected += due.bit_count()
        group = None
        if (expression := self._expressions.get(event.message_id)) is not None:
            group = WatchedMessage.begin(expression, event.node, members, self._up, ~self._adversaries)
            group.predicted = self._predict(group)
            batch.groups.append(group)
        carried = CarriedMessage(event.node, due) if self._carries else None
        if carried is not None:
            batch.carried.append(carried)
        self.flights[event.message_id] = Flight(event.ts_ns, due, due, relays, settled, batch, of_topic, group, carried)
        self._order.append(event.message_id)
        while self.flights[self._order[0]].published_ns < event.ts_ns - LATEST_NS:
            del self.flights[self._order.popleft()]

    def _predict(self, message: WatchedMessage) -> float | None:
        """Return how many false positives the protocol predicts of a message; None = it predicts nothing."""
        if self._rate is None:
            return None
        others = count_sets(message.others, self._subscribers.values())
        return predict(self._rate, message.expression, others, self._subscribers)

    def _members(self, message: MessageId, topics: Sequence[TopicId]) -> Bitset:
        """Return the nodes that a message is for if it is published now."""
        expression = self._expressions.get(message)
        if expression is not None:
            return find_members(expression, self._subscribers)
        members = 0
        for topic in topics:
            members |= self._subscribers.get(topic, 0)
        return members

    def _unsettled(self, now_ns: int) -> Bitset:
        """Return the nodes that have joined less than ``settle_ns`` ago."""
        while self._joins and self._joins[0][0] <= now_ns - self._settle_ns:
            joined_ns, node = self._joins.popleft()
            if self.joined_ns[node] == joined_ns:
                self._settling &= ~(1 << node)
        return self._settling

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
            flight.group.receive(event, self._subscribers, self._delay_ns(event.peer, event.node))
            flight.batch.count_sent(event.peer)

    def _relink(self, event: TraceEvent) -> None:
        self.changed_ns = event.ts_ns

    def _join(self, event: TraceEvent) -> None:
        if event.reason == JOINED:
            self.joined_ns[event.node] = event.ts_ns
            self._settling |= 1 << event.node
            self._joins.append((event.ts_ns, event.node))
            self._up |= 1 << event.node
        self._count_change(event)
        for topic in event.topics or ():
            self._subscribers[topic] = self._subscribers.get(topic, 0) | 1 << event.node
            self.ever[topic] = self.ever.get(topic, 0) | 1 << event.node
        if event.reason == JOINED and self._expressions and not self._adversaries >> event.node & 1:
            self._meet_newcomer(event)

    def _meet_newcomer(self, event: TraceEvent) -> None:
        """Inform the latest messages with expressions of a node that has joined."""
        for message in reversed(self._order):
            flight = self.flights[message]
            if flight.published_ns < event.ts_ns - NEWCOMER_S * 1_000_000_000:
                break
            if flight.group is not None:
                flight.group.meet(event.node, self._subscribers)

    def _leave(self, event: TraceEvent) -> None:
        if event.reason is not None:
            self._up &= ~(1 << event.node)
        self._count_change(event)
        for topic in event.topics or ():
            self._subscribers[topic] = self._subscribers.get(topic, 0) & ~(1 << event.node)

    def _count_change(self, event: TraceEvent) -> None:
        """Count an event with which a node joins or leaves; one without a reason changes only the node's topics."""
        if event.reason is not None:
            self.changes += not self._adversaries >> event.node & 1

    def _end_epoch(self, event: TraceEvent) -> None:
        assert event.epoch is not None and event.score is not None, "epochs that end have both"
        if not self._adversaries >> event.node & 1:
            self.scores.setdefault(event.epoch, []).append(event.score)

    def _disclose(self, event: TraceEvent) -> None:
        assert event.peer is not None and event.topics, "conclusions have both"
        topics = self.concluded.setdefault(event.node, {})
        for topic in event.topics:
            topics[topic] = topics.get(topic, 0) | 1 << event.peer


def _by_topic(population: Population) -> dict[TopicId, Bitset]:
    nodes: dict[TopicId, list[NodeId]] = {}
    for node, topics in population.interests.items():
        for topic in sorted(topics):
            nodes.setdefault(topic, []).append(node)
    return {topic: bitset(subscribers) for topic, subscribers in nodes.items()}


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
        reached=sum(batch.reached for batch in batches),
        last_hops=sum(batch.last_hops for batch in batches),
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
