"""One TCP connection to another node, as an asyncio protocol that knows the position of each frame in the stream."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, cast

from peer.core.contract import Event, FrameReceived, NodeId
from peer.core.frames import Bye, Frame, Hello
from peer.core.links import Connection, LinkTable
from peer.runtime.clock import Clock
from peer.trace import TraceEvent, make_frame_event
from peer.wire import Decoder, encode

OF_CONNECTIONS = (Hello, Bye)
"""The frames about connections, which the node does not get."""

HANDSHAKE_TIMEOUT_S = 10.0
"""The time within which the other side must send ``Hello`` (s)."""

MOST_HELLO_BYTES = 256
"""A limit on the bytes before a whole ``Hello``, which is shorter and must come first."""

CLOSE_TIMEOUT_S = 5.0
"""The time within which the other side must send its last frame before the connection is aborted (s)."""

# They detect a neighbour whose host vanished: by probes if the link is idle, by the timeout if data was sent.
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
)
_SOCKET_TIMES = (
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
"""Options that are durations (s, ms). They are set dilated, since the kernel uses real time."""

_PROBE_TIMES = ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1))
"""Options for a quick test whether the other side still has the connection. A host that has lost it resets it."""


class Owner(Protocol):
    """The driver of a node, as the node's connections know it."""

    def feed(self, event: Event) -> None:
        """Give the node an event."""

    def trace(self, event: TraceEvent) -> None:
        """Write a trace event."""


class Pool(Protocol):
    """The pool of a link, which learns what happens to it.

    Attributes:
        node: the node of this end.
        driver: gets the trace events.
        clock: what timeouts go by.
        table: the node's links and the attempts at them.
    """

    node: NodeId
    driver: Owner
    clock: Clock
    table: LinkTable[TcpConnection]

    def opened(self, connection: TcpConnection) -> None:
        """Use an opened connection, or end it."""

    def comes_from(self, connection: TcpConnection, node: NodeId) -> bool:
        """Return whether an accepted connection comes from the node's address."""
        ...

    def received(self, connection: TcpConnection, frame: Frame) -> None:
        """Handle a frame about the connection itself, or one of a connection that is not a link."""

    def lost(self, connection: TcpConnection, error: Exception | None) -> None:
        """Note that a connection has ended."""


class TcpConnection(Connection, asyncio.Protocol):
    """A TCP connection of a pool. Only some connections become links.

    Args:
        pool: the pool.
        peer: the node that it was opened to; None for an accepted connection.

    Attributes:
        source: the address at the other end, without the port.
        conn: the connection's name in traces; empty until it is established.
        ended: done when it is closed.
    """

    transport: asyncio.Transport

    def __init__(self, pool: Pool, peer: NodeId | None) -> None:
        super().__init__(peer, opener=peer is not None)
        self.conn = ""
        self.source = ""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pool = pool
        self._trace = pool.driver.trace
        self._clock = pool.clock
        self._written_bytes = 0
        self._decoder = Decoder()
        self._sides = ("orig", "resp") if self.opener else ("resp", "orig")
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def queued_bytes(self) -> int:
        """The number of bytes that this process has not yet handed to the kernel."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        own_socket = self.transport.get_extra_info("socket")
        for level, option, value in _SOCKET_OPTIONS:
            own_socket.setsockopt(level, option, value)
        self._set_times(_SOCKET_TIMES)
        ends = [self.transport.get_extra_info(name) for name in ("sockname", "peername")]
        if None in ends:  # the other side has reset the connection already, so the pool does not learn of it
            self.transport.abort()
            return
        orig, resp = ends if self.opener else reversed(ends)
        self.conn = f"{orig[0]}:{orig[1]}-{resp[0]}:{resp[1]}"
        self.source = ends[1][0]
        self.limit_time(HANDSHAKE_TIMEOUT_S, None if self.opener else self._miss_hello)
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.peer is None and self.reason:
            return  # it is refused, and the node on the other side is unknown
        now_ns = self._clock.now_ns()
        decoder, pool, side = self._decoder, self._pool, self._sides[1]
        for off, len_bytes, frame in decoder.feed(data):
            if self.peer is None and isinstance(frame, Hello) and pool.comes_from(self, frame.node):
                self.peer = frame.node
            event = make_frame_event("receive", now_ns, pool.node, self.peer, self.conn, side, frame, off, len_bytes)
            self._trace(event)
            if self.up and self.peer is not None and not isinstance(frame, OF_CONNECTIONS):
                pool.driver.feed(FrameReceived(self.peer, frame))
            else:
                pool.received(self, frame)
        if decoder.fault is not None:
            pool.table.refuse(self, decoder.fault.reason)
        elif self.peer is None and decoder.pending_bytes > MOST_HELLO_BYTES:
            self._miss_hello()

    def eof_received(self) -> bool:
        """Handle the last byte of the other side. The transport sends the queued bytes, then closes the connection."""
        if self._decoder.pending_bytes and self._decoder.fault is None:
            self._pool.table.refuse(self, "truncated")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.limit_time(None)
        if not self.ended.done():
            self.ended.set_result(None)
            if self.conn:
                self._pool.lost(self, error)

    def write(self, frame: Frame, content: bytes) -> None:
        """Send a frame, whose bytes are ``content``. Its timestamp is taken before."""
        now_ns = self._clock.now_ns()
        self.transport.write(content)
        off, len_bytes = self._written_bytes, len(content)
        self._written_bytes = off + len_bytes
        node, side = self._pool.node, self._sides[0]
        self._trace(make_frame_event("send", now_ns, node, self.peer, self.conn, side, frame, off, len_bytes))

    def say_goodbye(self, reason: str) -> None:
        """Send the last frame and the FIN. The connection ends when the other side has done the same."""
        if self.transport.is_closing():
            return
        bye = Bye(reason)
        self.write(bye, encode(bye))
        self.transport.write_eof()
        self.limit_time(CLOSE_TIMEOUT_S)

    def probe(self, urgently: bool) -> None:
        """Let the kernel test whether the other side still has the connection: ``urgently``, or at the usual times."""
        if not self.transport.is_closing():
            self._set_times(_PROBE_TIMES if urgently else _SOCKET_TIMES)

    def limit_time(self, limit_s: float | None, then: Callable[[], None] | None = None) -> None:
        """Set a time limit, which replaces any earlier limit.

        Args:
            limit_s: the limit in virtual seconds; None = no limit.
            then: what to call at the limit; None = abort the connection.
        """
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if limit_s is not None:
            limit_s = self._clock.real_s(limit_s)
            self._deadline = asyncio.get_running_loop().call_later(limit_s, then or self.transport.abort)

    def _miss_hello(self) -> None:
        self._pool.table.refuse(self, "no_hello")

    def _set_times(self, options: tuple[tuple[int, int, int], ...]) -> None:
        own_socket = self.transport.get_extra_info("socket")
        for level, option, value in options:
            own_socket.setsockopt(level, option, round(self._clock.real_s(value)))
