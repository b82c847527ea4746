"""The rules of links: when a node opens a connection, which of two connections survives, when the node redials.

A node returns ``Connect`` and ``Disconnect``. Its ``LinkTable`` decides what that means for connections, and what to
report to the node. A ``Carrier`` carries the decisions out. There are three carriers: ``peer.runtime.pool`` over TCP,
``harness.simulator.hosts`` over simulated TCP, and ``peer.testing`` in memory. All rules are here.

Terms
-----
A *connection* is a byte stream between two nodes. Its opener sends ``Hello``, and the acceptor answers with ``Hello``.
From then on it is the *link* of the two nodes: for the acceptor when it answers, for the opener when the answer
arrives. So the acceptor decides. A side that closes on purpose sends ``Bye`` with a reason.

States
------
A table has at most one attempt and one link per peer, each with states of its own. *Lacking* means: the node wants the
link, there is none, and the table is not quiet. *Again or give up* is rule 3.

============  ===================  ==============================  =================================================
the attempt   held in              event                           next state, and what the carrier does
============  ===================  ==============================  =================================================
idle                               ``connect``; or an attempt or   pausing: ``pause``
                                   link has ended, and rule 3
                                   says: again
pausing       ``dialling``         ``attempt``, lacking            connecting: ``open``
                                   ``attempt``, not lacking        idle
connecting    ``pending``: None    ``opened``                      greeting: ``say_hello``
                                   ``failed``                      idle: again or give up
greeting      ``pending``: the     ``introduced``, no link         idle: ``link_up``
              connection           ``introduced``, a link          greeting: ``say_goodbye``, simultaneous open
                                   ``introduced``, not wanted      idle: ``say_goodbye``, unwanted
                                   ``disconnect``                  idle: ``say_goodbye``
                                   ``lost``                        idle: again or give up
============  ===================  ==============================  =================================================

============  ===================  ==============================  =================================================
the link      held in              event                           next state, and what the carrier does
============  ===================  ==============================  =================================================
none                               ``introduced``                  up: ``say_hello`` if accepted, ``link_up``
up            ``links``            ``introduced``, accepted        awaited: ``wait`` (or refused by rule 1)
                                   ``close``, ``disconnect``,      none: ``link_down``, again or give up
                                   ``peer_closed``, ``lost``
awaited       ``links`` and, for   ``introduced``, accepted        awaited: the newcomer is refused, already linked
              the connection       ``wait_over``                   up: the one that waits is refused, already linked
              that waits,          ``lost``, the one that waits    up
              ``waiting``          the link ends as above          none, then ``introduced`` for the one that waits
============  ===================  ==============================  =================================================

Rules
-----
1. *Simultaneous opens.* When both nodes open at once, the connection that the lower node opened survives. The lower
   node refuses the other one if its own attempt is connecting or greeting, or if it opened the present link. The
   higher node takes the lower one's, and its own is refused. An opener that has a link by the time of the answer
   closes its connection.
2. *A link that only one side has.* A node opens a connection only if it has no link. So if a connection arrives from a
   node with a link, either that node has lost the link and this side has not noticed its end yet, or the sender is not
   that node. The new connection waits for the end of the link, at most ``WAIT_S``, and is refused if the link still
   works then. No connection replaces a link that works.
3. *Again or give up.* A node redials after a connection that broke, that did not reach the peer, or that was refused
   for a reason in ``PASSING``: after increasing pauses, in up to ``len(PAUSES_S)`` attempts in a row. A link that was
   up for ``STABLE_S`` resets the count. After any other reason, or the last attempt, the table forgets that the node
   wants the link, and tells the node. If an attempt is greeting at that time, the answer to it ends the connection
   (``UNWANTED``). The other node opens a connection of its own if it wants the link.
4. *Quiet.* ``quiet`` stops all attempts and refuses new connections. Links that are up stay.
5. *Events.* Per peer, ``link_up`` and ``link_down`` alternate. ``gave_up`` comes only while there is no link.
6. *Borrowed links* concern only the parts of one node. ``peer.core.parts.Turn`` returns ``Disconnect`` when a part
   that shares a link ends it, or when its borrower releases it and no other part uses it. A table knows only whether
   the node wants the link.

Why it calls its carrier
------------------------
A node answers ``link_down`` at once, for example with ``Connect``, and the next step of the table depends on the
answer. A list of actions would have to be interrupted and resumed. Direct calls also need no objects, which matters for
a simulation of thousands of nodes. A carrier may call the table from ``open``, ``link_up``, ``link_down`` and
``gave_up``.

What differs between carriers
-----------------------------
* TCP: the carrier checks which node sent ``Hello`` before it calls ``introduced``, and limits the duration and number
  of silent connections. A connection that the table does not need any more exists anyway, and the carrier aborts it.
  Each side notices the end on its own.
* Simulated TCP: every ``Hello`` names its sender correctly. The simulator never makes connections that the table does
  not need any more. Both ends of a connection vanish when one end reads a ``Bye``; only a pending opener waits for the
  answer to its own ``Bye``.
* Memory: opening takes no time, ``Hello`` and ``Bye`` take the link's delay. A node gives up after one attempt.
* Each carrier distinguishes ``Hello``, ``Bye`` and other frames by itself, since the simulator tests for other frames
  first, for speed. Over TCP, a second ``Hello`` on a link is refused; no honest node sends one.
"""

