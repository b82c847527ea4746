"""Carries out the changes of a timeline in a simulation: cuts meet TCP as in Linux, and paused peers do nothing.

A packet that enters a cut link is lost. Its sender's kernel sends it again after the retransmission timeout, and then
after twice the time before, until the acknowledgement comes. Until then it sends nothing else, so later bytes follow
when the first ones are acknowledged. A kernel gives a connection up if bytes are not acknowledged for
``SILENCE_NS``, or, on an idle connection, if nothing was heard for that time. The other side is not told. It learns of
it from the answer to what it sends next, or gives up itself. A test of what is sent decides all that at once, since a
timeline is known beforehand (``ChangingNetwork.pass_ns``).

Not simulated: tail loss probes, which send again earlier than the timeout, and windows that fill while a peer is
paused.
"""

from collections.abc import Iterator

from harness.simulator.changes import ChangingNetwork
from harness.simulator.hosts import RESET, TIMEOUT, End, Engine
from harness.simulator.network import RETRANSMISSION_NS

SILENCE_NS = 30_000_000_000
"""How long a kernel waits for an acknowledgement: the peers' ``TCP_USER_TIMEOUT`` (``peer.runtime.tcp_connection``),
which counts both for data and for keepalive probes."""

IDLE_NS = 20_000_000_000
PROBE_NS = 5_000_000_000
"""After how much silence a kernel sends a keepalive probe, and when it sends the next one
(``peer.runtime.tcp_connection``)."""

SYN_NS = (0, 1_000_000_000, 3_000_000_000, 7_000_000_000)
"""When Linux sends the first packet of a connection, and repeats it, within the ten seconds that a peer waits."""

HANDSHAKE_NS = 10_000_000_000
CLOSE_NS = 5_000_000_000
"""How long a connection may take to become a link, and to close (``HANDSHAKE_TIMEOUT_S`` and ``CLOSE_TIMEOUT_S`` of
``peer.runtime.tcp_connection``). Without faults no connection takes so long."""

FOREVER_NS = 1 << 62


class Stream:
    """What the kernel at one end of a connection knows of it.

    Attributes:
        heard_ns: when it last heard of the other side.
        acked_ns: when what was sent last is acknowledged; ``FOREVER_NS`` = never.
        held_ns: when the bytes were sent that hold the stream, since they were not acknowledged at once; None = none.
        released_ns: when these bytes are acknowledged; ``FOREVER_NS`` = never.
        abandoned: whether the other side has given the connection up.
        closed: whether this side has; nothing that arrives later matters.
    """

    __slots__ = ("abandoned", "acked_ns", "closed", "heard_ns", "held_ns", "released_ns")

    def __init__(self, now_ns: int) -> None:
        self.heard_ns = now_ns
        self.acked_ns = now_ns
        self.held_ns: int | None = None
        self.released_ns = now_ns
        self.abandoned = False
        self.closed = False

    def last_heard_ns(self, now_ns: int) -> int:
        """Return when the kernel last heard of the other side, including acknowledgements."""
        return max(self.heard_ns, self.acked_ns if self.acked_ns <= now_ns else 0)


