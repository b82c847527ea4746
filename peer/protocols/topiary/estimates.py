"""How many messages were published on a topic: what a node cannot see, estimated from what it can.

Source: Topiary section IV-B (E_theta), which leaves the way to the application and names these two.
"""

from collections.abc import Iterable
from typing import TypeAlias

from peer.core.contract import NodeId, TopicId, publisher_of
from peer.core.frames import Data
from peer.core.payload import topic_sequence

MISSED_ALLOWANCE = 16
"""Messages that a publisher may always have sent since the last one that was heard from it."""

REMEMBERED = 4096
"""Publishers on a topic whose last number is remembered."""


class SequenceEstimate:
    """By the publishers' sequence numbers: from the last one heard before it observes to the last one heard then.

    Of a publisher that is new, the first one heard begins the count. A publisher that was not heard of in the epoch
    counts nothing, and payloads without a sequence number count as they come. A message on several topics counts once,
    on the first of them that the node subscribes to; its publisher numbers it on the first one of all.

    Nobody signs numbers, so any node on the way may forge them. A number is believed where it is no farther from the
    publisher's last one, up or down, than ``MISSED_ALLOWANCE`` plus twice the most that came in on the topic, from all
    publishers together, in this epoch or any earlier one: an epoch of which nothing came in does not make the losses in
    it unbelievable. A number beyond that counts as one message, and the count goes on from it: so one forged number
    changes nothing, and the next genuine one starts from the beginning.

    The last number is remembered of ``REMEMBERED`` publishers on each of the node's own topics; where one more is
    heard, the one that has been remembered longest makes way.
    """

    def __init__(self) -> None:
        self._latest: dict[TopicId, dict[NodeId, int]] = {}
        self._counts: dict[TopicId, int] = {}
        self._received: dict[TopicId, int] = {}
        self._most_received: dict[TopicId, int] = {}  # in an earlier epoch

    def see(self, copy: Data, interests: frozenset[TopicId]) -> bool:
        """Note the first copy of a message, at a node with these interests; return whether its number is believed."""
        first = copy.topics[0]
        topic = next((topic for topic in copy.topics if topic in interests), None)
        if topic is None:
            return True
        self._received[topic] = self._received.get(topic, 0) + 1
        step = self._advance(copy) if first == topic else 1
        # Of another topic's numbers it is not known which of those that are missing were on this one.
        self._counts[topic] = self._counts.get(topic, 0) + (1 if step is None else step)
        return step is not None

    def pass_over(self, copy: Data, interests: frozenset[TopicId]) -> bool:
        """Note a copy while nothing is observed: its message is neither counted nor missed. Return as ``see``."""
        return copy.topics[0] not in interests or self._advance(copy) is not None

    def _advance(self, copy: Data) -> int | None:
        """Remember the number; how far it is beyond the publisher's last one, 1 where that cannot be told.

        None: the number is not believed.
        """
        topic, sequence = copy.topics[0], topic_sequence(copy.payload)
        if sequence is None:
            return 1
        heard, publisher = self._latest.setdefault(topic, {}), publisher_of(copy.message_id)
        if publisher not in heard and len(heard) == REMEMBERED:
            del heard[next(iter(heard))]
        latest = heard.get(publisher, sequence - 1)
        step = sequence - latest
        believed = abs(step) <= self._most(topic)
        heard[publisher] = max(sequence, latest) if believed else sequence
        return max(step, 0) if believed else None  # a late one is in the gap that a later one opened

    def _most(self, topic: TopicId) -> int:
        """How many messages a publisher can have sent since the last one that was heard from it."""
        return MISSED_ALLOWANCE + 2 * max(self._received.get(topic, 0), self._most_received.get(topic, 0))

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        """The messages published on each of these topics in the epoch, whose observed part lasted ``span_ns``."""
        return {topic: float(self._counts.get(topic, 0)) for topic in topics}

    def turn_over(self) -> None:
        """Begin another epoch: reset the counts; what was heard last is remembered."""
        self._counts.clear()
        for topic, received in self._received.items():
            self._most_received[topic] = max(received, self._most_received.get(topic, 0))
        self._received.clear()


class RateEstimate:
    """By a known publication rate of every topic. The methods are those of ``SequenceEstimate``."""

    def __init__(self, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s

    def see(self, copy: Data, interests: frozenset[TopicId]) -> bool:
        """Nothing is learned from messages."""
        return True

    def pass_over(self, copy: Data, interests: frozenset[TopicId]) -> bool:
        """Nothing is learned from messages."""
        return True

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        return dict.fromkeys(topics, self._rate_per_s * span_ns / 1e9)

    def turn_over(self) -> None:
        """Nothing is kept."""


Estimate: TypeAlias = SequenceEstimate | RateEstimate