from collections.abc import Sequence
from random import Random
from typing import Generic, Protocol, TypeVar

from peer.core.identifiers import NodeId

PAUSES_S = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Pauses before the attempts at a link (s). Each is drawn from 50-150 % of its value. After the last attempt, the node
gives up the link."""

STABLE_S = 5.0
"""A link that has been up this long (s) counts as a success: the pauses begin with the first one again."""

WAIT_S = 5.0
"""How long a connection waits for the end of the link that the other node seems to have lost (s)."""

SIMULTANEOUS, ALREADY_LINKED, UNWANTED, STOP = "simultaneous_open", "already_linked", "unwanted", "stop"
PASSING = (SIMULTANEOUS, ALREADY_LINKED, UNWANTED)
"""Reasons for closing after which the opener tries again."""


class Connection:
    """One side of a connection, as far as the rules need it. Carriers add what transports the bytes.

    Attributes:
        peer: the node on the other side; None until it is known which node opened an accepted connection.
        opener: whether this side opened it.
        up: whether it is the link of the two nodes.
        up_since_ns: when it came up (ns).
        reason: why it ends; empty until a side closes it or it breaks.
    """

    __slots__ = ("opener", "peer", "reason", "up", "up_since_ns")

    def __init__(self, peer: NodeId | None, opener: bool) -> None:
        self.peer = peer
        self.opener = opener
        self.up = False
        self.up_since_ns = 0
        self.reason = ""

    @property
    def side(self) -> str:
        """This side's name in traces."""
        return "orig" if self.opener else "resp"


C = TypeVar("C", bound=Connection)
C_contra = TypeVar("C_contra", bound=Connection, contravariant=True)


class Carrier(Protocol[C_contra]):
    """Carries out the decisions of a link table."""

    def now_ns(self) -> int:
        """Return the present instant (ns)."""
        ...

    def pause(self, peer: NodeId, pause_s: float) -> None:
        """Call ``attempt(peer)`` after this time (s)."""

    def open(self, peer: NodeId) -> None:
        """Open a connection to the peer, then call ``opened`` or ``failed``."""

    def say_hello(self, connection: C_contra) -> None:
        """Send ``Hello``."""

    def say_goodbye(self, connection: C_contra, reason: str) -> None:
        """Send ``Bye`` and close, if it can still send; call ``lost`` when the connection is gone."""

    def wait(self, connection: C_contra, old: C_contra, wait_s: float) -> None:
        """Test whether the link ``old`` still works, and call ``wait_over(connection)`` after a time.

        Args:
            connection: the connection that waits for the end of ``old``.
            old: the link.
            wait_s: the time in seconds.
        """

    def rejected(self, connection: C_contra, reason: str) -> None:
        """Note that the table refuses a connection for something that an honest peer does not do in a sound network."""

    def link_up(self, connection: C_contra, outbound: bool) -> None:
        """Tell the node that a link came up; ``outbound``: the node wants this link."""

    def link_down(self, connection: C_contra, retrying: bool) -> None:
        """Tell the node that a link ended, for the connection's ``reason``; ``retrying``: the table redials."""

    def gave_up(self, peer: NodeId, reason: str) -> None:
        """Tell the node that the table gave up the attempts at a link, which it has not reported to the node."""


