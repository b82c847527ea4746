"""Estimates of the number of messages published on a topic, including those that a node did not receive.

Source: Topiary section IV-B (E_theta), which leaves the method to the application and names these two.
"""

from collections.abc import Iterable
from typing import TypeAlias

from peer.core.contract import NodeId, TopicId, publisher_of
from peer.core.frames import Data
from peer.core.payload import topic_sequence

MISSED_ALLOWANCE = 16
"""Messages that a publisher may always have sent since the last one that the node received from it."""

REMEMBERED = 4096
"""Most publishers per topic whose latest number a node remembers."""


class SequenceEstimate:
    """An estimate from the publishers' sequence numbers.

    For each publisher, it is the difference between the latest number received before the node observes and the latest
    number received while it observes. For a new publisher, the count begins with its first number received. A publisher
    without a received message in the epoch adds nothing. A message without a sequence number counts as one. A message
    on several topics counts once, on the first of them that the node subscribes to; its publisher numbers it on its
    first topic.

    Numbers are not signed, so any node on the way may forge them. A node accepts a number if it differs from the
    publisher's latest one by at most ``MISSED_ALLOWANCE`` plus twice the largest number of messages that arrived on the
    topic from all publishers in an epoch so far. So the losses in an epoch in which nothing arrived stay acceptable. A
    message with any other number counts as one, and the count continues from that number. So a forged number adds no
    more than its own message, and the next genuine number begins a new count.

    A node remembers the latest number of ``REMEMBERED`` publishers on each of its own topics. One more publisher
    replaces the one that has been remembered longest.
    """

    def __init__(self) -> None:
        self._latest: dict[TopicId, dict[NodeId, int]] = {}
        self._counts: dict[TopicId, int] = {}
        self._received: dict[TopicId, int] = {}
        self._most_received: dict[TopicId, int] = {}  # in an earlier epoch

    def see(self, copy: Data, interests: frozenset[TopicId]) -> bool:
        """Note the first copy of a message at a node with these interests. Return whether its number is accepted."""
        first = copy.topics[0]
        topic = next((topic for topic in copy.topics if topic in interests), None)
        if topic is None:
            return True
        self._received[topic] = self._received.get(topic, 0) + 1
        step = self._advance(copy) if first == topic else 1
        # The numbers of another topic do not show which of the missing messages were on this topic, too.
        self._counts[topic] = self._counts.get(topic, 0) + (1 if step is None else step)
        return step is not None

    def pass_over(self, copy: Data, interests: frozenset[TopicId]) -> bool:
        """Note a copy while the node does not observe: its message does not count. Return the same as ``see``."""
        return copy.topics[0] not in interests or self._advance(copy) is not None

    def _advance(self, copy: Data) -> int | None:
        """Remember a copy's number and return how far it is beyond the publisher's latest one.

        Returns:
            1 if the copy has no number; None if the number is not accepted.
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
        return max(step, 0) if believed else None  # a late message was counted when a later number left a gap

    def _most(self, topic: TopicId) -> int:
        """Return how many messages a publisher may have sent since the latest one that the node received from it."""
        return MISSED_ALLOWANCE + 2 * max(self._received.get(topic, 0), self._most_received.get(topic, 0))

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        """Return the number of messages published on each topic while the node observed, for ``span_ns``."""
        return {topic: float(self._counts.get(topic, 0)) for topic in topics}

    def turn_over(self) -> None:
        """Begin another epoch: reset the counts, but keep the latest numbers."""
        self._counts.clear()
        for topic, received in self._received.items():
            self._most_received[topic] = max(received, self._most_received.get(topic, 0))
        self._received.clear()


class RateEstimate:
    """An estimate from a known publication rate of every topic. Its methods are those of ``SequenceEstimate``."""

    def __init__(self, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s

    def see(self, copy: Data, interests: frozenset[TopicId]) -> bool:
        """Return True: the estimate does not use messages."""
        return True

    def pass_over(self, copy: Data, interests: frozenset[TopicId]) -> bool:
        """Return True: the estimate does not use messages."""
        return True

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        return dict.fromkeys(topics, self._rate_per_s * span_ns / 1e9)

    def turn_over(self) -> None:
        """Do nothing: the estimate has no state."""


Estimate: TypeAlias = SequenceEstimate | RateEstimate
