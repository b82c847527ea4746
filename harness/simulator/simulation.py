"""The discrete-event simulation: the driver of all nodes.

Frames are passed by reference; their size is that of ``peer.wire``'s encoding. Equal arguments and calls give equal
runs, with any PYTHONHASHSEED.
"""

from collections.abc import Callable
from typing import Any, Protocol

from harness.simulator.access import Crossing
from harness.simulator.changes import ChangingNetwork
from harness.simulator.faults import SILENCE_NS, Faults
from harness.simulator.hosts import TIMEOUT, End, SimulatedHost
from harness.simulator.inner import Packet, divide, enter
from harness.simulator.memory import LargePages, rare_collections
from harness.simulator.network import SimulatedNetwork
from harness.simulator.queue import EventQueue
from peer import wire
from peer.core import contract
from peer.core.bitset import Bitset
from peer.core.contract import Effect, Event, FrameReceived, Message, Node, NodeId, TimerFired
from peer.core.frames import Bye, Frame, Hello
from peer.core.links import STOP
from peer.core.node import StatefulNode
from peer.core.randomness import substream
from peer.instances.lifecycle import announce_end, announce_join
from peer.trace import CRASHED, LEFT, TraceEvent, make_drop_event, make_frame_event
from peer.wire import MSS_BYTES
from topologies.bottlenecks import split_ns

KINDS = 256
"""A frame's kind has eight bits."""

PAGES_NS = 1_000_000_000
"""Virtual time between two checks whether the memory has grown."""

Arrival = tuple[End, Frame, int, int]
"""The receiver's end of a connection, a frame, its offset in the stream, and its length in bytes."""


class Observer(Protocol):
    """An observer of a simulation. Its instants are virtual, in ns."""

    frames: bool
    """Whether it gets the events of every frame and link; it always gets the nodes' own trace events."""

    def trace(self, event: TraceEvent) -> None:
        """Handle a trace event of the node ``event.node`` or of its driver."""

    def deliver(self, now_ns: int, node: NodeId, message: Message) -> None:
        """Handle the delivery of a message to a node's application."""


