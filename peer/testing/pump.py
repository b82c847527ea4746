"""The pump: many nodes in memory on virtual time, with links that may drop, duplicate and reorder frames."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from peer import wire
from peer.core import contract
from peer.core.contract import Directory, Effect, Event, Message, Node, NodeId, PeerInfo, TopicId, one_by_one
from peer.core.frames import Frame
from peer.core.links import Connection, LinkTable
from peer.core.randomness import substream
from peer.testing.reading import part_of
from peer.trace import TraceEvent

MILLISECOND_NS = 1_000_000
PAUSES_S = (0.0,)
CUT, CLOSED = "cut", "closed"


class Faults(NamedTuple):
    """The faults of links. Ratios are 0..1; a duplicate or reordered frame is late by up to ``late_ns``."""

    drop_ratio: float = 0.0
    duplicate_ratio: float = 0.0
    reorder_ratio: float = 0.0
    late_ns: int = 50 * MILLISECOND_NS


class _End(Connection):
    """One side of a connection.

    Attributes:
        node: the node on this side.
        other: the other side.
        latest_ns: when the last frame of this side arrives, not counting frames that a fault delays (ns).
        cut: whether the connection is lost, with all frames in flight.
    """

    __slots__ = ("cut", "latest_ns", "node", "other")

    peer: NodeId
    other: _End

    def __init__(self, node: NodeId, peer: NodeId, opener: bool) -> None:
        super().__init__(peer, opener)
        self.node = node
        self.latest_ns = 0
        self.cut = False


class _Carrier:
    """Carries out the decisions of the link table of one node of a pump."""

    def __init__(self, pump: Pump, node: NodeId, seed: int) -> None:
        self._pump = pump
        self._node = node
        self.table: LinkTable[_End] = LinkTable(self, node, substream(seed, node, "runtime"), PAUSES_S)

    def now_ns(self) -> int:
        return self._pump.now_ns

    def pause(self, peer: NodeId, pause_s: float) -> None:
        self._pump._after(round(pause_s * 1e9), lambda: self.table.attempt(peer))

    def open(self, peer: NodeId) -> None:
        pump = self._pump
        if peer != self._node and peer in pump.nodes:
            end, other = _End(self._node, peer, True), _End(peer, self._node, False)
            end.other, other.other = other, end
            self.table.opened(end, peer)
        else:
            fails_after_ns = pump.delay_ns(self._node, peer) + pump.delay_ns(peer, self._node)
            if peer in pump.vanished:
                fails_after_ns = max(fails_after_ns, pump.unanswered_ns)
            pump._after(fails_after_ns, lambda: self.table.failed(peer))

    def say_hello(self, end: _End) -> None:
        self._pump._tell(end, None)

    def say_goodbye(self, end: _End, reason: str) -> None:
        self._pump._tell(end, reason)

    def wait(self, end: _End, old: _End, wait_s: float) -> None:
        self._pump._after(round(wait_s * 1e9), lambda: self.table.wait_over(end))

    def rejected(self, end: _End, reason: str) -> None:
        """Do nothing: ``Bye`` has the reason."""

    def link_up(self, end: _End, outbound: bool) -> None:
        self._pump.give(self._node, contract.LinkUp(end.peer, outbound))

    def link_down(self, end: _End, retrying: bool) -> None:
        self._pump.give(self._node, contract.LinkDown(end.peer, end.reason, retrying))

    def gave_up(self, peer: NodeId, reason: str) -> None:
        self._pump.give(self._node, contract.LinkDown(peer, reason))


class Pump:
    """Drives nodes in one process. The same arguments and calls give the same run.

    Every frame is encoded and decoded by ``peer.wire``. Links follow the rules of ``peer.core.links``. A connection is
    open at once; ``Hello`` and ``Bye`` take the link's delay and suffer no fault. A node gives up an unreachable node
    after one attempt, one round trip later, and possibly later if it has vanished. A test that watches a node overrides
    ``give`` or ``perform``.

    Attributes:
        nodes: the nodes that are up, by number.
        now_ns: the present virtual instant (ns).
        delivered: (instant, node, message) of every delivery, in order.
        traced: every trace event, in order.
        effects: (instant, node, effect) of every effect, in order.
        vanished: the nodes that have vanished.
        unanswered_ns: the least time that an attempt to reach a vanished node takes (ns). A test may replace it; the
            default is 0.

    Args:
        nodes: all nodes, by number.
        delay_ns: (source, destination) -> one-way delay of a link (ns); 1 ms for every pair by default.
        faults: the faults of links for frames that are sent from now on. A test may replace it; by default there are
            none.
        seed: the seed of the faults and of the pauses between attempts.
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
        self.vanished: set[NodeId] = set()
        self.unanswered_ns = 0
        self.nodes = dict(nodes)
        self.delay_ns = delay_ns
        self.faults = faults or Faults()
        self._draws = Random(seed)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._timers: dict[tuple[NodeId, str], int] = {}
        carriers = {node: _Carrier(self, node, seed) for node in self.nodes}
        self._tables = {node: carrier.table for node, carrier in carriers.items()}

    def start(self, interests: Mapping[NodeId, tuple[TopicId, ...]] | None = None) -> None:
        """Start every node and tell it all nodes, with their interests if these are given."""
        disclosed = interests or {}
        everybody = Directory(PeerInfo(node, disclosed.get(node)) for node in self.nodes)
        for node in self.nodes:
            self.give(node, contract.Started())
        for node in self.nodes:
            self.give(node, contract.PeerList(everybody))

    def give(self, node: NodeId, event: Event) -> None:
        """Give an event to a node now, and carry out its effects. Do nothing if the node has ended."""
        if node not in self.nodes and node in self._tables:
            return
        for effect in one_by_one(self.nodes[node].handle(self.now_ns, event)):
            self.effects.append((self.now_ns, node, effect))
            self.perform(node, effect)

    def run(self, duration_ns: int) -> None:
        end_ns = self.now_ns + duration_ns
        while self._heap and self._heap[0][0] <= end_ns:
            self.now_ns, _, action = heapq.heappop(self._heap)
            action()
        self.now_ns = end_ns

    def cut(self, one: NodeId, other: NodeId) -> None:
        """Cut the connections of two nodes. Frames in flight on them are lost, too."""
        for node, peer in ((one, other), (other, one)):
            table = self._tables[node]
            for end in table.connections(peer):
                end.cut = end.other.cut = True
                table.peer_closed(end, CUT)
                table.lost(end, CUT)

    def crash(self, node: NodeId) -> None:
        """End a node without ``Bye``: its links are cut, and attempts to reach it fail."""
        table = self._tables[node]
        for peer in sorted(table.links.keys() | table.pending.keys()):
            self.cut(node, peer)
        table.end()
        self._end(node)

    def vanish(self, node: NodeId) -> None:
        """End a node without closing its links: the other ends see them up, and frames on them are lost."""
        self._end(node)
        self.vanished.add(node)

    def _end(self, node: NodeId) -> None:
        del self.nodes[node]
        self.clear_timers(node)

    def clear_timers(self, node: NodeId) -> None:
        """Forget the timers of a node, so that from now on it only reacts to frames."""
        self._timers = {(one, name): at_ns for (one, name), at_ns in self._timers.items() if one != node}

    def part(self, node: NodeId, role: str) -> Any:  # noqa: ANN401 - a test knows the class of the part
        """Return the part of a node that is up in a role such as "overlay"."""
        return part_of(self.nodes[node], role)

    def links(self) -> set[tuple[NodeId, NodeId]]:
        """Return every link that is up at its lower node, as (lower, higher)."""
        return {(node, peer) for node in self._tables for peer in self.linked(node) if node < peer}

    def linked(self, node: NodeId) -> set[NodeId]:
        """Return the nodes to which a node has a link, as far as it knows."""
        return set(self._tables[node].links)

    def perform(self, node: NodeId, effect: Effect) -> None:
        """Carry out an effect of a node. A test may pass another effect instead."""
        match effect:
            case contract.Send(peer, frame):
                self._send(node, peer, frame)
            case contract.Trace(event):
                self.traced.append(event)
            case contract.Deliver(message):
                self.delivered.append((self.now_ns, node, message))
            case contract.SetTimer(name, at_ns):
                self._set_timer(node, name, at_ns)
            case contract.CancelTimer(name):
                self._timers.pop((node, name), None)
            case contract.Connect(peer):
                self._tables[node].connect(peer)
            case contract.Disconnect(peer, reason):
                self._tables[node].disconnect(peer, reason)

    def _at(self, instant_ns: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (max(instant_ns, self.now_ns), self._order, action))

    def _after(self, delay_ns: int, action: Callable[[], None]) -> None:
        self._at(self.now_ns + delay_ns, action)

    def _set_timer(self, node: NodeId, name: str, at_ns: int) -> None:
        self._timers[node, name] = at_ns

        def fire() -> None:
            if self._timers.get((node, name)) == at_ns:
                del self._timers[node, name]
                self.give(node, contract.TimerFired(name))

        self._at(at_ns, fire)

    def _tell(self, end: _End, reason: str | None) -> None:
        """Send ``Hello``, or ``Bye`` if there is a reason, to the other side, after all earlier frames."""
        end.latest_ns = max(self.now_ns + self.delay_ns(end.node, end.peer), end.latest_ns)
        self._at(end.latest_ns, lambda: self._hear(end.other, reason))

    def _hear(self, end: _End, reason: str | None) -> None:
        """Handle ``Hello`` or ``Bye``. The other side learns of an end, or of a missing node, one delay later."""
        table = self._tables[end.node]
        if end.cut:
            return
        if end.node in self.nodes:
            if reason is None:
                table.introduced(end, end.peer)
                return
            table.peer_closed(end, reason)
            table.lost(end, CLOSED)
        self._after(self.delay_ns(end.node, end.peer), lambda: self._tables[end.peer].lost(end.other, CLOSED))

    def _send(self, node: NodeId, peer: NodeId, frame: Frame) -> None:
        end = self._tables[node].links.get(peer)
        if end is None or self._happens(self.faults.drop_ratio):
            return
        content, other = wire.encode(frame), end.other
        arrival_ns = max(self.now_ns + self.delay_ns(node, peer), end.latest_ns)
        if self._happens(self.faults.reorder_ratio):
            arrival_ns += self._draws.randrange(self.faults.late_ns)
        else:
            end.latest_ns = arrival_ns
        self._at(arrival_ns, lambda: self._arrive(other, content))
        if self._happens(self.faults.duplicate_ratio):
            late_ns = self._draws.randrange(self.faults.late_ns)
            self._at(arrival_ns + late_ns, lambda: self._arrive(other, content))

    def _happens(self, ratio: float) -> bool:
        return ratio > 0 and self._draws.random() < ratio

    def _arrive(self, end: _End, content: bytes) -> None:
        if end.up:
            [(_, _, frame)] = wire.Decoder().feed(content)
            self.give(end.node, contract.FrameReceived(end.peer, frame))
