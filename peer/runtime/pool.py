"""The link pool: one TCP connection for each pair of neighbours, whatever both sides try at once.

A connection begins with a ``Hello`` of each side, the opener's first. The accepting side answers when it takes the
connection, and the link is up for it from then on; for the opener when the answer comes. So the accepting side decides,
and these rules settle every race the same way at both ends:

* Both sides open at once: the connection that the lower node opened survives. The lower node refuses the other one; the
  higher node takes the lower one's and lets its own be refused.
* A node opens although the accepting side has a link to it that is up: either the node has lost that link, and its end
  is about to be noticed, or it is not that node. So the new connection waits for the end of the old one, which the
  kernel is told to probe, and is refused if that lives on: nobody takes over a live link. Only where the accepting side
  is the lower node and opened the old link itself, the rule above holds.

Whoever is not of this run stays outside: a connection must come from an address at which nodes live, of which there may
be only so many that are not links (``Arrivals``); its Hello must come in time, have the run's secret number, and name a
node of that address. This does not protect against other users of a machine that carries peers: one who listens at the
address and port of a node that is down is sent the number in the next Hello.

A side that closes on purpose sends ``Bye`` and its FIN, then reads until the other side's FIN, so that every frame sent
is received. A connection that breaks, or is refused for one of the reasons above, is opened again with growing pauses.
"""

from __future__ import annotations

import asyncio
from random import Random

from peer.core.contract import NodeId
from peer.core.frames import Bye, Frame, Hello
from peer.runtime.addresses import AddressBook
from peer.runtime.arrivals import Arrivals
from peer.runtime.clock import UNDILATED, Clock
from peer.runtime.link import CLOSE_TIMEOUT_S, Counts, Link
from peer.runtime.owner import Owner
from peer.trace import TraceEvent
from peer.wire import encode

