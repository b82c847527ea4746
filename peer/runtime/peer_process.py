"""A process of peers: they listen, report that they are ready, start, follow the schedule, quiesce, close and exit.

``docs/protocol-contract.md`` shows the timeline of a peer. Most processes have one; ``AgentSpec.shared`` lists those
that have several. The agent has the other end of the control socket. The process sends a byte when its peers are ready,
and the agent sends a line with the workload's zero. If the socket closes before, the process ends.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from heapq import merge
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import uvloop
from msgspec import Struct
from prometheus_client.core import Metric

from peer.core.directory import Directory
from peer.core.identifiers import MessageId, TopicId
from peer.core.randomness import substream
from peer.core.schedule import Crash, Publish, Vanish
from peer.files import record_file, temporary_folder, trace_file
from peer.instances.bootstrap import Step, tell
from peer.instances.lifecycle import enact
from peer.instances.spec import AgentSpec, OverlayDocument, PeerPlace
from peer.runtime.addresses import AddressBook
from peer.runtime.clock import Clock
from peer.runtime.exposition import serve_metrics
from peer.runtime.foreign_processes import Processes
from peer.runtime.host_sockets import MakeSocket
from peer.runtime.instances import Instances
from peer.runtime.line_programs import Programs, Setting
from peer.runtime.metrics import collect
from peer.runtime.recording import Recorder
from peer.runtime.restarts import Shared, Stretch, divide, run_in_turn
from peer.runtime.scripted import Part, Scripted
from peer.runtime.silence import Silence, forget_connections
from peer.runtime.tracefile import TraceFile

Result = TypeVar("Result")

AnySlot: TypeAlias = Instances | Programs | Processes | Scripted

READY = b"R"
FLUSH_S = 1.0
"""The time between two flushes of the trace (s). A killed peer may lose this much of the end of its trace."""


class Orders(Struct, frozen=True):
    """The documents that the peers of a machine share.

    ``directory``: the bootstrap service's first answer, made once, since it is large and every node reads it.
    ``steps``: node -> its actions in the order of their instants; joins have the bootstrap service's answers.
    ``refreshes``: the answers for all nodes. ``addresses``: the resolved addresses of ``agent``. ``part``: what is
    known of the script that programs follow; None = they follow none.
    """

    agent: AgentSpec
    overlay: OverlayDocument
    directory: Directory
    steps: dict[int, tuple[Step, ...]]
    refreshes: tuple[Step, ...]
    addresses: AddressBook
    folder: Path
    part: Part | None = None

    def topics_by_message(self) -> dict[MessageId, tuple[TopicId, ...]]:
        """Return the topics of each message of the schedule."""
        actions = (step.action for steps in self.steps.values() for step in steps)
        return {action.message_id: action.topics for action in actions if isinstance(action, Publish)}

    def ends_process(self, node: int) -> bool:
        """Return whether the schedule has a crash of the node, silent or not, which kills its process."""
        return any(isinstance(step.action, Crash | Vanish) for step in self.steps.get(node, ()))

    def vanishes(self, node: int) -> bool:
        """Return whether the schedule has a silent crash of the node."""
        return any(isinstance(step.action, Vanish) for step in self.steps.get(node, ()))


def run_peer(place: PeerPlace, orders: Orders, control: socket.socket) -> None:
    """Run the peer of ``place`` until the plan's end or SIGTERM. A node that crashes has one process per stretch.

    Args:
        place: where the peer runs.
        orders: the documents that all peers of the machine share.
        control: this end of the socket to the agent.

    Raises:
        Exception: there is a bug. Exceptions in callbacks of the loop end the peer, too.
    """
    shared = Shared()
    steps = orders.steps.get(place.node, ())
    # A process that drives a program goes on after crashes of the program.
    whole = [Stretch(0, 0, steps)]
    stretches = whole if orders.agent.drives else divide(steps, orders.overlay.nodes[place.node].up)

    def run(stretch: Stretch) -> None:
        process = PeerProcess(control)
        uvloop.run(process.run([Peer(place, orders, process, stretch, shared)]))

    if len(stretches) == 1:
        run(stretches[0])
    else:
        silence = Silence(place.listen[0]) if orders.vanishes(place.node) else None
        run_in_turn(stretches, shared, run, silence)


def run_peers(hosted: Sequence[tuple[PeerPlace, MakeSocket | None]], orders: Orders, control: socket.socket) -> None:
    """Run several peers in this process until the plan's end or SIGTERM. Their nodes do not crash.

    Args:
        hosted: where each peer runs, and what makes sockets of its host; None = the host is this process's.
        orders: the documents that all peers of the machine share.
        control: this end of the socket to the agent.

    Raises:
        Exception: there is a bug in one of the peers, which ends them all.
    """
    process, shared = PeerProcess(control), Shared()
    peers = [
        Peer(place, orders, process, Stretch(0, 0, orders.steps.get(place.node, ())), shared, make_socket)
        for place, make_socket in hosted
    ]
    uvloop.run(process.run(peers))


class PeerProcess:
    """What the peers of a process have in common: their loop, the barrier, SIGTERM, and the first error.

    Args:
        control: this end of the socket to the agent.

    Attributes:
        is_shared: whether there are several peers.
        stopping: is set when the peers must end before the plan does.
        bug: the first error of a peer; None = there was none.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._awaited = 0
        self.is_shared = False
        self.stopping = asyncio.Event()
        self.bug: BaseException | None = None

    async def run(self, peers: "Sequence[Peer]") -> None:
        """Run all peers. If one fails, all end.

        Raises:
            Exception: the first error.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stopping.set)
        loop.set_exception_handler(self._fail)
        self.is_shared = len(peers) > 1
        self._awaited = len(peers)
        self._zero: asyncio.Future[bytes] = loop.create_future()
        await asyncio.gather(*map(self._run, peers))
        if self.bug is not None:
            raise self.bug

    async def _run(self, peer: "Peer") -> None:
        try:
            await peer.run()
        except Exception as error:
            self.give_up(error)

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the peers with an error after an exception in a callback, so that a bug does not pass as a sound run."""
        loop.default_exception_handler(context)
        self.give_up(context.get("exception") or RuntimeError(context["message"]))

    def give_up(self, error: BaseException) -> None:
        """End the peers with an error. The first of several errors counts."""
        self.bug = self.bug or error
        self.stopping.set()

    async def pass_barrier(self) -> int:
        """Wait for the other peers, tell the agent that all are ready, and return the workload's zero (virtual, ns).

        Raises:
            Stopped: the agent ended.
        """
        self._awaited -= 1
        if not self._awaited:
            self._control.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(self._control, READY)
            self._zero.set_result(await loop.sock_recv(self._control, 64))
        line = await asyncio.shield(self._zero)
        if not line:
            raise Stopped
        return int(line)


