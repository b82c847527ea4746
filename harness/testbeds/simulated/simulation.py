"""The discrete-event simulation: an event heap, and what the driver of a peer process does, for all nodes at once.

Frames travel by reference; their size is what ``peer.wire`` would make of them. The same arguments and calls give the
same run, under any PYTHONHASHSEED.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol

from harness.testbeds.simulated.hosts import End, Host
from harness.testbeds.simulated.memory import LargePages, rare_collections
from harness.testbeds.simulated.network import Network
from peer import wire
from peer.core import contract
from peer.core.bitset import Bitset
from peer.core.contract import Effect, Event, FrameReceived, Message, Node, NodeId, TimerFired
from peer.core.frames import Bye, Data, Frame, Hello
from peer.core.links import STOP
from peer.core.node import StatefulNode
from peer.core.randomness import substream
from peer.runtime.lifecycle import announce_end, announce_join
from peer.trace import CRASHED, LEFT, TraceEvent

KINDS = 256
"""A frame's kind has eight bits."""

PAGES_NS = 1_000_000_000
"""How long a simulation runs before it is looked whether its memory has grown."""

Arrival = tuple[End, Frame, int, int]
"""The receiver's end of a connection, a frame, its offset in the stream and its length in bytes."""

Entry = tuple[int, int, Any, Any]
"""Of the event heap: the instant, the order among those of the same one, an action and its argument; or, where nobody
watches frames, the receiver's end of a connection and a frame."""


class Observer(Protocol):
    """Who watches a simulation. The instants are virtual, in ns."""

    frames: bool
    """Whether it wants to know of every frame and link; nodes' own trace events it gets in any case."""

    def trace(self, event: TraceEvent) -> None:
        """A trace event, of a node or of its driver; ``event.node`` says whose."""

    def deliver(self, now_ns: int, node: NodeId, message: Message) -> None:
        """A node handed a message to its application."""


