"""The pool of the TCP connections of one node.

``peer.core.links`` has the rules: when to open a connection, which of two survives, when to redial. The pool carries
them out with sockets. Its own tasks are those of real connections:

* A connection must come from the address of a node, and only a few per address may be other connections than links
  (``Admission``). Its ``Hello`` must arrive in time, have the run's secret number, and name a node of that address.
  This does not protect against other users of a machine with peers: a program that listens at the address and port of a
  node that is down receives the number in the next ``Hello``.
* The pool drops frames for a peer if too many bytes wait for it already.
* A side that closes on purpose sends ``Bye`` and its FIN, then reads until the other side's FIN, so that the other side
  receives every frame.
* The kernel probes a link that its peer seems to have lost.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from random import Random

from peer.core.contract import LinkDown, LinkUp, NodeId
from peer.core.frames import Bye, Frame, Hello
from peer.core.links import STOP, LinkTable
from peer.runtime.addresses import Address, AddressBook
from peer.runtime.admission import Admission
from peer.runtime.clock import UNDILATED, Clock
from peer.runtime.counts import Counts
from peer.runtime.host_sockets import MakeSocket
from peer.runtime.tcp_connection import CLOSE_TIMEOUT_S, Owner, TcpConnection
from peer.trace import TraceEvent, make_drop_event
from peer.wire import encode

CONNECT_TIMEOUT_S = 10.0


class ConnectionPool:
    """All connections of a node, from its start to its end.

    A driver calls its ``table``, ``send`` and ``send_each`` for the node's effects, and ``quiesce``, ``cut`` and
    ``close`` at the node's end. Each ``TcpConnection`` reports its events (``opened`` to ``lost``). The pool passes
    them to its ``table``, which decides and calls the pool back as its ``Carrier`` (``now_ns`` to ``gave_up``).

    Args:
        driver: gets the node's events and the trace events.
        node: this node.
        run: the run's number; the pool refuses a Hello with another one. The run's nodes know it. So does a program
            that accepts a connection at the address of one of them, since the opener sends its Hello first.
        addresses: the address at which each node listens.
        local_ip: the address from which to open connections.
        send_queue_bytes: the most bytes that may wait for a neighbour; further frames are dropped.
        draws: the generator for the pauses between attempts.
        counts: counts drops and rejects; None = the pool has its own.
        clock: the clock of its pauses and timeouts.
        make_socket: makes sockets of the node's host; None = it is this process's host.

    Attributes:
        table: the links and the attempts at them.
        connections: every open connection, in the order in which they opened; some are not links.
        arrivals: the accepted connections that are not links.
        counts, driver, node, addresses, clock: as given.
    """

    def __init__(
        self,
        driver: Owner,
        node: NodeId,
        run: int,
        addresses: AddressBook,
        local_ip: str,
        send_queue_bytes: int,
        draws: Random,
        counts: Counts | None = None,
        clock: Clock = UNDILATED,
        make_socket: MakeSocket | None = None,
    ) -> None:
        self.counts = counts or Counts()
        self.driver = driver
        self.node = node
        self._run = run
        self.addresses = addresses
        self._local_ip = local_ip
        self._send_queue_bytes = send_queue_bytes
        self.clock = clock
        self._make_socket = make_socket
        self.table: LinkTable[TcpConnection] = LinkTable(self, node, draws)
        self._links = self.table.links
        self._dials: set[asyncio.Task[None]] = set()
        self.arrivals = Admission(addresses)
        self.connections: dict[TcpConnection, None] = {}
        self._encoded: tuple[Frame | None, bytes] = (None, b"")

    @property
    def links(self) -> int:
        """The number of links that are up."""
        return len(self._links)

    @property
    def queued_bytes(self) -> int:
        """Bytes that this process has not yet handed to the kernel, over all links."""
        return sum(connection.queued_bytes for connection in list(self._links.values()))

    def accept(self) -> TcpConnection:
        """Return a protocol for an incoming connection (the factory for ``create_server``)."""
        return TcpConnection(self, None)

    def send(self, peer: NodeId, frame: Frame) -> None:
        """Queue a frame on the peer's link, or drop it and trace why."""
        self.send_each((peer,), frame)

    def send_each(self, peers: Iterable[NodeId], frame: Frame) -> None:
        """Do what ``send`` does for each of some peers."""
        content = self._encode(frame)
        for peer in peers:
            connection = self._links.get(peer)
            if connection is None or connection.transport.is_closing():
                self._drop(peer, frame, len(content), "no_link")
            elif connection.queued_bytes + len(content) > self._send_queue_bytes:
                self._drop(peer, frame, len(content), "queue_full")
            else:
                connection.write(frame, content)

    def quiesce(self) -> None:
        """Stop opening and accepting connections. Links that are up stay."""
        self.table.quiet = True

    def cut(self, reason: str) -> None:
        """Break all connections without ``Bye``, as the end of the process would, and trace the ends of links now."""
        self.quiesce()
        for connection in self.connections:
            connection.reason = connection.reason or reason
        for connection in list(self.connections):
            self.table.lost(connection, reason)
            connection.transport.abort()

    async def close(self, reason: str = STOP) -> None:
        """Close all connections. Each ends when both sides have sent their last byte, or is cut after a timeout."""
        self.quiesce()
        for connection in list(self.connections):
            self.table.close(connection, reason)
        if self.connections:
            await asyncio.wait(
                [connection.ended for connection in self.connections], timeout=self.clock.real_s(CLOSE_TIMEOUT_S + 1)
            )

    # -------------------------------------------------------------------------------------- called by links

    def opened(self, connection: TcpConnection) -> None:
        """Use an opened connection if the node lacks the link. Accept or abort an incoming one."""
        self.connections[connection] = None
        if connection.opener:
            assert connection.peer is not None, "an opener knows its peer"
            if self.table.lacks(connection.peer):
                self.table.opened(connection, connection.peer)
            else:
                connection.transport.abort()
                self.table.failed(connection.peer)
        elif (reason := self.arrivals.objection(connection)) is None:
            self.arrivals.add(connection)
        else:
            self.rejected(connection, reason)
            connection.reason = reason
            connection.transport.abort()

    def comes_from(self, connection: TcpConnection, node: NodeId) -> bool:
        """Return whether an accepted connection comes from the node's address."""
        return self._is_node(node) and self.addresses.is_source_of(node, connection.source)

    def received(self, connection: TcpConnection, frame: Frame) -> None:
        if isinstance(frame, Bye):
            connection.limit_time(CLOSE_TIMEOUT_S)
            self.table.peer_closed(connection, frame.reason)
        elif isinstance(frame, Hello):
            self._introduce(connection, frame)
        else:
            self.table.refuse(connection, "no_hello")

    def lost(self, connection: TcpConnection, error: Exception | None) -> None:
        del self.connections[connection]
        self.table.lost(connection, type(error).__name__ if error else "closed")
        self.arrivals.remove(connection)

    # ------------------------------------------------------------------------------------- called by the table

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def pause(self, peer: NodeId, pause_s: float) -> None:
        asyncio.get_running_loop().call_later(self.clock.real_s(pause_s), self.table.attempt, peer)

    def open(self, peer: NodeId) -> None:
        task = asyncio.get_running_loop().create_task(self._connect_socket(peer))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    def say_hello(self, connection: TcpConnection) -> None:
        hello = Hello(self.node, self._run)
        connection.write(hello, encode(hello))

    def say_goodbye(self, connection: TcpConnection, reason: str) -> None:
        connection.say_goodbye(reason)

    def wait(self, connection: TcpConnection, old: TcpConnection, wait_s: float) -> None:
        """Let the kernel test whether the old link's peer still has it."""
        old.probe(urgently=True)
        connection.limit_time(wait_s, lambda: self._stop_waiting(connection, old))

    def rejected(self, connection: TcpConnection, reason: str) -> None:
        self.counts.rejected[reason] = self.counts.rejected.get(reason, 0) + 1
        self._note("reject", connection, reason=reason)

    def link_up(self, connection: TcpConnection, outbound: bool) -> None:
        """Tell the node that a link is up, and remove the connection's time limit."""
        assert connection.peer is not None, "a link's peer has introduced itself"
        connection.limit_time(None)
        self.arrivals.remove(connection)
        self._note("add_peer", connection, direction=connection.side)
        self.driver.feed(LinkUp(connection.peer, outbound))

    def link_down(self, connection: TcpConnection, retrying: bool) -> None:
        """Tell the node that a link ended. Its connection counts as one that is not a link until it is closed."""
        assert connection.peer is not None, "a link's peer has introduced itself"
        self.arrivals.add(connection)
        self._note("remove_peer", connection, reason=connection.reason)
        self.driver.feed(LinkDown(connection.peer, connection.reason, retrying))

    def gave_up(self, peer: NodeId, reason: str) -> None:
        self.driver.feed(LinkDown(peer, reason))

    def _stop_waiting(self, connection: TcpConnection, old: TcpConnection) -> None:
        old.probe(urgently=False)
        self.table.wait_over(connection)

    # ---------------------------------------------------------------------------------------------- handshake

    async def _connect_socket(self, peer: NodeId) -> None:
        """Try to reach the peer. It is never cancelled, since a loop may then close a connection without a report."""
        connection: TcpConnection | None = None

        def make_connection() -> TcpConnection:
            nonlocal connection
            connection = TcpConnection(self, peer)
            return connection

        if self._is_node(peer):
            address, local = self.addresses[peer], (self._local_ip, 0)
            try:
                async with asyncio.timeout(self.clock.real_s(CONNECT_TIMEOUT_S)):
                    if self._make_socket is None:
                        loop = asyncio.get_running_loop()
                        await loop.create_connection(make_connection, *address, local_addr=local)
                    else:
                        await _connect(self._make_socket(), address, local, make_connection)
            except (OSError, TimeoutError):
                if connection in self.connections:  # the timeout came at the moment at which it was established
                    connection.connection_lost(None)
        if connection is None or not connection.conn:  # ``opened`` was not called
            self.table.failed(peer)

    def _introduce(self, connection: TcpConnection, hello: Hello) -> None:
        """Handle ``Hello``: check which node is on the other side, and introduce or refuse the connection."""
        peer = hello.node
        if connection.up:
            self.table.refuse(connection, "second_hello")
        elif hello.run != self._run:
            self.table.refuse(connection, "wrong_run")
        elif not self._is_node(peer) or connection.peer not in (peer, None):
            self.table.refuse(connection, "wrong_node")
        elif connection.peer is None:
            self.table.refuse(connection, "wrong_address")
        else:
            self.table.introduced(connection, peer)

    def _is_node(self, peer: NodeId) -> bool:
        return peer != self.node and 0 <= peer < len(self.addresses)

    # ------------------------------------------------------------------------------------------------ sending

    def _encode(self, frame: Frame) -> bytes:
        """Return the bytes of a frame. A frame for many neighbours in a row, as in flooding, is encoded once."""
        last, content = self._encoded
        if last is not frame:
            content = encode(frame)
            self._encoded = (frame, content)
        return content

    def _drop(self, peer: NodeId, frame: Frame, len_bytes: int, reason: str) -> None:
        self.counts.dropped[reason] = self.counts.dropped.get(reason, 0) + 1
        self.driver.trace(make_drop_event(self.clock.now_ns(), self.node, peer, frame, len_bytes, reason))

    def _note(
        self, event: str, connection: TcpConnection, direction: str | None = None, reason: str | None = None
    ) -> None:
        now_ns, peer, conn = self.clock.now_ns(), connection.peer, connection.conn
        self.driver.trace(TraceEvent(event, now_ns, self.node, peer, conn=conn, direction=direction, reason=reason))


async def _connect(
    plug: socket.socket, address: Address, local: Address, make_connection: Callable[[], TcpConnection]
) -> None:
    """Connect a new socket from a local address to another one, and give it to the loop as a connection.

    Raises:
        OSError: it could not be connected.
    """
    loop = asyncio.get_running_loop()
    try:
        plug.setblocking(False)
        plug.bind(local)
        await loop.sock_connect(plug, address)
    except BaseException:  # also a timeout, which cancels the task
        plug.close()
        raise
    try:
        await loop.create_connection(make_connection, sock=plug)
    finally:
        plug.detach()  # the loop closes the descriptor, if need be before it returns
