"""Who subscribes to what at one instant of the schedule."""

from __future__ import annotations

from bisect import bisect_left, insort

from harness.workload.interests import Interests
from peer.runtime.lifecycle import CRASH, JOIN, LEAVE, SUBSCRIBE, UNSUBSCRIBE
from peer.runtime.spec import Action


class Audience:
    """The subscribers that are up, kept while changes are applied one by one.

    Attributes:
        topics: those with a subscriber, in rising order.
    """

    def __init__(self, interests: Interests) -> None:
        self._subscribers: dict[int, list[int]] = {}
        self._interests = [set(topics) for topics in interests]
        for node, topics in enumerate(interests):
            for topic in topics:
                self._subscribers.setdefault(topic, []).append(node)
        self.topics = sorted(self._subscribers)

    def subscribers(self, topic: int) -> list[int]:
        """The nodes that subscribe to a topic of ``topics``, in rising order."""
        return self._subscribers[topic]

    def apply(self, change: Action) -> None:
        """A node joins, leaves, crashes, subscribes or unsubscribes."""
        own = self._interests[change.node]
        if change.action in (JOIN, SUBSCRIBE):
            for topic in change.topics:
                self._add(change.node, topic)
        elif change.action in (LEAVE, CRASH):
            for topic in sorted(own):
                self._remove(change.node, topic)
        elif change.action == UNSUBSCRIBE:
            for topic in change.topics:
                self._remove(change.node, topic)

    def _add(self, node: int, topic: int) -> None:
        self._interests[node].add(topic)
        if topic not in self._subscribers:
            self._subscribers[topic] = []
            insort(self.topics, topic)
        insort(self._subscribers[topic], node)

    def _remove(self, node: int, topic: int) -> None:
        self._interests[node].remove(topic)
        nodes = self._subscribers[topic]
        del nodes[bisect_left(nodes, node)]
        if not nodes:
            del self._subscribers[topic]
            del self.topics[bisect_left(self.topics, topic)]