class Peer:
    """One peer of a process, with instances of its node and a stretch of its schedule.

    Args:
        place: where it runs.
        orders: the documents that all peers of the machine share.
        process: what it has in common with the other peers of its process.
        stretch: the stretch.
        shared: memory of all processes of the node, or of the peers of the process.
        make_socket: makes sockets of its host; None = it is this process's host.
    """

    def __init__(
        self,
        place: PeerPlace,
        orders: Orders,
        process: PeerProcess,
        stretch: Stretch,
        shared: Shared,
        make_socket: MakeSocket | None = None,
    ) -> None:
        self._stretch = stretch
        self._shared = shared
        self._place = place
        self._orders = orders
        self._process = process
        self._make_socket = make_socket
        self._clock = Clock(orders.agent.time_dilation)
        self._spec = orders.overlay.nodes[place.node]
        self._draws = substream(self._spec.seed, place.node, "runtime")
        self._stopping = process.stopping

    async def run(self) -> None:
        """Run the peer from the listening socket to the last line of the trace."""
        with self._tracing() as trace, self._recording() as recorder:
            slot = self._make_slot(trace, recorder)
            if self._place.metrics is not None:
                read = partial(_collect, trace, slot, not self._process.is_shared)
                await serve_metrics(*self._place.metrics, read, self._make_socket)
            self._flush_later(trace, FLUSH_S * self._draws.random())  # at other instants than other peers
            try:
                with contextlib.suppress(Stopped):
                    await self._perform(slot)
            finally:
                self._flushing.cancel()
                slot.quiesce()
                await slot.close()
            if self._process.bug is not None:
                raise self._process.bug

    def _flush_later(self, trace: TraceFile, delay_s: float) -> None:
        self._flushing = asyncio.get_running_loop().call_later(delay_s, self._flush, trace)

    def _flush(self, trace: TraceFile) -> None:
        trace.flush()
        self._flush_later(trace, FLUSH_S)

    def _make_slot(self, trace: TraceFile, recorder: Recorder | None) -> AnySlot:
        orders = self._orders
        if orders.agent.processes:
            return Processes(self._spec.node, orders.agent, orders.folder, self._clock, lambda: self._shared.zero_ns)
        if orders.agent.drives:
            node = self._spec.node
            temporary = (orders.folder / temporary_folder(node)).absolute()
            topics = orders.topics_by_message()
            setting = Setting(node, orders.agent, orders.overlay, topics, self._clock, temporary)
            if orders.part is not None:
                return Scripted(setting, orders.part, orders.folder, trace, self._process.give_up)
            return Programs(setting, trace, self._process.give_up)
        return Instances(
            self._spec,
            trace,
            run=orders.agent.run,
            addresses=orders.addresses,
            listen=self._place.listen,
            send_queue_bytes=orders.agent.send_queue_bytes,
            recorder=recorder,
            clock=self._clock,
            earlier=self._stretch.instances,
            killed=lambda: self._crash(trace, recorder),
            silenced=self._silence,
            make_socket=self._make_socket,
        )

    @property
    def _is_first(self) -> bool:
        return self._stretch.number == 0

    @property
    def _is_up_at_start(self) -> bool:
        return self._spec.up and self._is_first

    def _crash(self, trace: TraceFile, recorder: Recorder | None) -> None:
        """Write the trace and kill this process, as the schedule requires."""
        trace.flush()
        if recorder is not None:
            recorder.close()
        self._shared.crash()

    def _silence(self, silent: bool) -> None:
        """Make the host silent before a kill of this process, or let it answer again before the node joins."""
        self._shared.silence(silent)
        if silent:
            forget_connections(self._place.listen[0])

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[TraceFile]:
        spec = self._spec
        path = self._orders.folder / trace_file(spec.node)
        trace = TraceFile(path, spec.node, spec.topics, self._clock.now_ns(), resume=not self._is_first)
        yield trace
        # This is not in a finally block, since a peer that failed must leave a trace without its last line.
        trace.close(self._clock.now_ns())

    @contextlib.contextmanager
    def _recording(self) -> Iterator[Recorder | None]:
        if not self._orders.agent.record:
            yield None
            return
        recorder = Recorder(self._orders.folder / record_file(self._spec.node), resume=not self._is_first)
        yield recorder
        recorder.close()

    async def _perform(self, slot: AnySlot) -> None:
        """Run from the listening to the end of the drain.

        Raises:
            Stopped: SIGTERM arrived, the agent ended, or something failed.
        """
        if self._is_up_at_start:
            await self._unless_stopped(slot.listen())
        if self._is_first:
            self._shared.zero_ns = await self._unless_stopped(self._process.pass_barrier())
        zero_ns = self._shared.zero_ns
        agent = self._orders.agent
        await self._sleep_until(zero_ns - agent.warmup_ns)
        if self._is_up_at_start:
            await slot.begin(tell(self._spec, self._orders.directory))
        for step in merge(self._stretch.steps, self._orders.refreshes, key=lambda step: step.at_ns):
            if step.at_ns >= agent.stop_ns:
                break
            await self._sleep_until(zero_ns + step.at_ns)
            if (joining := enact(step, self._spec, slot)) is not None:
                await joining
        await self._sleep_until(zero_ns + agent.stop_ns)
        slot.quiesce()
        await self._sleep_until(zero_ns + agent.stop_ns + agent.drain_ns)
        if isinstance(slot, Scripted):
            await self._unless_stopped(slot.await_end())

    async def _unless_stopped(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a coroutine and return its result.

        Raises:
            Stopped: SIGTERM arrived, or something failed; the coroutine is cancelled.
        """
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not working.done():
            working.cancel()
            raise Stopped
        return working.result()

    async def _sleep_until(self, instant_ns: int) -> None:
        """Sleep until an instant, and run the loop at least once, so that overdue publications do not block it.

        Raises:
            Stopped: SIGTERM arrived.
        """
        await asyncio.sleep(0)
        while not self._stopping.is_set() and (wait_s := self._clock.wait_s(instant_ns)) > 0:
            with contextlib.suppress(TimeoutError):
                # The loop's clock counts milliseconds. Half a millisecond more makes it round up.
                await asyncio.wait_for(self._stopping.wait(), wait_s + 0.0005)
        if self._stopping.is_set():
            raise Stopped


class Stopped(Exception):
    """The process must end before the plan does."""


def _collect(trace: TraceFile, slot: AnySlot, is_alone: bool) -> Iterator[Metric]:
    """Yield the present metrics. The events that the trace holds are counted first."""
    trace.flush()
    yield from collect(slot, is_alone)