CONNECT_TIMEOUT_S = 10.0
PAUSES_S = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Pauses before the attempts at a link, each drawn from 50-150 % of its value; after the last one it is given up."""

STABLE_S = 5.0
"""A link that has been up this long counts as a success: the pauses begin anew."""

WAIT_S = 5.0
"""How long a connection waits for the end of the link that its node seems to have lost."""

SIMULTANEOUS, ALREADY_LINKED, STOP = "simultaneous_open", "already_linked", "stop"
PASSING = (SIMULTANEOUS, ALREADY_LINKED)
"""Reasons for closing after which the opener tries again."""


class LinkPool:
    """All connections of a node.

    Args:
        owner: whom to tell.
        node: this node.
        run: the run's number; a Hello with another one is refused. The run's nodes know it, and whoever accepts a
            connection at the address of one of them, since the opener's Hello comes first and has it.
        addresses: where each node listens.
        local_ip: the address to open connections from.
        send_queue_bytes: how much may wait for a neighbour before frames to it are dropped.
        draws: for the pauses between attempts.
        counts: where frames, bytes, drops and rejects are counted; None = a place of the pool's own.
        clock: what its pauses and timeouts go by.
    """

    def __init__(
        self,
        owner: Owner,
        node: NodeId,
        run: int,
        addresses: AddressBook,
        local_ip: str,
        send_queue_bytes: int,
        draws: Random,
        counts: Counts | None = None,
        clock: Clock = UNDILATED,
    ) -> None:
        self.counts = counts or Counts()
        self._owner = owner
        self._node = node
        self._run = run
        self._addresses = addresses
        self._local_ip = local_ip
        self._send_queue_bytes = send_queue_bytes
        self._draws = draws
        self._clock = clock
        self._wanted: dict[NodeId, int] = {}  # peer -> attempts since the last stable link
        self._dials: dict[NodeId, asyncio.Task[None]] = {}
        self._pending: dict[NodeId, Link | None] = {}  # opening: None until the TCP connection is there
        self._links: dict[NodeId, Link] = {}
        self._waiting: dict[NodeId, Link] = {}  # for the end of the link in _links
        self._arrivals = Arrivals(addresses)
        self._open: dict[Link, None] = {}
        self._encoded: tuple[Frame | None, bytes] = (None, b"")
        self._quiet = False

    @property
    def links(self) -> int:
        """How many links are up."""
        return len(self._links)

    @property
    def queued_bytes(self) -> int:
        """Bytes that this process has not yet handed to the kernel, over all links."""
        return sum(link.queued_bytes for link in list(self._links.values()))

    def accept(self) -> Link:
        """A protocol for a connection that comes in (the factory that ``create_server`` wants)."""
        return Link(self, self.counts, self._node, None, self._clock)

    def connect(self, peer: NodeId) -> None:
        """Keep a link to the peer up from now on."""
        self._wanted.setdefault(peer, 0)
        self._dial(peer)

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Close the link to the peer and keep none."""
        self._wanted.pop(peer, None)
        self._waiting.pop(peer, None)  # closed below, like all
        if self._pending.get(peer) is not None:
            del self._pending[peer]  # it closes by itself, and a new wish need not wait for that
        for link in [link for link in self._open if link.peer == peer]:
            self._close(link, reason)

    def send(self, peer: NodeId, frame: Frame) -> None:
        """Queue a frame on the peer's link, or trace why it was dropped."""
        link = self._links.get(peer)
        content = self._encode(frame)
        if link is None or link.transport.is_closing():
            self._drop(peer, frame, len(content), "no_link")
        elif link.queued_bytes + len(content) > self._send_queue_bytes:
            self._drop(peer, frame, len(content), "queue_full")
        else:
            link.write(frame, content)

    def quiesce(self) -> None:
        """Open no more connections and take none; those that are up stay."""
        self._quiet = True

    def cut(self, reason: str) -> None:
        """Break all connections without a word, as the end of the process would."""
        self.quiesce()
        for link in list(self._open):
            link.reason = link.reason or reason
            link.transport.abort()

    async def close(self, reason: str = STOP) -> None:
        """Close all connections; each ends when both sides have said their last, or is cut after a while."""
        self.quiesce()
        for link in list(self._open):
            self._close(link, reason)
        if self._open:
            await asyncio.wait([link.ended for link in self._open], timeout=self._clock.real_s(CLOSE_TIMEOUT_S + 1))

    # -------------------------------------------------------------------------------------- told by the links

    def opened(self, link: Link) -> None:
        """An opener says hello, unless the other side was faster; an accepted connection is let in or cut."""
        self._open[link] = None
        if not link.opener:
            if (reason := self._arrivals.objection(link)) is None:
                self._arrivals.add(link)
            else:
                self._note_reject(link, reason)
                link.reason = reason
                link.transport.abort()
            return
        assert link.peer is not None, "an opener knows whom it calls"
        if self._quiet or link.peer in self._links or link.peer not in self._wanted:
            link.transport.abort()
            return
        self._pending[link.peer] = link
        self._greet(link)

    def believes(self, link: Link, node: NodeId) -> bool:
        """Whether an accepted connection comes from the node's address."""
        return self._is_node(node) and self._addresses.is_source_of(node, link.source)

    def received(self, link: Link, frame: Frame) -> None:
        """Take a frame from a connection."""
        if isinstance(frame, Bye):
            link.reason = link.reason or frame.reason or STOP
            link.limit_time(CLOSE_TIMEOUT_S)
            self._take_down(link)
        elif isinstance(frame, Hello):
            self._introduce(link, frame)
        elif link.up and link.peer is not None:
            self._owner.frame_received(link.peer, frame)
        elif not link.reason:
            self._reject(link, "no_hello")

    def broke_format(self, link: Link, reason: str) -> None:
        """Close a connection on which something came that is not a frame."""
        self._reject(link, reason)

    def lost(self, link: Link, error: Exception | None) -> None:
        """A connection is gone: try again, unless one side ended it on purpose."""
        del self._open[link]
        peer = link.peer
        if not link.reason:
            link.broke = True
            link.reason = type(error).__name__ if error else "closed"
        self._take_down(link)
        self._arrivals.remove(link)
        if peer is not None and self._waiting.get(peer) is link:
            del self._waiting[peer]
        if peer is not None and self._pending.get(peer) is link:
            del self._pending[peer]
            self._retry_or_give_up(peer, link.reason, link.broke or link.reason in PASSING)

    def trace(self, event: TraceEvent) -> None:
        """Pass a link's event on."""
        self._owner.trace(event)

    # ------------------------------------------------------------------------------------------------ opening

    def _dial(self, peer: NodeId) -> None:
        """Begin an attempt, unless one is under way or there is a link."""
        if not (self._quiet or peer in self._links or peer in self._dials or peer in self._pending):
            pause_s = PAUSES_S[self._wanted[peer]] * self._draws.uniform(0.5, 1.5)
            self._wanted[peer] += 1
            self._dials[peer] = asyncio.get_running_loop().create_task(self._open_link(peer, pause_s))

    async def _open_link(self, peer: NodeId, pause_s: float) -> None:
        """One attempt, after its pause. Never cancelled: a loop may then close a connection without saying so."""
        await asyncio.sleep(self._clock.real_s(pause_s))
        if peer in self._wanted and peer not in self._links and not self._quiet:
            self._pending[peer] = None
            await self._connect_socket(peer)
            if self._pending.get(peer, self) is None:
                del self._pending[peer]
        del self._dials[peer]
        self._retry_or_give_up(peer, "unreachable", True)

    async def _connect_socket(self, peer: NodeId) -> None:
        """Try to reach the peer; ``opened`` is told when that works."""
        link: Link | None = None

        def make_link() -> Link:
            nonlocal link
            link = Link(self, self.counts, self._node, peer, self._clock)
            return link

        if not self._is_node(peer):
            return
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._clock.real_s(CONNECT_TIMEOUT_S)):
                await loop.create_connection(make_link, *self._addresses[peer], local_addr=(self._local_ip, 0))
        except (OSError, TimeoutError):
            if link in self._open:  # it timed out the very moment it was there
                link.connection_lost(None)

    def _retry_or_give_up(self, peer: NodeId, reason: str, worth_it: bool) -> None:
        """After an attempt, of which the owner has heard nothing: begin the next one where it did not succeed."""
        if self._quiet or peer not in self._wanted or peer in self._links or peer in self._pending:
            return
        if worth_it and self._wanted[peer] < len(PAUSES_S):
            self._dial(peer)
        else:
            del self._wanted[peer]
            self._owner.link_down(peer, reason, False)

    # ---------------------------------------------------------------------------------------------- handshake

    def _greet(self, link: Link) -> None:
        hello = Hello(self._node, self._run)
        link.write(hello, encode(hello))

    def _introduce(self, link: Link, hello: Hello) -> None:
        """The other side said who it is: take the connection or refuse it."""
        peer = hello.node
        if link.reason:
            return
        if link.up:
            self._reject(link, "second_hello")
        elif hello.run != self._run:
            self._reject(link, "wrong_run")
        elif not self._is_node(peer) or link.peer not in (peer, None):
            self._reject(link, "wrong_node")
        elif link.peer is None:
            self._reject(link, "wrong_address")
        else:
            self._admit(link, peer)

    def _admit(self, link: Link, peer: NodeId) -> None:
        """Take the connection with a node, refuse it, or let it wait."""
        if link.reason:
            return
        if self._quiet:
            self._close(link, STOP)
        elif self._has_precedence_over(link, peer):
            self._close(link, SIMULTANEOUS)
        elif peer in self._waiting:
            self._reject(link, ALREADY_LINKED)
        elif (old := self._links.get(peer)) is not None:
            self._waiting[peer] = link
            old.probe(urgently=True)
            link.limit_time(WAIT_S, lambda: self._wait_no_longer(link, peer, old))
        else:
            self._bring_up(link, peer)

    def _wait_no_longer(self, link: Link, peer: NodeId, old: Link) -> None:
        """The link that a connection waits for lives on."""
        self._waiting.pop(peer, None)
        old.probe(urgently=False)
        self._reject(link, ALREADY_LINKED)

    def _is_node(self, peer: NodeId) -> bool:
        return peer != self._node and 0 <= peer < len(self._addresses)

    def _has_precedence_over(self, link: Link, peer: NodeId) -> bool:
        """Whether another connection with the peer survives this one."""
        old = self._links.get(peer)
        if link.opener:
            return old is not None
        own = peer in self._pending or (old is not None and old.opener)
        return own and self._node < peer

    def _bring_up(self, link: Link, peer: NodeId) -> None:
        link.limit_time(None)
        if self._pending.get(peer) is link:
            del self._pending[peer]
        if not link.opener:
            self._greet(link)
        self._arrivals.remove(link)
        link.up = True
        link.up_since_ns = self._clock.now_ns()
        self._links[peer] = link
        self._note("add_peer", link, direction=link.side)
        self._owner.link_up(peer, peer in self._wanted)

    # ------------------------------------------------------------------------------------------------ closing

    def _reject(self, link: Link, reason: str) -> None:
        """Close a connection on which something came that must not."""
        if not link.reason:
            self._note_reject(link, reason)
            self._close(link, reason)

    def _note_reject(self, link: Link, reason: str) -> None:
        self.counts.rejected[reason] = self.counts.rejected.get(reason, 0) + 1
        self._note("reject", link, reason=reason)

    def _close(self, link: Link, reason: str) -> None:
        link.say_goodbye(reason)
        self._take_down(link)

    def _take_down(self, link: Link) -> None:
        """The link is of no more use: tell the owner, and try again where it was not ended on purpose."""
        peer = link.peer
        if not link.up or peer is None:
            return
        link.up = False
        self._arrivals.add(link)
        del self._links[peer]
        self._note("remove_peer", link, reason=link.reason)
        if peer in self._wanted and self._clock.now_ns() - link.up_since_ns > STABLE_S * 1e9:
            self._wanted[peer] = 0
        retrying = self._may_retry(link, peer)
        if not retrying:
            self._wanted.pop(peer, None)
        self._owner.link_down(peer, link.reason, retrying)
        if (waiting := self._waiting.pop(peer, None)) is not None:
            self._admit(waiting, peer)
        if peer in self._wanted:
            self._dial(peer)

    def _may_retry(self, link: Link, peer: NodeId) -> bool:
        passing = link.broke or link.reason in PASSING
        return passing and not self._quiet and self._wanted.get(peer, len(PAUSES_S)) < len(PAUSES_S)

    # ------------------------------------------------------------------------------------------------ sending

    def _encode(self, frame: Frame) -> bytes:
        """A flooded frame goes to many neighbours in a row and is encoded once."""
        last, content = self._encoded
        if last is not frame:
            content = encode(frame)
            self._encoded = (frame, content)
        return content

    def _drop(self, peer: NodeId, frame: Frame, len_bytes: int, reason: str) -> None:
        self.counts.dropped[reason] = self.counts.dropped.get(reason, 0) + 1
        self._owner.trace(
            TraceEvent(
                "drop",
                self._clock.now_ns(),
                self._node,
                peer,
                message_id=getattr(frame, "message_id", None),
                kind=frame.kind,
                len_bytes=len_bytes,
                reason=reason,
            )
        )

    def _note(self, event: str, link: Link, direction: str | None = None, reason: str | None = None) -> None:
        now_ns = self._clock.now_ns()
        self._owner.trace(
            TraceEvent(event, now_ns, self._node, link.peer, conn=link.conn, direction=direction, reason=reason)
        )