class Simulation:
    """Many nodes on virtual time, each on the host of its number.

    Args:
        network: what lies between the hosts.
        observer: who watches.
        seed: for the pauses between attempts at a link.
        run_number: what nodes put into their Hello.
        processing_ns: how long a node takes for every frame it receives; frames wait for each other.
        uncounted: the nodes whose frames do not count as sent.
        encode: turn every frame into bytes and back, as a real link does, rather than passing the value.
        address: a node's address in the names of connections.

    Attributes:
        now_ns: the virtual instant.
        hosts: every host; one whose ``node`` is None is down.
        handled: events that nodes have handled so far.
        sent_frames, sent_bytes: frames written to links so far, but those of the uncounted; a place for each kind.
        perform: what carries out a host's effect, by the effect's type; for ``Trace`` that is ``trace``.
    """

    def __init__(
        self,
        network: Network,
        observer: Observer,
        *,
        seed: int,
        run_number: int = 0,
        processing_ns: Callable[[NodeId], int] | None = None,
        encode: bool = False,
        uncounted: Bitset = 0,
        address: Callable[[NodeId], str] = str,
    ) -> None:
        self.now_ns = 0
        self.hosts: dict[NodeId, Host] = {}
        self.handled = 0
        self.sent_frames = [0] * KINDS
        self.sent_bytes = [0] * KINDS
        self._uncounted = uncounted
        self._uncounted_frames = [0] * KINDS
        self._uncounted_bytes = [0] * KINDS
        self.run_number = run_number
        self.delay_ns = network.delay_ns
        self._network = network
        self._observer = observer
        self._traces_frames = observer.frames
        self._seed = seed
        self._processing_ns = processing_ns
        self._encode = encode
        # Of an arrival, and of a departure, nobody asks for more than the frame and its link.
        self._is_plain = not self._traces_frames and processing_ns is None and not network.limits_rates
        self._on_arrival = self._pass_down if network.limits_rates else self._arrive
        self._is_fixed = self._is_plain and network.is_fixed and not encode
        self._address = address
        self._heap: list[Entry] = []
        self._order = 0
        self._pages = LargePages()
        self._sized: tuple[Frame | None, int] = (None, 0)
        self.trace = observer.trace
        self.perform: dict[type[Effect], Callable[[Host, Any], None]] = {
            contract.Send: lambda host, effect: self._send(host, effect.peer, effect.frame),
            contract.SendEach: self._send_each,
            contract.Deliver: lambda host, effect: observer.deliver(self.now_ns, host.number, effect.message),
            contract.SetTimer: self._set_timer,
            contract.CancelTimer: self._cancel_timer,
            contract.Connect: lambda host, effect: host.table.connect(effect.peer),
            contract.Disconnect: lambda host, effect: host.table.disconnect(effect.peer, effect.reason),
        }

    # ------------------------------------------------------------------------------------------- for the user

    def add_host(self, number: NodeId) -> Host:
        """A host, on which no node runs yet."""
        host = self.hosts[number] = Host(self, number, substream(self._seed, number, "runtime"))
        if self._uncounted >> number & 1:
            host.sent_frames, host.sent_bytes = self._uncounted_frames, self._uncounted_bytes
        return host

    def start(self, number: NodeId, node: StatefulNode, directory: contract.Directory, *, joins: bool = False) -> None:
        """Start a node on its host, now; ``joins``: during the run, which is traced."""
        host = self.hosts[number]
        host.node = node
        if joins:
            self._observer.trace(announce_join(node, self.now_ns))
        host.feed(contract.Started())
        host.feed(contract.PeerList(directory))

    def give(self, number: NodeId, event: Event) -> None:
        """Hand an event to a node, now; nothing happens to one that is down."""
        self.hosts[number].feed(event)

    def leave(self, number: NodeId) -> None:
        """A node leaves in order: it says its last, and its links close."""
        host = self.hosts[number]
        host.feed(contract.Leaving())
        self._end(host, LEFT, goodbye=True)

    def crash(self, number: NodeId) -> None:
        """A node vanishes: its links break without a word, and its neighbours learn of it when the resets arrive."""
        self._end(self.hosts[number], CRASHED, goodbye=False)

    def quiesce(self) -> None:
        """No more timers, publications or new links; frames are still received and forwarded."""
        for host in self.hosts.values():
            host.quiesce()

    def close(self) -> None:
        """Close every link, as peers do before they exit."""
        for host in self.hosts.values():
            for end in list(host.links.values()):
                host.table.close(end, STOP)

    def at(self, at_ns: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``action(*arguments)`` at a virtual instant, after what was asked for the same instant before."""
        self._order += 1
        heapq.heappush(self._heap, (max(at_ns, self.now_ns), self._order, _call, (action, arguments)))

    def after(self, delay_ns: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``action(*arguments)`` when this time has passed."""
        self.at(self.now_ns + delay_ns, action, *arguments)

    def run(self, until_ns: int) -> None:
        """Let virtual time pass up to and including an instant."""
        heap, pop = self._heap, heapq.heappop
        with rare_collections():
            while heap and heap[0][0] <= until_ns:
                self._pages.keep()
                pause_ns = min(until_ns, heap[0][0] + PAGES_NS)
                while heap and heap[0][0] <= pause_ns:
                    self.now_ns, _, action, argument = pop(heap)
                    if type(action) is not End:
                        action(argument)
                    elif action.up:
                        action.host.feed(FrameReceived(action.peer, argument))
                    else:
                        self._arrive((action, argument, 0, 0))
        self.now_ns = max(self.now_ns, until_ns)

    # ------------------------------------------------------------------------------------------- for the hosts

    def join(self, opener: Host, peer: NodeId, listener: Node) -> End:
        """A connection between two hosts, which the node took that listened there; the opener's end of it."""
        acceptor = self.hosts[peer]
        conn = ""
        if self._traces_frames:
            opener.port += 1
            conn = f"{self._address(opener.number)}:{opener.port}-{self._address(peer)}:9000"
        fixed = self._network.fixed_delay_ns
        end = End(opener, peer, True, conn, opener.node, fixed(opener.number, peer))
        other = End(acceptor, opener.number, False, conn, listener, fixed(peer, opener.number))
        end.other, other.other = other, end
        return end

    def write(self, end: End, frame: Frame) -> None:
        """Put a frame into a connection's stream."""
        other = end.other
        if other is None:
            return
        last, size = self._sized
        if last is not frame:
            size = wire.size(frame)
            self._sized = (frame, size)
        kind = frame.kind
        end.host.sent_frames[kind] += 1
        end.host.sent_bytes[kind] += size
        off = end.written_bytes
        end.written_bytes = off + size
        if self._traces_frames:
            self._observer.trace(self._locate("send", end, end.side, frame, off, size))
        if end.delay_ns is not None:
            arrival_ns = self.now_ns + end.delay_ns
        else:
            arrival_ns = self._network.arrival_ns(self.now_ns, end.host.number, end.peer, size)
        if arrival_ns < end.latest_ns:
            arrival_ns = end.latest_ns
        end.latest_ns = arrival_ns
        if self._encode:
            [(_, _, frame)] = wire.Decoder().feed(wire.encode(frame))
        self._order += 1
        if self._is_plain and kind != Bye.kind:
            heapq.heappush(self._heap, (arrival_ns, self._order, other, frame))
        else:
            heapq.heappush(self._heap, (arrival_ns, self._order, self._on_arrival, (other, frame, off, size)))

    def note(self, event: str, end: End, direction: str | None = None, reason: str | None = None) -> None:
        """Trace what became of a link."""
        if self._traces_frames:
            self._observer.trace(
                TraceEvent(
                    event, self.now_ns, end.host.number, end.peer, conn=end.conn, direction=direction, reason=reason
                )
            )

    # ------------------------------------------------------------------------------------------------ effects

    def _send(self, host: Host, peer: NodeId, frame: Frame) -> None:
        end = host.links.get(peer)
        if end is not None and not end.reason:
            self.write(end, frame)
        elif self._traces_frames:
            self._observer.trace(
                TraceEvent(
                    "drop",
                    self.now_ns,
                    host.number,
                    peer,
                    message_id=getattr(frame, "message_id", None),
                    kind=frame.kind,
                    len_bytes=wire.size(frame),
                    reason="no_link",
                )
            )

    def _send_each(self, host: Host, effect: contract.SendEach) -> None:
        if self._is_fixed:
            self._write_each(host, effect)
        else:
            for peer in effect.peers:
                self._send(host, peer, effect.frame)

    def _write_each(self, host: Host, effect: contract.SendEach) -> None:
        """``write``, where a frame takes its link's delay and nobody asks for more: the way of nearly every copy."""
        frame, links, heap, now_ns, order = effect.frame, host.links, self._heap, self.now_ns, self._order
        for peer in effect.peers:
            end = links.get(peer)
            if end is not None and not end.reason and end.other is not None:
                order += 1
                heapq.heappush(heap, (now_ns + end.delay_ns, order, end.other, frame))  # type: ignore[operator]
        sent = order - self._order
        self._order = order
        host.sent_frames[frame.kind] += sent
        host.sent_bytes[frame.kind] += sent * wire.size(frame)

    def _set_timer(self, host: Host, effect: contract.SetTimer) -> None:
        if not host.quiet:
            host.timers[effect.name] = effect.at_ns
            self.at(effect.at_ns, self._fire, host, host.node, effect.name, effect.at_ns)

    def _cancel_timer(self, host: Host, effect: contract.CancelTimer) -> None:
        host.timers.pop(effect.name, None)

    def _fire(self, host: Host, node: Node, name: str, at_ns: int) -> None:
        if host.node is node and host.timers.get(name) == at_ns:
            del host.timers[name]
            host.feed(TimerFired(name))

    # ------------------------------------------------------------------------------------------------ arrivals

    def _pass_down(self, arrival: Arrival) -> None:
        """A frame is at its receiver's access link, behind what came to it before, from whomever."""
        end, _, _, size = arrival
        self.at(self._network.pass_down_ns(self.now_ns, end.host.number, size), self._arrive, arrival)

    def _arrive(self, arrival: Arrival) -> None:
        end, frame, off, size = arrival
        host = end.host
        if end.life is not host.node and not end.reason:
            self._say_gone(end)
        if end.reason == CRASHED:
            return
        if self._traces_frames:
            side = "resp" if end.opener else "orig"
            self._observer.trace(self._locate("receive", end, side, frame, off, size))
        if self._processing_ns is not None and (cost_ns := self._processing_ns(host.number)):
            host.ready_ns = max(host.ready_ns, self.now_ns) + cost_ns
            self.at(host.ready_ns, self._handle, end, frame)
        else:
            self._handle(end, frame)

    def _handle(self, end: End, frame: Frame) -> None:
        if end.up and frame.kind != Bye.kind:
            end.host.feed(FrameReceived(end.peer, frame))
        elif end.host.node is None:
            return
        elif isinstance(frame, Bye):
            end.host.receive_bye(end, frame.reason)
        elif isinstance(frame, Hello):
            end.host.table.introduced(end, end.peer)

    def _end(self, host: Host, reason: str, *, goodbye: bool) -> None:
        """Take a host down."""
        if host.node is None:
            return
        for event in announce_end(host.node, self.now_ns, reason):
            self._observer.trace(event)
        for end in host.end(reason):
            if goodbye:
                self._part(end, reason)
            elif end.other is not None:
                self._break(end, end.other)
            if end.up:
                self.note("remove_peer", end, reason=reason)
            end.up, end.reason = False, reason

    def _part(self, end: End, reason: str) -> None:
        if not end.reason:
            end.reason = reason
            self.write(end, Bye(reason))

    def _say_gone(self, end: End) -> None:
        """Somebody's hello came over a connection that was taken by a life that is over; it hears how that ended."""
        if end.host.ended == LEFT:
            self._part(end, LEFT)
        elif end.other is not None:
            end.reason = CRASHED
            self._break(end, end.other)

    def _break(self, end: End, other: End) -> None:
        """A dead process's kernel closes its connection: the other side hears of it after all that was sent."""
        arrival_ns = self._network.arrival_ns(self.now_ns, end.host.number, end.peer, 0)
        end.latest_ns = max(arrival_ns, end.latest_ns)
        self.at(end.latest_ns, self._hear_break, other)

    def _hear_break(self, end: End) -> None:
        """The end of a connection's bytes is at the receiver's access link."""
        at_ns = self.now_ns
        if self._network.limits_rates:
            at_ns = self._network.pass_down_ns(at_ns, end.host.number, 0)
        self.at(max(at_ns, end.host.ready_ns), self._reset, end)

    def _reset(self, end: End) -> None:
        if end.host.node is not None:
            end.host.lose(end)

    def _locate(self, event: str, end: End, side: str, frame: Frame, off: int, size: int) -> TraceEvent:
        """The trace event of a frame. Positional, since there is one for every frame."""
        identifier = topics = hops = ttl = None
        if isinstance(frame, Data):
            identifier, topics, hops, ttl = frame.message_id, frame.topics, frame.hops, frame.ttl
        where = (end.conn, side, off, size)
        return TraceEvent(
            event, self.now_ns, end.host.number, end.peer, identifier, topics, frame.kind, *where, hops, ttl
        )


def _call(wish: tuple[Callable[..., None], tuple[Any, ...]]) -> None:
    action, arguments = wish
    action(*arguments)
