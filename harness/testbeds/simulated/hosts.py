"""A simulated host: one node with its timers and its connections, on virtual time.

``peer.core.links`` has the rules of links; a host carries them out with simulated connections.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from peer.core.contract import Event, LinkDown, LinkUp, Node, NodeId, Trace
from peer.core.frames import Bye, Hello
from peer.core.links import Connection, LinkTable
from peer.core.node import StatefulNode

if TYPE_CHECKING:
    from harness.testbeds.simulated.simulation import Simulation

RESET = "ConnectionResetError"
"""Why a connection breaks whose other side's process has ended."""


class End(Connection):
    """One side of a connection. Frames may be sent as long as it is ``up``.

    Attributes:
        host: where it is.
        other: the other side, None once the connection is gone.
        delay_ns: of every frame to the other side; None where it differs.
        conn: the connection's name in traces.
        written_bytes: the length of this side's stream so far.
        latest_ns: when the last of them arrives.
        life: the node that opened or took the connection; another one on the same host has no part in it.
    """

    __slots__ = ("conn", "delay_ns", "host", "latest_ns", "life", "other", "written_bytes")

    peer: NodeId

    def __init__(
        self, host: Host, peer: NodeId, opener: bool, conn: str, life: Node | None, delay_ns: int | None
    ) -> None:
        super().__init__(peer, opener)
        self.host = host
        self.delay_ns = delay_ns
        self.life = life
        self.conn = conn
        self.other: End | None = None
        self.written_bytes = 0
        self.latest_ns = 0

    @property
    def side(self) -> str:
        """This side as traces name it."""
        return "orig" if self.opener else "resp"


class Host:
    """A node, its timers and its connections.

    Attributes:
        number: the node's.
        node: the node; None while it is down.
        table: the links and the attempts at them; each life of the node has its own, and what is left of an earlier
            one has no effect.
        links: those of the table, at hand for every frame.
        timers: the instant of each timer, by name.
        quiet: whether no timer fires any more.
        port: that of the latest connection that was opened from here.
        ready_ns: when it has processed the frames that have arrived.
        sent_frames, sent_bytes: where the frames that it sends are counted.
        ended: why the latest life was over.
    """

    __slots__ = (
        "_draws",
        "_simulation",
        "ended",
        "links",
        "node",
        "number",
        "port",
        "quiet",
        "ready_ns",
        "sent_bytes",
        "sent_frames",
        "table",
        "timers",
    )

    def __init__(self, simulation: Simulation, number: NodeId, draws: Random) -> None:
        self._simulation = simulation
        self._draws = draws
        self.number = number
        self.node: StatefulNode | None = None
        self.quiet = False
        self.port = 32768
        self.ready_ns = 0
        self.sent_frames, self.sent_bytes = simulation.sent_frames, simulation.sent_bytes
        self._clear("")

    def feed(self, event: Event) -> None:
        """Give the node an event and carry out what it answers; nothing happens to a node that is down."""
        if self.node is not None:
            simulation = self._simulation
            simulation.handled += 1
            perform, trace = simulation.perform, simulation.trace
            for effect in self.node.handle(simulation.now_ns, event):
                if type(effect) is Trace:  # as nearly every second one
                    trace(effect.event)
                else:
                    perform[type(effect)](self, effect)

    def quiesce(self) -> None:
        """Fire no more timers, open no more connections and take none; those that are up stay."""
        self.quiet = self.table.quiet = True
        self.timers.clear()

    def end(self, reason: str) -> list[End]:
        """The node is down from now on.

        Returns:
            The connections that are left.
        """
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
        """The other side has closed the connection, and hears this side's FIN in turn."""
        self.table.peer_closed(end, reason)
        other = end.other
        self.lose(end)
        if other is not None:
            table = other.host.table
            if table.pending.get(self.number) is other:
                self._simulation.after(self._simulation.delay_ns(self.number, end.peer), table.lost, other, RESET)

    def lose(self, end: End) -> None:
        """A connection is gone."""
        if end.other is not None:
            end.other.other = None
            end.other = None
        self.table.lost(end, RESET)

    # -------------------------------------------------------------------------------------- told by the table

    def now_ns(self) -> int:
        """The virtual instant."""
        return self._simulation.now_ns

    def pause(self, peer: NodeId, pause_s: float) -> None:
        """Begin an attempt when this time has passed."""
        self._simulation.after(round(pause_s * 1e9), self.table.attempt, peer)

    def open(self, peer: NodeId) -> None:
        """Begin an attempt: the connection is there, or refused, one round trip later."""
        simulation = self._simulation
        simulation.after(simulation.delay_ns(self.number, peer), self._reach, peer, self.table)

    def _reach(self, peer: NodeId, table: LinkTable[End]) -> None:
        """The attempt is at the peer."""
        simulation = self._simulation
        there = simulation.hosts.get(peer)
        listener = there.node if there is not None and peer != self.number else None
        simulation.after(simulation.delay_ns(peer, self.number), self._take_answer, peer, table, listener)

    def _take_answer(self, peer: NodeId, table: LinkTable[End], listener: Node | None) -> None:
        """The answer to the attempt is here."""
        if listener is not None and table.awaits(peer):
            table.opened(self._simulation.join(self, peer, listener), peer)
        else:
            table.failed(peer)

    def say_hello(self, end: End) -> None:
        """Send this node's ``Hello``."""
        self._simulation.write(end, Hello(self.number, self._simulation.run_number))

    def say_goodbye(self, end: End, reason: str) -> None:
        """Send ``Bye``."""
        self._simulation.write(end, Bye(reason))

    def wait(self, end: End, old: End, wait_s: float) -> None:
        """Only time has to pass: the reset of a connection that is gone arrives unasked."""
        self._simulation.after(round(wait_s * 1e9), self.table.wait_over, end)

    def rejected(self, end: End, reason: str) -> None:
        """Trace a refusal."""
        self._simulation.note("reject", end, reason=reason)

    def link_up(self, end: End, outbound: bool) -> None:
        """A link is up."""
        self._simulation.note("add_peer", end, direction=end.side)
        self.feed(LinkUp(end.peer, outbound))

    def link_down(self, end: End, retrying: bool) -> None:
        """A link has ended."""
        self._simulation.note("remove_peer", end, reason=end.reason)
        self.feed(LinkDown(end.peer, end.reason, retrying))

    def gave_up(self, peer: NodeId, reason: str) -> None:
        """The attempts at a link were given up."""
        self.feed(LinkDown(peer, reason, False))