class Simulation:
    """Many nodes on virtual time, each on the host of its number.

    A queue has the pending events, and ``run`` takes them one by one. An event feeds a node, the node's effects are
    carried out at once by ``perform``, and what takes time (a frame on its way, a timer) becomes a later event. Nothing
    else advances time, and no order depends on hashes, so a run is reproducible. Hosts have their connections and
    timers; only this class has the queue. An entry of the queue has an action and its argument; or, if the observer
    does not watch frames, the receiver's end of a connection and a frame.

    Args:
        network: the network between the hosts.
        observer: gets the events of the run.
        seed: seed of the pauses between attempts to open a link.
        run_number: the run's number in every Hello.
        processing_ns: time that a node needs for each received frame; frames wait for each other.
        uncounted: nodes whose frames do not count as sent.
        encode: encode and decode every frame, as a real link does, instead of passing the object.
        address: returns a node's address in the names of connections.

    Attributes:
        now_ns: the virtual instant.
        hosts: every host; one whose ``node`` is None is down.
        handled: events that nodes have handled so far.
        sent_frames, sent_bytes: frames written to links so far, without those of ``uncounted`` nodes; index = kind.
        traces_frames: whether the observer gets the events of frames and links.
        perform: the function that executes an effect of a host, by type of the effect; ``trace`` for ``Trace``.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
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
        self.hosts: dict[NodeId, SimulatedHost] = {}
        self.handled = 0
        self.sent_frames = [0] * KINDS
        self.sent_bytes = [0] * KINDS
        self._uncounted = uncounted
        self._uncounted_frames = [0] * KINDS
        self._uncounted_bytes = [0] * KINDS
        self.run_number = run_number
        self._network = network
        self._observer = observer
        self.traces_frames = observer.frames
        self._seed = seed
        self._processing_ns = processing_ns
        self._encode = encode
        # An arrival or a departure needs only the frame and its link.
        self._is_plain = not (
            self.traces_frames or processing_ns or network.limits_rates or isinstance(network, ChangingNetwork)
        )
        self._on_arrival = self._pass_down if network.limits_rates else self._arrive
        self._is_fixed = self._is_plain and network.is_fixed and not encode
        self._address = address
        self._queue = EventQueue()
        self._pages = LargePages()
        self._faults: Faults | None = None
        self.delay_ns = network.delay_ns
        if isinstance(network, ChangingNetwork):
            self._faults = Faults(self, network)
            self.delay_ns = lambda source, destination: network.delay_at_ns(self.now_ns, source, destination)
        self._sized: tuple[Frame | None, int] = (None, 0)
        self.trace = observer.trace
        self.perform: dict[type[Effect], Callable[[SimulatedHost, Any], None]] = {
            contract.Send: self._send,
            contract.SendEach: self._send_each,
            contract.Deliver: lambda host, effect: observer.deliver(self.now_ns, host.number, effect.message),
            contract.SetTimer: self._set_timer,
            contract.CancelTimer: self._cancel_timer,
            contract.Connect: lambda host, effect: host.table.connect(effect.peer),
            contract.Disconnect: lambda host, effect: host.table.disconnect(effect.peer, effect.reason),
        }

    # ------------------------------------------------------------------------------------------- for the user

    def add_host(self, number: NodeId) -> SimulatedHost:
        """Add a host without a node."""
        host = self.hosts[number] = SimulatedHost(self, number, substream(self._seed, number, "runtime"))
        if self._uncounted >> number & 1:
            host.sent_frames, host.sent_bytes = self._uncounted_frames, self._uncounted_bytes
        return host

    def start(self, number: NodeId, node: StatefulNode, directory: contract.Directory, *, joins: bool = False) -> None:
        """Start a node on its host now. ``joins``: it joins during the run, which is traced."""
        host = self.hosts[number]
        host.wake()
        host.node = node
        self._return(host)
        if joins:
            self._observer.trace(announce_join(node, self.now_ns))
        host.feed(contract.Started())
        host.feed(contract.PeerList(directory))

    def give(self, number: NodeId, event: Event) -> None:
        """Give an event to a node now, or when it is no longer paused; ignore it if the node is down."""
        host = self.hosts[number]
        host.when_awake(host.feed, event)

    def leave(self, number: NodeId) -> None:
        """Make a node leave in order: it sends its last frames, and its links close."""
        host = self.hosts[number]
        host.when_awake(self._leave, host)

    def _leave(self, host: SimulatedHost) -> None:
        host.feed(contract.Leaving())
        self._end(host, LEFT, goodbye=True)

    def crash(self, number: NodeId) -> None:
        """Crash a node: its links break, and its neighbours learn of it when the resets arrive."""
        self._end(self.hosts[number], CRASHED, goodbye=False)

    def vanish(self, number: NodeId) -> None:
        """Crash a node with its host, which sends nothing more; its neighbours' kernels notice it after a while."""
        self.hosts[number].silent = True
        self.crash(number)

    def quiesce(self) -> None:
        """Stop timers, publications and new links; frames are still received and forwarded."""
        for host in self.hosts.values():
            host.quiesce()

    def close(self) -> None:
        """Close every link, as peers do before they exit."""
        for host in self.hosts.values():
            for end in list(host.links.values()):
                host.table.close(end, STOP)

    def at(self, at_ns: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``action(*arguments)`` at a virtual instant, after earlier calls for the same instant."""
        self._queue.push(max(at_ns, self.now_ns), _call, (action, arguments))

    def after(self, delay_ns: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``action(*arguments)`` after this time."""
        self.at(self.now_ns + delay_ns, action, *arguments)

    def run(self, until_ns: int) -> None:
        """Run all events up to and including an instant."""
        queue = self._queue
        with rare_collections():
            while (first_ns := queue.first_ns()) is not None and first_ns <= until_ns:
                self._pages.keep()
                for self.now_ns, _, action, argument in queue.take(min(until_ns, first_ns + PAGES_NS)):
                    if type(action) is not End:
                        action(argument)
                    elif action.up:
                        action.host.feed(FrameReceived(action.peer, argument))
                    else:
                        self._arrive((action, argument, 0, 0))
        self.now_ns = max(self.now_ns, until_ns)

    # ------------------------------------------------------------------------------------------- for the hosts

    def reach_ns(self, source: NodeId, destination: NodeId) -> int | None:
        """Return when the first packet of a connection that is opened now arrives; None = it is never answered."""
        if self._faults is None:
            return self.now_ns + self.delay_ns(source, destination)
        return self._faults.reach_ns(source, destination)

    def join(self, opener: SimulatedHost, peer: NodeId, listener: Node) -> End:
        """Make a connection that ``listener`` accepts, and return the opener's end."""
        acceptor = self.hosts[peer]
        conn = ""
        if self.traces_frames:
            opener.port += 1
            conn = f"{self._address(opener.number)}:{opener.port}-{self._address(peer)}:9000"
        there, back = (opener.number, peer), (peer, opener.number)
        fixed, inner = self._network.fixed_delay_ns, self._network.inner_path
        end = End(opener, peer, True, conn, opener.node, fixed(*there), inner(*there))
        other = End(acceptor, opener.number, False, conn, listener, fixed(*back), inner(*back))
        end.other, other.other = other, end
        if self._faults is not None:
            self._faults.open(end)
            self._faults.open(other)
        return end

    def write(self, end: End, frame: Frame) -> None:
        other = end.other
        if other is None:
            self._write_to_nobody(end, frame)
            return
        last, size = self._sized
        if last is not frame:
            size = wire.size(frame)
            self._sized = (frame, size)
        kind = frame.kind
        end.host.sent_frames[kind] += 1
        end.host.sent_bytes[kind] += size
        if self._is_fixed:  # every frame arrives as late as those before it, and nobody watches it
            arrival_ns = self.now_ns + end.delay_ns  # type: ignore[operator]
            if kind != Bye.kind:
                self._queue.push(arrival_ns, other, frame)
            else:
                self._queue.push(arrival_ns, self._arrive, (other, frame, 0, 0))
            return
        off = end.written_bytes
        end.written_bytes = off + size
        if self.traces_frames:
            self._trace_frame("send", end, end.side, frame, off, size)
        if self._encode:
            [(_, _, frame)] = wire.Decoder().feed(wire.encode(frame))
        if end.delay_ns is not None:
            arrival_ns = self.now_ns + end.delay_ns
        elif self._faults is None:
            arrival_ns = self._network.arrival_ns(self.now_ns, end.host.number, end.peer, size)
        else:
            if kind == Bye.kind:
                self._faults.close(end)
            if (arrives_ns := self._faults.send(end, size)) is None:
                return
            arrival_ns = arrives_ns
        earlier_ns = end.latest_ns
        if arrival_ns < earlier_ns:
            arrival_ns = earlier_ns
        end.latest_ns = arrival_ns
        if end.path is not None:
            self._push_packets(end, arrival_ns, (other, frame, off, size))
        elif self._is_plain and kind != Bye.kind:
            self._queue.push(arrival_ns, other, frame)
        elif size > MSS_BYTES and self._network.limits_rates:
            crossing = self._network.cross(arrival_ns, end.host.number, end.peer, size, earlier_ns)
            self._push_crossing(crossing, (other, frame, off, size))
        else:
            self._queue.push(arrival_ns, self._on_arrival, (other, frame, off, size))

    def _write_to_nobody(self, end: End, frame: Frame) -> None:
        """Write a frame to a connection that the other side has given up, if this side does not know it."""
        if self._faults is None or not self._faults.exists(end):
            return
        size = wire.size(frame)
        end.host.sent_frames[frame.kind] += 1
        end.host.sent_bytes[frame.kind] += size
        if self.traces_frames:
            self._trace_frame("send", end, end.side, frame, end.written_bytes, size)
        end.written_bytes += size
        self._faults.send(end, size)

    def note(self, event: str, end: End, direction: str | None = None, reason: str | None = None) -> None:
        if self.traces_frames:
            self._observer.trace(
                TraceEvent(
                    event, self.now_ns, end.host.number, end.peer, conn=end.conn, direction=direction, reason=reason
                )
            )

    # ------------------------------------------------------------------------------------------------ effects

    def _send(self, host: SimulatedHost, effect: contract.Send) -> None:
        end = host.links.get(effect.peer)
        if end is not None and not end.reason:
            self.write(end, effect.frame)
        elif self.traces_frames:
            peer, frame = effect.peer, effect.frame
            self._observer.trace(make_drop_event(self.now_ns, host.number, peer, frame, wire.size(frame), "no_link"))

    def _send_each(self, host: SimulatedHost, effect: contract.SendEach) -> None:
        if self._is_fixed:
            self._write_each(host, effect)
        else:
            for peer in effect.peers:
                self._send(host, contract.Send(peer, effect.frame))

    def _write_each(self, host: SimulatedHost, effect: contract.SendEach) -> None:
        """Write a frame to several links with fixed delays. Consecutive ones with the same delay are one event."""
        frame, links, sent = effect.frame, host.links, 0
        together: list[End] = []
        delay_ns: int | None = 0
        for peer in effect.peers:
            end = links.get(peer)
            if end is not None and not end.reason and end.other is not None:
                sent += 1
                if end.delay_ns != delay_ns:
                    self._push_together(delay_ns, together, frame)
                    together, delay_ns = [], end.delay_ns
                together.append(end.other)
        self._push_together(delay_ns, together, frame)
        host.sent_frames[frame.kind] += sent
        host.sent_bytes[frame.kind] += sent * wire.size(frame)

    def _push_together(self, delay_ns: int | None, ends: list[End], frame: Frame) -> None:
        """Let a frame arrive at the same time at several ends, or at one or none."""
        at_ns = self.now_ns + delay_ns  # type: ignore[operator]  # the delays are fixed
        if len(ends) == 1:
            self._queue.push(at_ns, ends[0], frame)
        elif ends:
            self._queue.push(at_ns, self._arrive_each, (ends, frame))

    def _set_timer(self, host: SimulatedHost, effect: contract.SetTimer) -> None:
        if not host.quiet:
            host.timers[effect.name] = effect.at_ns
            self.at(effect.at_ns, self._fire, host, host.node, effect.name, effect.at_ns)

    def _cancel_timer(self, host: SimulatedHost, effect: contract.CancelTimer) -> None:
        host.timers.pop(effect.name, None)

    def _fire(self, host: SimulatedHost, node: Node, name: str, at_ns: int) -> None:
        if host.backlog is not None:
            host.when_awake(self._fire, host, node, name, at_ns)
        elif host.node is node and host.timers.get(name) == at_ns:
            del host.timers[name]
            host.feed(TimerFired(name))

    # ------------------------------------------------------------------------------------------------ arrivals

    def _pass_down(self, arrival: Arrival) -> None:
        """Handle a frame of one packet at its receiver's access link, which is first come, first served."""
        end, _, _, size = arrival
        self._queue.push(self._network.pass_down_ns(self.now_ns, end.host.number, size), self._arrive, arrival)

    def _push_crossing(self, crossing: Crossing, arrival: Arrival) -> None:
        """Let the first and the last packet of a frame arrive at its receiver's access link."""
        passage = (crossing, arrival)
        self._queue.push(crossing.first_ns, self._begin_down, passage)
        if crossing.last_ns > crossing.first_ns:
            self._queue.push(crossing.last_ns, self._end_down, passage)

    def _begin_down(self, passage: tuple[Crossing, Arrival]) -> None:
        crossing, _ = passage
        crossing.link.begin(crossing)
        if crossing.last_ns == crossing.first_ns:
            self._end_down(passage)

    def _end_down(self, passage: tuple[Crossing, Arrival]) -> None:
        crossing, arrival = passage
        self._queue.push(crossing.link.end(crossing), self._arrive, arrival)

    def _push_packets(self, end: End, arrival_ns: int, arrival: Arrival) -> None:
        """Let the packets of a frame pass the bottlenecks on their way.

        Args:
            end: the sender's.
            arrival_ns: when the last packet would reach its receiver's access link if no bottleneck took time.
            arrival: of the frame.
        """
        *full, (last_bytes, _) = divide(arrival[-1], self._network.up_byte_ns(end.host.number))
        for size_bytes, earlier_ns in full:
            self._push_packet(end, arrival_ns - earlier_ns, size_bytes, self._load_down, (arrival[0], size_bytes))
        self._push_packet(end, arrival_ns, last_bytes, self._end_packets, (last_bytes, arrival))

    def _push_packet(
        self, end: End, arrival_ns: int, size_bytes: int, action: Callable[[Any], None], argument: object
    ) -> None:
        """Let a packet pass the bottlenecks on its way; it has its action at its receiver's access link."""
        assert end.path is not None
        parts_ns = split_ns(self.delay_ns(end.host.number, end.peer), end.path.stops)
        packet = Packet(end.path, parts_ns, size_bytes, action, argument)
        enter(self._queue.push, packet, arrival_ns, self.now_ns)

    def _load_down(self, passage: tuple[End, int]) -> None:
        """Handle a packet at its receiver's access link that is not the last one of its frame."""
        end, size_bytes = passage
        self._network.pass_down_ns(self.now_ns, end.host.number, size_bytes)

    def _end_packets(self, passage: tuple[int, Arrival]) -> None:
        """Handle the last packet of a frame at its receiver's access link."""
        size_bytes, arrival = passage
        passed_ns = self._network.pass_down_ns(self.now_ns, arrival[0].host.number, size_bytes)
        self._queue.push(passed_ns, self._arrive, arrival)

    def _arrive_each(self, arrivals: tuple[list[End], Frame]) -> None:
        """Handle a frame that arrives at several hosts at one instant."""
        ends, frame = arrivals
        for end in ends:
            if end.up:
                end.host.feed(FrameReceived(end.peer, frame))
            else:
                self._arrive((end, frame, 0, 0))

    def _arrive(self, arrival: Arrival) -> None:
        end, frame, off, size = arrival
        host = end.host
        if self._faults is not None:
            if not self._faults.hear(end):
                return
            if host.backlog is not None:
                host.when_awake(self._arrive, arrival)
                return
        if end.instance is not host.node and not end.reason:
            self._say_gone(end)
        if end.reason == CRASHED:
            return
        if self.traces_frames:
            side = "resp" if end.opener else "orig"
            self._trace_frame("receive", end, side, frame, off, size)
        if self._processing_ns is not None and (cost_ns := self._processing_ns(host.number)):
            host.ready_ns = max(host.ready_ns, self.now_ns) + cost_ns
            self.at(host.ready_ns, host.when_awake, self._handle, end, frame)
        else:
            self._handle(end, frame)

    def _handle(self, end: End, frame: Frame) -> None:
        if end.up and frame.kind != Bye.kind:
            end.host.feed(FrameReceived(end.peer, frame))
        elif end.instance is not end.host.node:
            if not end.reason:
                self._say_gone(end)
        elif isinstance(frame, Bye):
            end.host.receive_bye(end, frame.reason)
        elif isinstance(frame, Hello):
            end.host.table.introduced(end, end.peer)

    def _end(self, host: SimulatedHost, reason: str, *, goodbye: bool) -> None:
        """Take a host down."""
        if host.node is None:
            return
        for event in announce_end(host.node, self.now_ns, reason):
            self._observer.trace(event)
        for end in host.end(reason):
            if goodbye:
                self._say_bye(end, reason)
            elif end.other is not None:
                self.send_reset(end, end.other)
            if end.up:
                self.note("remove_peer", end, reason=reason)
            end.up, end.reason = False, reason

    def _say_bye(self, end: End, reason: str) -> None:
        if not end.reason:
            end.reason = reason
            self.write(end, Bye(reason))

    def _say_gone(self, end: End) -> None:
        """Answer a frame on a connection whose instance has ended: with ``Bye`` if it left, else with a reset."""
        if end.host.ended == LEFT:
            self._say_bye(end, LEFT)
        elif end.other is not None:
            end.reason = CRASHED
            self.send_reset(end, end.other)

    def _return(self, host: SimulatedHost) -> None:
        """Let a host that had vanished answer again: it resets the connections of which it knows nothing."""
        unanswered, host.unanswered, host.silent = host.unanswered, [], False
        for end in unanswered:
            if end.other is not None:
                self.send_reset(end, end.other)

    def send_reset(self, end: End, other: End) -> None:
        """Break a connection of a killed process; the other side learns of it after all that was sent.

        If the host has vanished, the other side learns of it when its kernel gives up.
        """
        if end.host.silent:
            end.host.unanswered.append(end)
            self.after(SILENCE_NS, self._time_out, end)
            return
        if self._faults is not None and not self._faults.is_reached(end):
            self._faults.abandon(other)
            end.other = None
            return
        arrival_ns = self._network.arrival_ns(self.now_ns, end.host.number, end.peer, 0)
        end.latest_ns = max(arrival_ns, end.latest_ns)
        if end.path is not None:
            self._push_packet(end, end.latest_ns, 0, self._hear_break, other)
        else:
            self.at(end.latest_ns, self._hear_break, other)

    def _hear_break(self, end: End) -> None:
        """Handle the end of a connection's stream at the receiver's access link."""
        at_ns = self.now_ns
        if self._network.limits_rates:
            at_ns = self._network.pass_down_ns(at_ns, end.host.number, 0)
        self.at(max(at_ns, end.host.ready_ns), self._reset, end)

    def _time_out(self, end: End) -> None:
        """Break the other side of a connection of a vanished host, unless it has ended in the meantime."""
        other = end.other
        if other is not None and other.host.node is not None:
            other.host.when_awake(other.host.lose, other, TIMEOUT)

    def _reset(self, end: End) -> None:
        if end.host.node is not None:
            end.host.when_awake(end.host.lose, end)

    def _trace_frame(self, event: str, end: End, side: str, frame: Frame, off: int, size: int) -> None:
        self._observer.trace(
            make_frame_event(event, self.now_ns, end.host.number, end.peer, end.conn, side, frame, off, size)
        )


def _call(request: tuple[Callable[..., None], tuple[Any, ...]]) -> None:
    action, arguments = request
    action(*arguments)
