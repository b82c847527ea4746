"""How many messages were published on a topic: what a node cannot see, estimated from what it can.

Source: Topiary section IV-B (E_theta), which leaves the way to the application and names these two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from peer.core.contract import MessageId, NodeId, TopicId, publisher_of
from peer.core.payload import topic_sequence


class Estimate(Protocol):
    """An estimate of the messages published on each topic in an epoch."""

    def see(
        self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes, interests: frozenset[TopicId]
    ) -> None:
        """A message came in for the first time; ``interests``: the topics that the node subscribes to."""

    def pass_over(self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes) -> None:
        """A copy came in while nothing is observed: its message is neither counted nor missed."""

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        """The messages published on each of these topics in the epoch, whose observed part lasted ``span_ns``."""
        ...

    def turn_over(self) -> None:
        """Another epoch begins."""


class SequenceEstimate:
    """By the publishers' sequence numbers: from the last one heard before it observes to the last one heard then.

    Of a publisher that is new, the first one heard begins the count. Who was not heard of in the epoch counts nothing,
    and payloads without a sequence number count as they come. A message on several topics counts once, on the first of
    them that the node subscribes to; its publisher numbers it on the first one of all.
    """

    def __init__(self) -> None:
        self._latest: dict[TopicId, dict[NodeId, int]] = {}
        self._counts: dict[TopicId, int] = {}

    def see(
        self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes, interests: frozenset[TopicId]
    ) -> None:
        """See ``Estimate``."""
        step = self._advance(topics[0], identifier, payload)
        topic = next((topic for topic in topics if topic in interests), topics[0])
        # Of another topic's numbers it is not known which of those that are missing were on this one.
        self._counts[topic] = self._counts.get(topic, 0) + (step if topic == topics[0] else 1)

    def pass_over(self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes) -> None:
        """See ``Estimate``."""
        self._advance(topics[0], identifier, payload)

    def _advance(self, topic: TopicId, identifier: MessageId, payload: bytes) -> int:
        """Remember the number; how far it is beyond the publisher's last one, 1 where that cannot be told."""
        sequence = topic_sequence(payload)
        if sequence is None:
            return 1
        publisher = publisher_of(identifier)
        heard = self._latest.setdefault(topic, {})
        latest = heard.get(publisher, sequence - 1)
        heard[publisher] = max(sequence, latest)
        return max(sequence - latest, 0)  # a late one is in the gap that a later one opened

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        """See ``Estimate``."""
        return {topic: float(self._counts.get(topic, 0)) for topic in topics}

    def turn_over(self) -> None:
        """Count anew; what was heard last is remembered."""
        self._counts.clear()


class RateEstimate:
    """By a known publication rate of every topic."""

    def __init__(self, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s

    def see(
        self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes, interests: frozenset[TopicId]
    ) -> None:
        """Nothing is learned from messages."""

    def pass_over(self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes) -> None:
        """Nothing is learned from messages."""

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        """See ``Estimate``."""
        return dict.fromkeys(topics, self._rate_per_s * span_ns / 1e9)

    def turn_over(self) -> None:
        """Nothing is kept."""
