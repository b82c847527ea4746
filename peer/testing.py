"""The pump: many nodes in memory on virtual time, over links that may drop, duplicate and reorder frames.

For property tests of protocols. Every frame goes through ``peer.wire``, so that what arrives is what bytes can carry.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from peer import wire
from peer.core.contract import (
    CancelTimer,
    Connect,
    Deliver,
    Directory,
    Disconnect,
    Effect,
    Event,
    FrameReceived,
    LinkDown,
    LinkUp,
    Message,
    Node,
    NodeId,
    PeerInfo,
    PeerList,
    Send,
    SetTimer,
    Started,
    TimerFired,
    TopicId,
    Trace,
    one_by_one,
)
from peer.core.frames import Frame
from peer.trace import TraceEvent

MILLISECOND_NS = 1_000_000


class Faults(NamedTuple):
    """What the links do to frames. Ratios are 0..1; a duplicate or reordered frame is late by up to ``late_ns``."""

    drop_ratio: float = 0.0
    duplicate_ratio: float = 0.0
    reorder_ratio: float = 0.0
    late_ns: int = 50 * MILLISECOND_NS


class Pump:
    """Drives nodes in one process. The same arguments and calls give the same run.

    Attributes:
        now_ns: the virtual instant.
        delivered: (instant, node, message) of every delivery, in order.
        traced: every trace event, in order.
        effects: (instant, node, effect) of every effect, in order.
    """

    def __init__(
        self,
        nodes: Mapping[NodeId, Node],
        delay_ns: Callable[[NodeId, NodeId], int] = lambda source, destination: MILLISECOND_NS,
        faults: Faults | None = None,
        seed: int = 0,
    ) -> None:
        self.now_ns = 0
        self.delivered: list[tuple[int, NodeId, Message]] = []
        self.traced: list[TraceEvent] = []
        self.effects: list[tuple[int, NodeId, Effect]] = []
        self._nodes = dict(nodes)
        self._delay_ns = delay_ns
        self._faults = faults or Faults()
        self._draws = Random(seed)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._timers: dict[tuple[NodeId, str], int] = {}
        self._wanted: set[tuple[NodeId, NodeId]] = set()
        self._up: dict[tuple[NodeId, NodeId], int] = {}
        self._last_arrival_ns: dict[tuple[NodeId, NodeId], int] = {}

    def start(self, interests: Mapping[NodeId, tuple[TopicId, ...]] | None = None) -> None:
        """Start every node and tell it of all others, and of their interests where these are given."""
        disclosed = interests or {}
        everybody = Directory(PeerInfo(node, disclosed.get(node)) for node in self._nodes)
        for node in self._nodes:
            self.give(node, Started())
        for node in self._nodes:
            self.give(node, PeerList(everybody))

    def give(self, node: NodeId, event: Event) -> None:
        """Hand an event to a node now, and do what it wants."""
        for effect in one_by_one(self._nodes[node].handle(self.now_ns, event)):
            self.effects.append((self.now_ns, node, effect))
            self._perform(node, effect)

    def run(self, duration_ns: int) -> None:
        """Let virtual time pass."""
        end_ns = self.now_ns + duration_ns
        while self._heap and self._heap[0][0] <= end_ns:
            self.now_ns, _, action = heapq.heappop(self._heap)
            action()
        self.now_ns = end_ns

    def cut(self, one: NodeId, other: NodeId) -> None:
        """Lose the link between two nodes for good; what is under way on it is lost too."""
        for node, peer in ((one, other), (other, one)):
            self._wanted.discard((node, peer))
            if self._up.pop((node, peer), None) is not None:
                self.give(node, LinkDown(peer, "cut"))

    def crash(self, node: NodeId) -> None:
        """End a node without a word: its links are cut, and who wants one to it finds nobody."""
        for peer in sorted(peer for one, peer in self._up if one == node):
            self.cut(node, peer)
        del self._nodes[node]
        self._wanted = {(one, peer) for one, peer in self._wanted if one != node}
        self._timers = {(one, name): at_ns for (one, name), at_ns in self._timers.items() if one != node}

    def links(self) -> set[tuple[NodeId, NodeId]]:
        """Every link that is up, as (lower, higher)."""
        return {(node, peer) for node, peer in self._up if node < peer}

    def _perform(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case Send(peer, frame):
                self._send(node, peer, frame)
            case Trace(event):
                self.traced.append(event)
            case Deliver(message):
                self.delivered.append((self.now_ns, node, message))
            case SetTimer(name, at_ns):
                self._set_timer(node, name, at_ns)
            case CancelTimer(name):
                self._timers.pop((node, name), None)
            case Connect(peer):
                self._connect(node, peer)
            case Disconnect(peer, reason):
                self._disconnect(node, peer, reason)

    def _at(self, instant_ns: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (max(instant_ns, self.now_ns), self._order, action))

    def _set_timer(self, node: NodeId, name: str, at_ns: int) -> None:
        self._timers[node, name] = at_ns

        def fire() -> None:
            if self._timers.get((node, name)) == at_ns:
                del self._timers[node, name]
                self.give(node, TimerFired(name))

        self._at(at_ns, fire)

    def _connect(self, node: NodeId, peer: NodeId) -> None:
        self._wanted.add((node, peer))
        there = self._delay_ns(node, peer)
        self._at(self.now_ns + there + self._delay_ns(peer, node), lambda: self._raise_link(node, peer))

    def _raise_link(self, node: NodeId, peer: NodeId) -> None:
        if (node, peer) not in self._wanted or (node, peer) in self._up:
            return
        if peer not in self._nodes:
            self._wanted.discard((node, peer))
            self.give(node, LinkDown(peer, "unreachable"))
            return
        if (peer, node) in self._up:  # the peer has yet to hear of the old link's end, for which the new one waits
            self._at(self.now_ns + MILLISECOND_NS, lambda: self._raise_link(node, peer))
            return
        self._order += 1
        for one, other in ((node, peer), (peer, node)):
            self._up[one, other] = self._order
        for one, other in ((node, peer), (peer, node)):
            self.give(one, LinkUp(other, (one, other) in self._wanted))

    def _disconnect(self, node: NodeId, peer: NodeId, reason: str) -> None:
        self._wanted.discard((node, peer))
        link = self._up.pop((node, peer), None)
        if link is None:
            return

        def hear() -> None:
            if node in self._nodes:
                self.give(node, LinkDown(peer, reason))

        def tell() -> None:
            if self._up.get((peer, node)) == link:
                del self._up[peer, node]
                self._wanted.discard((peer, node))
                self.give(peer, LinkDown(node, reason))

        self._at(self.now_ns, hear)
        self._at(self.now_ns + self._delay_ns(node, peer), tell)

    def _send(self, node: NodeId, peer: NodeId, frame: Frame) -> None:
        link = self._up.get((node, peer))
        if link is None or self._happens(self._faults.drop_ratio):
            return
        content = wire.encode(frame)
        arrival_ns = max(self.now_ns + self._delay_ns(node, peer), self._last_arrival_ns.get((node, peer), 0))
        if self._happens(self._faults.reorder_ratio):
            arrival_ns += self._draws.randrange(self._faults.late_ns)
        else:
            self._last_arrival_ns[node, peer] = arrival_ns
        self._at(arrival_ns, lambda: self._arrive(node, peer, link, content))
        if self._happens(self._faults.duplicate_ratio):
            late_ns = self._draws.randrange(self._faults.late_ns)
            self._at(arrival_ns + late_ns, lambda: self._arrive(node, peer, link, content))

    def _happens(self, ratio: float) -> bool:
        return ratio > 0 and self._draws.random() < ratio

    def _arrive(self, source: NodeId, destination: NodeId, link: int, content: bytes) -> None:
        if self._up.get((destination, source)) == link:
            [(_, _, frame)] = wire.Decoder().feed(content)
            self.give(destination, FrameReceived(source, frame))