class Faults:
    """The changes of a simulation's network and peers, and the kernels of its hosts while links are cut.

    A simulation with faults gives both ends of a connection a stream (``open``), asks ``send`` when bytes arrive, and
    tells what arrives (``hear``).

    Args:
        simulation: gets the events.
        network: the network with its timeline.
    """

    def __init__(self, simulation: Engine, network: ChangingNetwork) -> None:
        self._simulation = simulation
        self._network = network
        self._streams: dict[End, Stream] = {}
        for at_ns in network.timeline.instants:
            simulation.at(at_ns, self._change, at_ns)

    # ---------------------------------------------------------------------------------------------- changes

    def _change(self, at_ns: int) -> None:
        """Let the changes of an instant begin and end."""
        self._network.set_rates(at_ns)
        for reach in self._network.timeline.active(at_ns):
            if reach.change.from_ns == at_ns and reach.change.is_cut:
                self._watch_links(reach.change.sources, frozenset(reach.change.destinations))
        paused = self._network.timeline.paused(at_ns)
        for host in self._simulation.hosts.values():
            sleeps = host.number in paused and not host.quiet
            if sleeps and host.backlog is None:
                host.sleep()
            elif not sleeps:
                host.wake()

    def _watch_links(self, sources: tuple[int, ...], destinations: frozenset[int]) -> None:
        """Let the kernels at both ends of links from one of the sources to one of the destinations wait for news."""
        for source in sources:
            for peer, end in self._simulation.hosts[source].links.items():
                if peer in destinations:
                    for side in (end, end.other):
                        if side is not None:
                            self._watch(side)

    # ---------------------------------------------------------------------------------------------- streams

    def reach_ns(self, source: int, destination: int) -> int | None:
        """Return when the first packet of a connection that is answered arrives; None = no answer comes."""
        now_ns, network = self._simulation.now_ns, self._network
        for sent_ns in (now_ns + after_ns for after_ns in SYN_NS):
            if network.answered_ns(sent_ns, source, destination) is not None:
                return network.pass_ns(sent_ns, source, destination)
        return None

    def open(self, end: End) -> None:
        """Begin the stream from an end of a new connection, which is aborted if no link comes of it."""
        self._streams[end] = Stream(self._simulation.now_ns)
        self._simulation.after(HANDSHAKE_NS, self._limit_handshake, end)

    def close(self, end: End) -> None:
        """Note that an end has said goodbye: it is aborted if the other side does not answer."""
        self._simulation.after(CLOSE_NS, self._abort, end)

    def hear(self, end: End) -> bool:
        """Note that bytes have arrived at an end. Return whether the connection still exists there."""
        stream = self._streams[end]
        stream.heard_ns = self._simulation.now_ns
        return not stream.closed

    def exists(self, end: End) -> bool:
        """Return whether an end can still send, to the other side or to where it was."""
        stream = self._streams[end]
        return end.other is not None or (stream.abandoned and not stream.closed)

    def send(self, end: End, size_bytes: int) -> int | None:
        """Send bytes, and return when the last of them arrives, unless earlier bytes delay them; None = never."""
        stream, now_ns = self._streams[end], self._simulation.now_ns
        if stream.abandoned:
            self._send_to_nobody(end, stream)
            return None
        at_ns = now_ns
        while stream.held_ns is not None and at_ns < stream.released_ns:
            at_ns = max(at_ns, stream.held_ns)
            is_noticed = at_ns >= stream.held_ns + self._timeout_ns(end, stream.held_ns)
            arrival_ns = None if is_noticed else self._first_pass_ns(end, at_ns, now_ns, size_bytes)
            if arrival_ns is not None:
                return arrival_ns
            if stream.released_ns == FOREVER_NS:
                return None
            at_ns = stream.released_ns
        return self._transmit(end, stream, at_ns, now_ns, size_bytes)

    def _transmit(self, end: End, stream: Stream, at_ns: int, now_ns: int, size_bytes: int) -> int | None:
        """Send bytes on a stream that nothing holds, again and again until they are acknowledged."""
        arrival_ns = None
        for number, try_ns in enumerate(self._tries_ns(end, at_ns)):
            if number:
                came_ns = self._network.pass_ns(try_ns, end.host.number, end.peer)
            else:
                came_ns = self._first_pass_ns(end, at_ns, now_ns, size_bytes)
            if came_ns is None:
                continue
            arrival_ns = came_ns if arrival_ns is None else arrival_ns
            acked_ns = self._network.pass_ns(came_ns, end.peer, end.host.number)
            if acked_ns is not None:
                if number:
                    stream.held_ns, stream.released_ns = at_ns, acked_ns
                stream.acked_ns = max(acked_ns, stream.acked_ns)
                return arrival_ns
        self._await_end(end, at_ns)
        return arrival_ns

    def _first_pass_ns(self, end: End, at_ns: int, now_ns: int, size_bytes: int) -> int | None:
        """Return when bytes arrive that enter the link for the first time; None = they are lost in a cut.

        Bytes that are sent later than now do not wait for others at access links, which are first come, first served.
        """
        source, destination = end.host.number, end.peer
        if self._network.pass_ns(at_ns, source, destination, 0) is None:
            return None
        if at_ns > now_ns:
            return self._network.pass_ns(at_ns, source, destination)
        arrival_ns = self._network.arrival_ns(now_ns, source, destination, size_bytes)
        return self._network.pass_ns(at_ns, source, destination, arrival_ns - at_ns)

    def _tries_ns(self, end: End, at_ns: int) -> Iterator[int]:
        """Yield when a kernel sends bytes, for the first time and again, before it gives up."""
        wait_ns, try_ns = self._timeout_ns(end, at_ns), at_ns
        while try_ns < at_ns + SILENCE_NS:
            yield try_ns
            try_ns, wait_ns = try_ns + wait_ns, 2 * wait_ns

    def _timeout_ns(self, end: End, at_ns: int) -> int:
        """Return the time after which a kernel sends bytes again that it sent at an instant."""
        return RETRANSMISSION_NS + self._network.round_trip_ns(at_ns, end.host.number, end.peer)

    # ------------------------------------------------------------------------------------------- giving up

    def _send_to_nobody(self, end: End, stream: Stream) -> None:
        """Send bytes to a side that has given the connection up: its host resets it, if the bytes reach it."""
        now_ns = self._simulation.now_ns
        answered_ns = self._network.answered_ns(now_ns, end.host.number, end.peer)
        if answered_ns is not None:
            self._simulation.at(answered_ns, self._close, end, RESET)
        elif stream.acked_ns != FOREVER_NS:
            self._await_end(end, now_ns)

    def _await_end(self, end: End, since_ns: int) -> None:
        """Let the kernel at an end give up, since bytes that it sent at an instant are never acknowledged."""
        stream = self._streams[end]
        stream.held_ns, stream.released_ns, stream.acked_ns = since_ns, FOREVER_NS, FOREVER_NS
        self._simulation.at(since_ns + SILENCE_NS, self._give_up, end)

    def is_reached(self, end: End) -> bool:
        """Return whether a packet that an end sends now arrives at the other side."""
        return self._network.pass_ns(self._simulation.now_ns, end.host.number, end.peer) is not None

    def abandon(self, end: End) -> None:
        """Leave an end without its other side, of which it has not been told. What it sends again is reset."""
        stream = self._streams[end]
        stream.abandoned = True
        end.other = None
        if self._simulation.now_ns < stream.acked_ns < FOREVER_NS:
            self._simulation.at(stream.acked_ns, self._close, end, RESET)
        self._watch(end)

    def _watch(self, end: End) -> None:
        """Let the kernel at an end send keepalive probes, if it hears nothing from now on."""
        now_ns = self._simulation.now_ns
        self._simulation.at(now_ns + IDLE_NS, self._probe, end, now_ns)

    def _probe(self, end: End, since_ns: int) -> None:
        """Send a keepalive probe, or give up, if nothing was heard since an instant and no bytes are under way."""
        stream, now_ns = self._streams[end], self._simulation.now_ns
        if not self.exists(end) or stream.last_heard_ns(now_ns) > since_ns or stream.acked_ns > now_ns:
            return
        answered_ns = self._network.answered_ns(now_ns, end.host.number, end.peer)
        if answered_ns is not None:
            if stream.abandoned:
                self._simulation.at(answered_ns, self._close, end, RESET)
        elif now_ns < since_ns + SILENCE_NS:
            self._simulation.at(now_ns + PROBE_NS, self._probe, end, since_ns)
        else:
            self._give_up(end)

    def _give_up(self, end: End) -> None:
        self._close(end, TIMEOUT)

    def _close(self, end: End, error: str) -> None:
        """End a connection at one side, unless it has ended there. The other side is not told."""
        if not self.exists(end):
            return
        self._streams[end].closed = True
        if end.other is not None:
            self.abandon(end.other)
            end.other = None
        if end.host.node is not None:
            end.host.when_awake(end.host.lose, end, error)

    def _abort(self, end: End) -> None:
        """End a connection at one side, unless it has ended there, and reset the other side."""
        if (other := end.other) is not None:
            self._simulation.send_reset(end, other)
            self._close(end, RESET)

    def _limit_handshake(self, end: End) -> None:
        if not end.up and not end.reason:
            self._abort(end)
