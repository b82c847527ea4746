"""A simulated host: one node with its timers and connections, on virtual time.

``peer.core.links`` has the rules of links; a host applies them to simulated connections.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from harness.simulator.inner import InnerPath
from peer.core.contract import Effect, Event, LinkDown, LinkUp, Node, NodeId, Trace
from peer.core.frames import Bye, Frame, Hello
from peer.core.links import Connection, LinkTable
from peer.core.node import StatefulNode
from peer.trace import TraceEvent

RESET = "ConnectionResetError"
"""Reason of a connection that breaks because the process at the other side has ended."""

TIMEOUT = "TimeoutError"
"""Reason of a connection that breaks because the host at the other side no longer answers."""

DIAL_TIMEOUT_NS = 10_000_000_000
"""How long an attempt to open a connection waits for an answer (``CONNECT_TIMEOUT_S`` of ``peer.runtime.pool``)."""


class Engine(Protocol):
    """The simulation as its hosts and its faults know it.

    Attributes:
        now_ns: the virtual instant.
        hosts: every host, by number.
        handled: events that nodes have handled so far.
        sent_frames, sent_bytes: frames written to links so far; index = kind.
        run_number: the run's number in every Hello.
        traces_frames: whether events of frames and links are traced.
        perform: the function that executes an effect of a host, by type of the effect; ``trace`` for ``Trace``.
    """

    now_ns: int
    hosts: dict[NodeId, SimulatedHost]
    handled: int
    sent_frames: list[int]
    sent_bytes: list[int]
    run_number: int
    traces_frames: bool
    perform: dict[type[Effect], Callable[[SimulatedHost, Any], None]]

    def trace(self, event: TraceEvent) -> None:
        """Handle a trace event of a node."""

    def at(self, at_ns: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``action(*arguments)`` at a virtual instant."""

    def after(self, delay_ns: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``action(*arguments)`` after this time."""

    def delay_ns(self, source: NodeId, destination: NodeId) -> int:
        """Return the delay of a packet that is sent now."""
        ...

    def reach_ns(self, source: NodeId, destination: NodeId) -> int | None:
        """Return when the first packet of a connection that is opened now arrives; None = it is never answered."""
        ...

    def join(self, opener: SimulatedHost, peer: NodeId, listener: Node) -> End:
        """Make a connection that ``listener`` accepts, and return the opener's end."""
        ...

    def write(self, end: End, frame: Frame) -> None:
        """Send a frame from an end."""

    def send_reset(self, end: End, other: End) -> None:
        """Break a connection; the other side learns of it after all that was sent."""

    def note(self, event: str, end: End, direction: str | None = None, reason: str | None = None) -> None:
        """Trace an event of a connection."""


class End(Connection):
    """One side of a connection. Frames may be sent while it is ``up``.

    Attributes:
        host: the host of this side.
        other: the other side; None after the connection has ended.
        delay_ns: delay of every frame to the other side; None if it varies.
        path: the bottlenecks on the way to the other side; None = there are none.
        conn: the connection's name in traces.
        written_bytes: length of this side's stream so far.
        latest_ns: when the last of these bytes arrives.
        instance: the instance that opened or accepted the connection; later instances on the host do not use it.
    """

    __slots__ = ("conn", "delay_ns", "host", "instance", "latest_ns", "other", "path", "written_bytes")

    peer: NodeId

    def __init__(
        self,
        host: SimulatedHost,
        peer: NodeId,
        opener: bool,
        conn: str,
        instance: Node | None,
        delay_ns: int | None,
        path: InnerPath | None,
    ) -> None:
        super().__init__(peer, opener)
        self.host = host
        self.delay_ns = delay_ns
        self.path = path
        self.instance = instance
        self.conn = conn
        self.other: End | None = None
        self.written_bytes = 0
        self.latest_ns = 0


class SimulatedHost:
    """A node, its timers and its connections.

    Attributes:
        number: number of the node.
        node: the node; None while it is down.
        table: the links and the attempts to open links. Each instance of the node has its own, and an earlier one has
            no effect.
        links: the links of the table, for fast access.
        timers: the instant of each timer, by name.
        quiet: whether timers no longer fire.
        port: port of the latest connection that this host opened.
        ready_ns: when it has processed the frames that have arrived.
        sent_frames, sent_bytes: counters of the frames that it sends.
        ended: why the latest instance ended.
        silent: whether the host itself has vanished: it answers nothing until its next instance starts.
        unanswered: the ends of connections of which the other side does not know yet that this host has vanished.
        backlog: what the node does when it is no longer paused, in this order; None = it is not paused.
    """

    __slots__ = (
        "_draws",
        "_simulation",
        "backlog",
        "ended",
        "links",
        "node",
        "number",
        "port",
        "quiet",
        "ready_ns",
        "sent_bytes",
        "sent_frames",
        "silent",
        "table",
        "timers",
        "unanswered",
    )

    def __init__(self, simulation: Engine, number: NodeId, draws: Random) -> None:
        self._simulation = simulation
        self._draws = draws
        self.number = number
        self.node: StatefulNode | None = None
        self.quiet = False
        self.port = 32768
        self.ready_ns = 0
        self.silent = False
        self.unanswered: list[End] = []
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        self.sent_frames, self.sent_bytes = simulation.sent_frames, simulation.sent_bytes
        self._clear("")

    def feed(self, event: Event) -> None:
        """Give the node an event and execute its effects; ignore the event if the node is down."""
        if self.node is not None:
            simulation = self._simulation
            simulation.handled += 1
            perform, trace = simulation.perform, simulation.trace
            for effect in self.node.handle(simulation.now_ns, event):
                if type(effect) is Trace:  # almost every second effect
                    trace(effect.event)
                else:
                    perform[type(effect)](self, effect)

    def quiesce(self) -> None:
        """Wake the node, stop timers, and neither open nor accept connections; existing ones stay."""
        self.wake()
        self.quiet = self.table.quiet = True
        self.timers.clear()

    def sleep(self) -> None:
        """Pause the node: it does nothing, while the host's kernel goes on."""
        self.backlog = []

    def wake(self) -> None:
        """Let a paused node go on: it does first what it has missed."""
        backlog, self.backlog = self.backlog or [], None
        for action, arguments in backlog:
            action(*arguments)

    def when_awake(self, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``action(*arguments)`` now, or when the node is no longer paused."""
        if self.backlog is None:
            action(*arguments)
        else:
            self.backlog.append((action, arguments))

    def end(self, reason: str) -> list[End]:
        """Take the node down; return the connections that are left."""
        left = self.table.end()
        self._clear(reason)
        return left

    def _clear(self, reason: str) -> None:
        self.node = None
        self.ended = reason
        self.timers: dict[str, int] = {}
        self.table: LinkTable[End] = LinkTable(self, self.number, self._draws)
        self.table.quiet = self.quiet
        self.links = self.table.links

    # ------------------------------------------------------------------------------------ told by the network

    def receive_bye(self, end: End, reason: str) -> None:
        """Handle a close by the other side, and send this side's FIN."""
        self.table.peer_closed(end, reason)
        other = end.other
        self.lose(end)
        if other is not None:
            table = other.host.table
            if table.pending.get(self.number) is other:
                delay_ns = self._simulation.delay_ns(self.number, end.peer)
                self._simulation.after(delay_ns, other.host.when_awake, table.lost, other, RESET)

    def lose(self, end: End, error: str = RESET) -> None:
        if end.other is not None:
            end.other.other = None
            end.other = None
        self.table.lost(end, error)

    # -------------------------------------------------------------------------------------- told by the table

    def now_ns(self) -> int:
        return self._simulation.now_ns

    def pause(self, peer: NodeId, pause_s: float) -> None:
        self._simulation.after(round(pause_s * 1e9), self.table.attempt, peer)

    def open(self, peer: NodeId) -> None:
        """Begin an attempt, which succeeds or is refused one round trip later; vanished hosts do not answer it."""
        if self.backlog is None:
            self._dial(peer, self.table)
        else:
            self.when_awake(self._dial, peer, self.table)

    def _dial(self, peer: NodeId, table: LinkTable[End]) -> None:
        simulation = self._simulation
        until_ns = simulation.now_ns + DIAL_TIMEOUT_NS
        reached_ns = simulation.reach_ns(self.number, peer)
        if reached_ns is None:
            simulation.at(until_ns, self._take_answer, peer, table, None)
        else:
            simulation.at(reached_ns, self._reach, peer, table, until_ns)

    def _reach(self, peer: NodeId, table: LinkTable[End], until_ns: int) -> None:
        """Handle the arrival of an attempt at the peer."""
        simulation = self._simulation
        there = simulation.hosts.get(peer)
        listener = there.node if there is not None and peer != self.number else None
        if there is not None and there.silent:
            simulation.at(until_ns, self._take_answer, peer, table, None)
            return
        simulation.after(simulation.delay_ns(peer, self.number), self._take_answer, peer, table, listener)

    def _take_answer(self, peer: NodeId, table: LinkTable[End], listener: Node | None) -> None:
        if self.backlog is not None:
            self.when_awake(self._take_answer, peer, table, listener)
        elif listener is not None and table.lacks(peer):
            table.opened(self._simulation.join(self, peer, listener), peer)
        else:
            table.failed(peer)

    def say_hello(self, end: End) -> None:
        self._simulation.write(end, Hello(self.number, self._simulation.run_number))

    def say_goodbye(self, end: End, reason: str) -> None:
        self._simulation.write(end, Bye(reason))

    def wait(self, end: End, old: End, wait_s: float) -> None:
        """Do nothing: the reset of a lost connection arrives by itself."""
        self._simulation.after(round(wait_s * 1e9), self.when_awake, self.table.wait_over, end)

    def rejected(self, end: End, reason: str) -> None:
        self._simulation.note("reject", end, reason=reason)

    def link_up(self, end: End, outbound: bool) -> None:
        if self._simulation.traces_frames:
            self._simulation.note("add_peer", end, direction=end.side)
        self.feed(LinkUp(end.peer, outbound))

    def link_down(self, end: End, retrying: bool) -> None:
        if self._simulation.traces_frames:
            self._simulation.note("remove_peer", end, reason=end.reason)
        self.feed(LinkDown(end.peer, end.reason, retrying))

    def gave_up(self, peer: NodeId, reason: str) -> None:
        self.feed(LinkDown(peer, reason, False))
