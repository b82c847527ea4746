"""The instances of a Python node in its process: the node joins, leaves and joins again.

``peer.instances`` has the part of this without I/O, which the simulator uses, too. This module has the sockets, the
clock and the trace of a process.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from random import Random

from peer.core import contract
from peer.core.directory import Directory
from peer.core.node import StatefulNode
from peer.core.randomness import substream
from peer.instances.lifecycle import announce_end, announce_join, make_node
from peer.instances.spec import NodeSpec
from peer.runtime.addresses import Address, AddressBook
from peer.runtime.clock import UNDILATED, Clock
from peer.runtime.counts import Counts
from peer.runtime.driver import Driver
from peer.runtime.host_sockets import MakeSocket, listen_at, make_tcp_socket
from peer.runtime.pool import ConnectionPool
from peer.runtime.recording import Recorder
from peer.runtime.tracefile import TraceFile
from peer.trace import CRASHED, LEFT

BACKLOG = 512
"""The most connections that wait to be accepted."""


class Instances:
    """The node's slot, in which its instances run one after another.

    While the node is down, no socket listens at its address, so the kernel refuses connections.

    Args:
        spec: the node.
        trace: its trace file for all instances.
        run: the run's number.
        addresses: the address at which each node listens.
        listen: the address at which this node listens.
        send_queue_bytes: the most bytes that may wait for a neighbour; further frames are dropped.
        recorder: records the node's events; None = they are not recorded.
        clock: the clock of the node.
        earlier: the number of instances in earlier processes.
        killed: kills the process after the node crashed and everything is traced. None = the process goes on with
            closed connections, such as in a test with several nodes.
        silenced: makes the node's host silent (True), or lets it answer again (False) if it is silent. None = the
            host has other nodes, too, and cannot vanish.
        make_socket: makes sockets of the node's host; None = it is this process's host.

    Attributes:
        counts: what the trace events of all instances add up to, and their drops and rejects.
        driver: the driver of the present instance; None while the node is down.
    """

    def __init__(
        self,
        spec: NodeSpec,
        trace: TraceFile,
        *,
        run: int,
        addresses: AddressBook,
        listen: Address,
        send_queue_bytes: int,
        recorder: Recorder | None = None,
        clock: Clock = UNDILATED,
        earlier: int = 0,
        killed: Callable[[], None] | None = None,
        silenced: Callable[[bool], None] | None = None,
        make_socket: MakeSocket | None = None,
    ) -> None:
        self.counts = Counts()
        trace.observe = self.counts.add
        self.driver: Driver | None = None
        self._spec = spec
        self._trace = trace
        self._run = run
        self._addresses = addresses
        self._listen = listen
        self._send_queue_bytes = send_queue_bytes
        self._recorder = recorder
        self._clock = clock
        self._draws: Random = substream(spec.seed, spec.node, "runtime")
        self._killed = killed
        self._silenced = silenced
        self._make_socket = make_socket
        self._started = earlier
        self._node: StatefulNode | None = None
        self._listener: socket.socket | None = None
        self._server: asyncio.AbstractServer | None = None
        self._closing: list[asyncio.Task[None]] = []

    def open_listener(self) -> None:
        """Listen. The kernel keeps connections of nodes that started a little earlier until this one has started."""
        self._listener = listen_at(self._listen, BACKLOG, self._make_socket or make_tcp_socket)
        self._listener.setblocking(False)

    async def listen(self) -> None:
        """Open the listener for the instance that starts with the peers."""
        self.open_listener()

    async def begin(self, directory: Directory) -> None:
        """Start the instance that starts with the peers."""
        await self._begin(make_node(self._spec), directory, joins=False)

    async def join(self, topics: Sequence[int], directory: Directory) -> None:
        if self._silenced is not None:
            self._silenced(False)
        self.open_listener()
        await self._begin(make_node(self._spec, self._started, topics), directory, joins=True)

    def feed(self, event: contract.Event) -> None:
        if self.driver is not None:
            self.driver.feed(event)

    def leave(self) -> None:
        """End the instance in order: it sends its last frames, closes its links and refuses new connections."""
        self.feed(contract.Leaving())
        self._end(LEFT)

    def crash(self) -> None:
        """End the instance like a killed process: the kernel closes its connections."""
        self._end(CRASHED)

    def vanish(self) -> None:
        """End the instance like a host without power. The host is silent until the next join or the end of the run.

        Raises:
            ValueError: this host cannot vanish.
        """
        if self._silenced is None:
            raise ValueError("a host with other nodes cannot vanish")
        self._silenced(True)
        self._end(CRASHED)

    def quiesce(self) -> None:
        """Stop firing timers and opening connections. The node still receives and forwards frames."""
        if self.driver is not None:
            self.driver.quiesce()

    async def close(self) -> None:
        """Close all connections, including those of earlier instances."""
        if self.driver is not None:
            await self.driver.links.close()
        self._close_listener()
        await asyncio.gather(*self._closing)

    async def _begin(self, node: StatefulNode, directory: Directory, *, joins: bool) -> None:
        assert self._listener is not None, "the listener is opened first"
        driven = node if self._recorder is None else self._recorder.watch(node, self._started)
        driver = Driver(driven, self._trace, self._clock)
        driver.links = ConnectionPool(
            driver,
            self._spec.node,
            self._run,
            self._addresses,
            self._listen[0],
            self._send_queue_bytes,
            self._draws,
            self.counts,
            self._clock,
            self._make_socket,
        )
        self._node, self.driver = node, driver
        self._started += 1
        if joins:
            driver.trace(announce_join(node, self._clock.now_ns()))
        driver.feed(contract.Started())
        self._server = await asyncio.get_running_loop().create_server(driver.links.accept, sock=self._listener)
        driver.feed(contract.PeerList(directory))

    def _end(self, reason: str) -> None:
        driver, node = self.driver, self._node
        assert driver is not None, "the schedule ends only instances that have begun"
        assert node is not None, "a driver has a node"
        for event in announce_end(node, self._clock.now_ns(), reason):
            driver.trace(event)
        self.driver = self._node = None
        driver.stop()
        self._close_listener()
        if reason == CRASHED:
            driver.links.cut(reason)
            if self._killed is not None:
                self._killed()
        else:
            self._closing.append(asyncio.get_running_loop().create_task(driver.links.close(reason)))

    def _close_listener(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._listener is not None:
            self._listener.close()
        self._server = self._listener = None
