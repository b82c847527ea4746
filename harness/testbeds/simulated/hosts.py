"""A simulated host: one node with its links, as ``peer.runtime`` keeps them, on virtual time.

The rules of ``peer.runtime.pool`` are kept one by one: who wins when both sides open at once, pauses between attempts,
how long a connection waits for the end of the link that its node has lost, the frames that open and close a link. What
differs is the carrier.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from peer.core.contract import Event, LinkDown, LinkUp, Node, NodeId, Trace
from peer.core.frames import Bye, Hello
from peer.core.node import StatefulNode
from peer.runtime.pool import ALREADY_LINKED, PASSING, PAUSES_S, SIMULTANEOUS, STABLE_S, WAIT_S

if TYPE_CHECKING:
    from harness.testbeds.simulated.simulation import Simulation


class End:
    """One side of a connection.

    Attributes:
        other: the other side, None once the connection is gone.
        opener: whether this side opened it ("orig" in traces).
        delay_ns: of every frame to the other side; None where it differs.
        conn: the connection's name in traces.
        written_bytes: the length of this side's stream so far.
        latest_ns: when the last of them arrives.
        life: the node that opened or took the connection; another one on the same host has no part in it.
        up: whether frames may be sent; ``reason``: why it is to end, empty as long as nobody wants it to.
    """

    __slots__ = (
        "conn",
        "delay_ns",
        "host",
        "latest_ns",
        "life",
        "opener",
        "other",
        "peer",
        "reason",
        "up",
        "up_since_ns",
        "written_bytes",
    )

    def __init__(
        self, host: Host, peer: NodeId, opener: bool, conn: str, life: Node | None, delay_ns: int | None
    ) -> None:
        self.host = host
        self.delay_ns = delay_ns
        self.life = life
        self.peer = peer
        self.opener = opener
        self.conn = conn
        self.other: End | None = None
        self.written_bytes = 0
        self.latest_ns = 0
        self.up = False
        self.up_since_ns = 0
        self.reason = ""

    @property
    def side(self) -> str:
        """This side as traces name it."""
        return "orig" if self.opener else "resp"


class Host:
    """A node, its timers and its connections."""

    __slots__ = (
        "_draws",
        "_simulation",
        "dialling",
        "ended",
        "links",
        "node",
        "number",
        "pending",
        "port",
        "quiet",
        "ready_ns",
        "sent_bytes",
        "sent_frames",
        "timers",
        "topics",
        "waiting",
        "wanted",
    )

    def __init__(self, simulation: Simulation, number: NodeId, draws: Random) -> None:
        self._simulation = simulation
        self._draws = draws
        self.number = number
        self.node: StatefulNode | None = None
        self.topics: tuple[int, ...] = ()
        self.links: dict[NodeId, End] = {}
        self.waiting: dict[NodeId, End] = {}  # for the end of the link in links
        self.pending: dict[NodeId, End | None] = {}
        self.dialling: set[NodeId] = set()
        self.wanted: dict[NodeId, int] = {}
        self.timers: dict[str, int] = {}
        self.quiet = False
        self.port = 32768
        self.ready_ns = 0
        self.sent_frames, self.sent_bytes = simulation.sent_frames, simulation.sent_bytes
        self.ended = ""  # why the latest life was over

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

    # ------------------------------------------------------------------------------------------------ opening

    def connect(self, peer: NodeId) -> None:
        """Keep a link to the peer up from now on."""
        self.wanted.setdefault(peer, 0)
        self._dial(peer)

    def _dial(self, peer: NodeId) -> None:
        if self.quiet or peer in self.links or peer in self.dialling or peer in self.pending:
            return
        pause_s = PAUSES_S[self.wanted[peer]] * self._draws.uniform(0.5, 1.5)
        self.wanted[peer] += 1
        self.dialling.add(peer)
        self._simulation.after(round(pause_s * 1e9), self._open, peer, self.node)

    def _open(self, peer: NodeId, node: Node | None) -> None:
        """Begin an attempt: the connection is there, or refused, one round trip later."""
        if node is not self.node:
            return
        self.dialling.discard(peer)
        if peer not in self.wanted or peer in self.links or self.quiet:
            self.retry_or_give_up(peer, "unreachable", worth_it=True)
            return
        self.pending[peer] = None
        simulation = self._simulation
        simulation.after(simulation.delay_ns(self.number, peer), self._knock, peer, node)

    def _knock(self, peer: NodeId, node: Node | None) -> None:
        """The attempt is at the peer."""
        simulation = self._simulation
        there = simulation.hosts.get(peer)
        listener = there.node if there is not None and peer != self.number else None
        simulation.after(simulation.delay_ns(peer, self.number), self._opened, peer, node, listener)

    def _opened(self, peer: NodeId, node: Node | None, listener: Node | None) -> None:
        """The opener says hello, unless the other side was faster."""
        if node is not self.node:
            return
        if self.pending.get(peer, self) is not None:  # the wish is gone, perhaps for a new one
            return
        del self.pending[peer]
        if listener is not None and not self.quiet and peer not in self.links and peer in self.wanted:
            end = self._simulation.join(self, peer, listener)
            self.pending[peer] = end
            self._simulation.write(end, Hello(self.number, self._simulation.run_number))
        else:
            self.retry_or_give_up(peer, "unreachable", worth_it=listener is None)

    def retry_or_give_up(self, peer: NodeId, reason: str, *, worth_it: bool) -> None:
        """After an attempt, of which the node has heard nothing: begin the next one where it did not succeed."""
        if self.quiet or peer not in self.wanted or peer in self.links or peer in self.pending:
            return
        if worth_it and self.wanted[peer] < len(PAUSES_S):
            self._dial(peer)
        else:
            del self.wanted[peer]
            self.feed(LinkDown(peer, reason, False))

    # ---------------------------------------------------------------------------------------------- handshake

    def introduce(self, end: End) -> None:
        """The other side said who it is: take the connection or refuse it."""
        if end.reason:
            return
        if self.quiet:
            self.close(end, "stop")
        elif self._has_precedence_over(end):
            self.close(end, SIMULTANEOUS)
        elif self._is_awaited(end.peer):
            self._reject(end, ALREADY_LINKED)
        elif end.peer in self.links:
            self.waiting[end.peer] = end
            self._simulation.after(round(WAIT_S * 1e9), self._wait_no_longer, end)
        else:
            self._bring_up(end)

    def _wait_no_longer(self, end: End) -> None:
        """The link that a connection waits for lives on."""
        if self.waiting.get(end.peer) is end:
            del self.waiting[end.peer]
            if end.other is not None:
                self._reject(end, ALREADY_LINKED)

    def _is_awaited(self, peer: NodeId) -> bool:
        """Whether a connection with the peer waits and is still there."""
        waiting = self.waiting.get(peer)
        return waiting is not None and waiting.other is not None

    def _reject(self, end: End, reason: str) -> None:
        self._simulation.note("reject", end, reason=reason)
        self.close(end, reason)

    def _has_precedence_over(self, end: End) -> bool:
        old = self.links.get(end.peer)
        if end.opener:
            return old is not None
        own = end.peer in self.pending or (old is not None and old.opener)
        return own and self.number < end.peer

    def _bring_up(self, end: End) -> None:
        peer = end.peer
        if self.pending.get(peer) is end:
            del self.pending[peer]
        if not end.opener:
            self._simulation.write(end, Hello(self.number, self._simulation.run_number))
        end.up = True
        end.up_since_ns = self._simulation.now_ns
        self.links[peer] = end
        self._simulation.note("add_peer", end, direction=end.side)
        self.feed(LinkUp(peer, peer in self.wanted))

    # ------------------------------------------------------------------------------------------------ closing

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Close the link to the peer and keep none."""
        self.wanted.pop(peer, None)
        if (waiting := self.waiting.pop(peer, None)) is not None:
            self.close(waiting, reason)
        pending = self.pending.get(peer)
        if pending is not None:
            del self.pending[peer]
            self.close(pending, reason)
        if (end := self.links.get(peer)) is not None:
            self.close(end, reason)

    def close(self, end: End, reason: str) -> None:
        """Say goodbye on a connection."""
        if not end.reason and end.other is not None:
            end.reason = reason
            self._simulation.write(end, Bye(reason))
        self.take_down(end)

    def receive_bye(self, end: End, reason: str) -> None:
        """The other side has said its last, and hears this side's FIN in turn."""
        end.reason = end.reason or reason
        self.take_down(end)
        other = end.other
        self.lose(end, broke=False)
        if other is not None and other.host.pending.get(self.number) is other:
            self._simulation.after(self._simulation.delay_ns(self.number, end.peer), other.host.forget, other)

    def lose(self, end: End, *, broke: bool) -> None:
        """A connection is gone: try again, unless one side ended it on purpose."""
        if end.other is not None:
            end.other.other = None
            end.other = None
        if not end.reason:
            end.reason = "ConnectionResetError"
        self.take_down(end, broke=broke)
        self.forget(end, broke=broke)

    def forget(self, end: End, *, broke: bool = False) -> None:
        """An attempt's connection is gone: begin the next attempt where this one did not succeed."""
        if self.pending.get(end.peer) is end:
            del self.pending[end.peer]
            self.retry_or_give_up(end.peer, end.reason, worth_it=broke or end.reason in PASSING)

    def take_down(self, end: End, *, broke: bool = False) -> None:
        """The link is of no more use: tell the node, and try again where it was not ended on purpose."""
        peer = end.peer
        if not end.up:
            return
        end.up = False
        del self.links[peer]
        self._simulation.note("remove_peer", end, reason=end.reason)
        if peer in self.wanted and self._simulation.now_ns - end.up_since_ns > STABLE_S * 1e9:
            self.wanted[peer] = 0
        passing = broke or end.reason in PASSING
        retrying = passing and not self.quiet and self.wanted.get(peer, len(PAUSES_S)) < len(PAUSES_S)
        if not retrying:
            self.wanted.pop(peer, None)
        self.feed(LinkDown(peer, end.reason, retrying))
        if (waiting := self.waiting.pop(peer, None)) is not None and waiting.other is not None:
            self.introduce(waiting)
        if peer in self.wanted:
            self._dial(peer)

    def quiesce(self) -> None:
        """Fire no more timers, open no more connections and take none; those that are up stay."""
        self.quiet = True
        self.timers.clear()
