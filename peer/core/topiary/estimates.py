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

    def see(self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes) -> None:
        """A message came in for the first time."""

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        """The messages published on each of these topics in the epoch, whose observed part lasted ``span_ns``."""
        ...

    def turn_over(self) -> None:
        """Another epoch begins."""


class SequenceEstimate:
    """By the publishers' sequence numbers: from the last one heard before the epoch to the last one heard in it.

    Of a publisher that is new, the first one heard begins the count. Who was not heard of in the epoch counts nothing,
    and payloads without a sequence number count as they come.
    """

    def __init__(self) -> None:
        self._latest: dict[TopicId, dict[NodeId, int]] = {}
        self._counts: dict[TopicId, int] = {}

    def see(self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes) -> None:
        """See ``Estimate``."""
        topic = topics[0]
        sequence = topic_sequence(payload)
        publisher = publisher_of(identifier)
        heard = self._latest.get(topic)
        if heard is None:
            heard = self._latest[topic] = {}
        latest = heard.get(publisher)
        # A late one is in the gap that a later one opened.
        step = 1 if sequence is None or latest is None else max(sequence - latest, 0)
        self._counts[topic] = self._counts.get(topic, 0) + step
        if sequence is not None:
            heard[publisher] = sequence if latest is None else max(sequence, latest)

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

    def see(self, topics: tuple[TopicId, ...], identifier: MessageId, payload: bytes) -> None:
        """Nothing is learned from messages."""

    def published(self, topics: Iterable[TopicId], span_ns: int) -> dict[TopicId, float]:
        """See ``Estimate``."""
        return dict.fromkeys(topics, self._rate_per_s * span_ns / 1e9)

    def turn_over(self) -> None:
        """Nothing is kept."""