class LinkTable(Generic[C]):
    """The links of one node from its start to its end.

    Args:
        carrier: carries out the decisions.
        node: the node.
        draws: the generator for the pauses between attempts.
        pauses_s: pauses before successive attempts (s); None = ``PAUSES_S``.

    Attributes:
        wanted: peer -> number of attempts since the last stable link, for each link that the node wants.
        dialling: the peers with an attempt that waits for the end of its pause.
        pending: peer -> the opened connection that awaits the answer to its ``Hello``; None until it is open.
        links: peer -> the link. This dictionary is never replaced, so carriers may keep a reference to it.
        waiting: peer -> the accepted connection that waits for the end of the link.
        quiet: whether the table opens and accepts no more connections.
    """

    __slots__ = (
        "_carrier",
        "_draws",
        "_node",
        "_pauses_s",
        "dialling",
        "links",
        "pending",
        "quiet",
        "waiting",
        "wanted",
    )

    def __init__(
        self, carrier: Carrier[C], node: NodeId, draws: Random, pauses_s: Sequence[float] | None = None
    ) -> None:
        self._carrier = carrier
        self._node = node
        self._draws = draws
        self._pauses_s = PAUSES_S if pauses_s is None else pauses_s
        self.wanted: dict[NodeId, int] = {}
        self.dialling: set[NodeId] = set()
        self.pending: dict[NodeId, C | None] = {}
        self.links: dict[NodeId, C] = {}
        self.waiting: dict[NodeId, C] = {}
        self.quiet = False

    # ------------------------------------------------------------------------------------------- for the node

    def connect(self, peer: NodeId) -> None:
        """Keep a link to the peer up from now on."""
        self.wanted.setdefault(peer, 0)
        self._dial(peer)

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Close all connections with the peer, and open none from now on."""
        self.wanted.pop(peer, None)
        ending = self.connections(peer)
        self.waiting.pop(peer, None)
        if self.pending.get(peer) is not None:
            del self.pending[peer]  # so that a new request need not wait for the end of this connection
        for connection in ending:
            self.close(connection, reason)

    def connections(self, peer: NodeId) -> list[C]:
        """Return the connections with a peer: the waiting one, the pending one, the link."""
        found = (self.waiting.get(peer), self.pending.get(peer), self.links.get(peer))
        return [connection for connection in found if connection is not None]

    def end(self) -> list[C]:
        """Forget everything, since the node has ended. The table reports nothing, and later calls have no effect.

        Returns:
            The links, the pending and the waiting connections, which the carrier must close or break.
        """
        pending = [connection for connection in self.pending.values() if connection is not None]
        ended = [*self.links.values(), *pending, *self.waiting.values()]
        self.quiet = True
        self.wanted.clear()
        self.dialling.clear()
        self.pending.clear()
        self.links.clear()
        self.waiting.clear()
        return ended

    # ------------------------------------------------------------------------------------------------ opening

    def attempt(self, peer: NodeId) -> None:
        """Open a connection after the pause before an attempt, if it is still needed."""
        self.dialling.discard(peer)
        if self.lacks(peer):
            self.pending[peer] = None
            self._carrier.open(peer)

    def lacks(self, peer: NodeId) -> bool:
        """Return whether the node lacks a link that it wants. If not, a carrier that opened one calls ``failed``."""
        return peer in self.wanted and peer not in self.links and not self.quiet

    def opened(self, connection: C, peer: NodeId) -> None:
        """Send ``Hello`` on the connection to a peer, which is open now."""
        del self.pending[peer]
        self.pending[peer] = connection
        self._carrier.say_hello(connection)

    def failed(self, peer: NodeId) -> None:
        """Note that an attempt did not reach the peer, or is not needed any more."""
        self.pending.pop(peer, None)
        self._retry_or_give_up(peer, "unreachable", worth_it=True)

    def _dial(self, peer: NodeId) -> None:
        """Begin an attempt, unless there is an attempt or a link."""
        if self.quiet or peer in self.links or peer in self.dialling or peer in self.pending:
            return
        attempts = self.wanted[peer]
        self.wanted[peer] = attempts + 1
        self.dialling.add(peer)
        self._carrier.pause(peer, self._pauses_s[attempts] * self._draws.uniform(0.5, 1.5))

    def _retry_or_give_up(self, peer: NodeId, reason: str, *, worth_it: bool) -> None:
        """Begin the next attempt after one that failed, or give up and tell the node.

        Args:
            peer: the peer.
            reason: why the attempt failed.
            worth_it: whether another attempt may succeed.
        """
        if not self.lacks(peer):
            return
        if worth_it and self.wanted[peer] < len(self._pauses_s):
            self._dial(peer)
        else:
            del self.wanted[peer]
            self._carrier.gave_up(peer, reason)

    # ---------------------------------------------------------------------------------------------- handshake

    def introduced(self, connection: C, peer: NodeId) -> None:
        """Take a connection on which the peer's ``Hello`` arrived, or refuse it, or let it wait."""
        if connection.reason:
            return
        old = self.links.get(peer)
        if self.quiet:
            self.close(connection, STOP)
        elif self._is_superseded(connection, peer, old):
            self.close(connection, SIMULTANEOUS)
        elif connection.opener and peer not in self.wanted:
            self.disconnect(peer, UNWANTED)
        elif peer in self.waiting:
            self.refuse(connection, ALREADY_LINKED)
        elif old is not None:
            self.waiting[peer] = connection
            self._carrier.wait(connection, old, WAIT_S)
        else:
            self._bring_up(connection, peer)

    def wait_over(self, connection: C) -> None:
        """Refuse a connection that waited, since the link that it waited for still works."""
        peer = connection.peer
        if peer is not None and self.waiting.get(peer) is connection:
            del self.waiting[peer]
            self.refuse(connection, ALREADY_LINKED)

    def refuse(self, connection: C, reason: str) -> None:
        """Close a connection because of a forbidden frame, unless it is closing already."""
        if not connection.reason:
            self._carrier.rejected(connection, reason)
            self.close(connection, reason)

    def _is_superseded(self, connection: C, peer: NodeId, old: C | None) -> bool:
        """Return whether another connection with the peer survives this one (rule 1)."""
        if connection.opener:
            return old is not None
        return self._node < peer and (peer in self.pending or (old is not None and old.opener))

    def _bring_up(self, connection: C, peer: NodeId) -> None:
        if self.pending.get(peer) is connection:
            del self.pending[peer]
        if not connection.opener:
            self._carrier.say_hello(connection)
        connection.up = True
        connection.up_since_ns = self._carrier.now_ns()
        self.links[peer] = connection
        self._carrier.link_up(connection, peer in self.wanted)

    # ------------------------------------------------------------------------------------------------ closing

    def close(self, connection: C, reason: str) -> None:
        """Send ``Bye`` on a connection, unless it is closing already."""
        if not connection.reason:
            connection.reason = reason
            self._carrier.say_goodbye(connection, reason)
        self._take_down(connection)

    def peer_closed(self, connection: C, reason: str) -> None:
        """Take a connection down, since the peer's ``Bye`` arrived."""
        connection.reason = connection.reason or reason or STOP
        self._take_down(connection)

    def lost(self, connection: C, error: str) -> None:
        """Take down a connection that has ended; ``error``: why it broke, if neither side closed it on purpose."""
        broke = not connection.reason
        if broke:
            connection.reason = error
        self._take_down(connection, broke=broke)
        peer = connection.peer
        if peer is None:
            return
        if self.waiting.get(peer) is connection:
            del self.waiting[peer]
        if self.pending.get(peer) is connection:
            del self.pending[peer]
            self._retry_or_give_up(peer, connection.reason, worth_it=broke or connection.reason in PASSING)

    def _take_down(self, connection: C, *, broke: bool = False) -> None:
        """End a link: tell the node, and redial if rule 3 says so."""
        peer = connection.peer
        if not connection.up or peer is None:
            return
        connection.up = False
        del self.links[peer]
        retrying = False
        if peer in self.wanted:
            if self._carrier.now_ns() - connection.up_since_ns > STABLE_S * 1e9:
                self.wanted[peer] = 0
            passing = broke or connection.reason in PASSING
            retrying = passing and not self.quiet and self.wanted[peer] < len(self._pauses_s)
            if not retrying:
                del self.wanted[peer]
        self._carrier.link_down(connection, retrying)
        if (waiting := self.waiting.pop(peer, None)) is not None:
            self.introduced(waiting, peer)
        if peer in self.wanted:
            self._dial(peer)
