"""Follow the nodes that are up, and the topics to which they subscribe, by the ``join`` and ``leave`` events of traces.

A simulation hands over each event when it happens. The tables of messages with expressions take the events from the
traces of a run. ``metrics.tables.interests`` finds the same facts as intervals, since other tables ask for single nodes
and topics at many instants, in any order. tests/property/test_traced_population.py compares both.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from peer.core.addressing.keywords import find_members
from peer.core.bitset import Bitset, bitset
from peer.trace import CRASHED, JOINED, LEFT, TraceEvent

ENDINGS: Final = (LEFT, CRASHED)
"""The reasons of ``leave`` events with which an instance of a node ends. With any other, a node only unsubscribes."""

CHANGES: Final = (JOINED, *ENDINGS)
"""The reasons of ``join`` and ``leave`` events with which an instance of a node begins or ends."""


class TracedPopulation:
    """The nodes that are up and the subscribers of every topic, while events are taken in order of time.

    Args:
        interests: the nodes that are up at the start, each with its topics.
        settle_ns: how long no deliveries are expected of a node after it has joined. Then it is settled. Nodes that are
            up from the start are settled.

    Attributes:
        up: the nodes that are up.
        subscribers: the subscribers of each topic.
        ever: likewise, with former subscribers.
        joined_ns: when each node last joined.
    """

    def __init__(self, interests: Mapping[int, Iterable[int]], settle_ns: int = 0) -> None:
        nodes: dict[int, list[int]] = {}
        for node, topics in interests.items():
            for topic in sorted(topics):
                nodes.setdefault(topic, []).append(node)
        self.up = bitset(interests)
        self.subscribers = {topic: bitset(subscribers) for topic, subscribers in nodes.items()}
        self.ever = dict(self.subscribers)
        self.joined_ns: dict[int, int] = {}
        self._settle_ns = settle_ns
        self._settling: Bitset = 0  # nodes that have joined, until they are settled
        self._joins: deque[tuple[int, int]] = deque()  # their joins (instant, node), the oldest first

    def take(self, event: TraceEvent) -> None:
        """Take a ``join`` or ``leave``."""
        if event.event == "join":
            self._join(event)
        else:
            self._leave(event)

    def _join(self, event: TraceEvent) -> None:
        if event.reason == JOINED:
            self.up |= 1 << event.node
            self.joined_ns[event.node] = event.ts_ns
            self._settling |= 1 << event.node
            self._joins.append((event.ts_ns, event.node))
        add_node(self.subscribers, event.topics or (), event.node)
        add_node(self.ever, event.topics or (), event.node)

    def _leave(self, event: TraceEvent) -> None:
        if event.reason in ENDINGS:
            self.up &= ~(1 << event.node)
        for topic in event.topics or ():
            self.subscribers[topic] = self.subscribers.get(topic, 0) & ~(1 << event.node)

    def find_unsettled(self, now_ns: int) -> Bitset:
        """Return the nodes that have joined less than ``settle_ns`` ago."""
        while self._joins and self._joins[0][0] <= now_ns - self._settle_ns:
            joined_ns, node = self._joins.popleft()
            if self.joined_ns[node] == joined_ns:
                self._settling &= ~(1 << node)
        return self._settling

    def find_audience(self, topics: Iterable[int], expression: str | None) -> Bitset:
        """Return the nodes that a message is for if it is published now.

        Args:
            topics: the topics of the message.
            expression: its expression; None = the message is for the subscribers of its topics.
        """
        if expression is not None:
            return find_members(expression, self.subscribers)
        found = 0
        for topic in topics:
            found |= self.subscribers.get(topic, 0)
        return found


def add_node(sets: dict[int, Bitset], topics: Iterable[int], node: int) -> None:
    """Add a node to the sets of some topics.

    Args:
        sets: a set of nodes by topic; a topic without nodes may be absent.
        topics: the topics.
        node: the node.
    """
    for topic in topics:
        sets[topic] = sets.get(topic, 0) | 1 << node
