"""The instances of a node whose peer is a program that reads and writes lines (``peer.lines``)."""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from peer.core import contract
from peer.core.directory import Directory
from peer.core.identifiers import MessageId, NodeId, TopicId
from peer.instances.spec import AgentSpec, OverlayDocument
from peer.lines import LineError, encode_order
from peer.runtime.clock import Clock
from peer.runtime.connections import Connections
from peer.runtime.conversation import Conversation
from peer.runtime.counts import Counts
from peer.runtime.names import node_name
from peer.runtime.piped_program import Program, ProgramError, describe_status, is_listening
from peer.runtime.tracefile import TraceFile
from peer.trace import CRASHED, LEFT, TraceEvent

READY_S: Final = 60.0
"""The time within which a program must be ready (real seconds)."""

END_S: Final = 5.0
"""The time within which it must end after ``stop`` (real seconds)."""


class Setting(Struct, frozen=True):
    """The common settings of all instances of a node.

    Attributes:
        node: the node.
        agent: has the program and the addresses at which nodes listen.
        overlay: the nodes of the run.
        messages: the topics of each message of the schedule.
        clock: the clock of the node.
        temporary: the folder for temporary files of its programs. It is absolute, and is there while they run.
        ready_s: the time within which a program must be ready (s).
        end_s: the time within which it must end (s).
    """

    node: NodeId
    agent: AgentSpec
    overlay: OverlayDocument
    messages: Mapping[MessageId, tuple[TopicId, ...]]
    clock: Clock
    temporary: Path
    ready_s: float = READY_S
    end_s: float = END_S

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a program, which docs/programs.md explains."""
        host, port = self.agent.addresses[self.node]
        values = {
            "NODE": self.node,
            "NODES": len(self.agent.addresses),
            "NAME": node_name(self.node),
            "HOST": host,
            "PORT": port,
            "SEED": self.overlay.nodes[self.node].seed,
            "TIME_DILATION": self.clock.dilation,
        }
        return {f"TRELLIS_{name}": str(value) for name, value in values.items()}

    @property
    def words(self) -> list[str]:
        """The program and its arguments."""
        return [word.replace("{node}", str(self.node)) for word in self.agent.program_of(self.node).command]


class Programs:
    """The node's slot, in which its instances run one after another, each in a process of the program.

    Args:
        setting: the settings of the instances.
        trace: the node's trace file for all instances.
        failed: called with the reason why the peer cannot go on.

    Attributes:
        events: trace events of all instances by name.
    """

    def __init__(self, setting: Setting, trace: TraceFile, failed: Callable[[ProgramError], None]) -> None:
        counted = {"publish", "deliver"} | {"duplicate"}.intersection(setting.agent.program_of(setting.node).says)
        counts = Counts(dict.fromkeys(sorted(counted), 0))
        self.events = counts.events
        trace.observe = counts.add
        self._setting = setting
        self._trace = trace.write
        self._failed = failed
        self._connections = Connections(setting.overlay, setting.node, setting.agent.connect)
        self._present: _Instance | None = None
        self._instances = 0
        self._closing: list[asyncio.Task[None]] = []

    async def listen(self) -> None:
        """Start the program of the instance that starts with the peers, and wait until the program listens."""
        instance = self._start(self._setting.overlay.nodes[self._setting.node].topics)
        await instance.listening

    async def begin(self, directory: Directory) -> None:
        """Order the connections of the instance that starts with the peers."""
        self._running.connect(self._connections.begin())

    async def join(self, topics: Sequence[TopicId], directory: Directory) -> None:
        """Start a program for a new instance after the programs of earlier ones have ended."""
        await asyncio.gather(*self._closing)
        instance = self._start(topics)
        instance.join()
        instance.connect(self._connections.update(directory))

    def feed(self, event: contract.Event) -> None:
        """Order an action of the schedule, unless the node is down."""
        if self._present is None:
            return
        if isinstance(event, contract.PeerList):
            self._present.connect(self._connections.update(event.directory))
        else:
            self._present.order(event)

    def leave(self) -> None:
        """End the instance: order the program to stop."""
        instance = self._end(LEFT)
        self._closing.append(asyncio.create_task(instance.stop()))

    def crash(self) -> None:
        """End the instance: kill the program."""
        self._end(CRASHED).kill()

    def vanish(self) -> None:
        """Refuse a silent crash.

        Raises:
            ValueError: always.
        """
        raise ValueError("the host of a driven program cannot vanish")

    def quiesce(self) -> None:
        """Give no more orders except ``stop``."""
        if self._present is not None:
            self._present.quiet = True

    async def close(self) -> None:
        """Stop the present program, and wait for the end of all programs."""
        if self._present is not None:
            self._closing.append(asyncio.create_task(self._present.stop()))
            self._present = None
        await asyncio.gather(*self._closing)
        shutil.rmtree(self._setting.temporary, ignore_errors=True)  # also of programs whose end is not known yet

    @property
    def _running(self) -> "_Instance":
        assert self._present is not None, "the schedule has only what can happen to the node"
        return self._present

    def _start(self, topics: Sequence[TopicId]) -> "_Instance":
        self._instances += 1
        temporary = self._setting.temporary / str(self._instances)
        self._present = _Instance(self._setting, topics, temporary, self._trace, self._failed)
        return self._present

    def _end(self, reason: str) -> "_Instance":
        """Trace the end of the present instance, and return it."""
        instance, self._present = self._running, None
        self._connections.forget()
        instance.end(reason)
        return instance


class _Instance:
    """One instance of the node, from the start of its program to its end.

    Attributes:
        listening: done when the program is ready.
        quiet: whether it gets no more orders except ``stop``.
    """

    def __init__(
        self,
        setting: Setting,
        topics: Sequence[TopicId],
        temporary: Path,
        trace: Callable[[TraceEvent], None],
        failed: Callable[[ProgramError], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.listening: asyncio.Future[None] = loop.create_future()
        self.quiet = False
        self._setting = setting
        self._trace = trace
        self._failed = failed
        self._expected = self._over = self._faulty = False
        clock, nodes = setting.clock, len(setting.agent.addresses)
        self._conversation = Conversation(
            setting.node,
            topics,
            setting.agent.program_of(setting.node).says,
            setting.messages,
            nodes,
            clock.now_ns(),
            clock.virtual_ns,
        )
        self._program = Program(setting.words, setting.environment, temporary, self._hear, self._fail)
        self._program.ended.add_done_callback(self._judge_end)
        self._waiting = loop.call_later(setting.ready_s, self._fail_to_listen)

    def join(self) -> None:
        """Trace the beginning of an instance during the run."""
        self._trace(self._conversation.join(self._setting.clock.now_ns()))

    def connect(self, peers: Sequence[NodeId]) -> None:
        if not self.quiet:
            for peer in peers:
                self._program.write(self._conversation.connect(peer, *self._setting.agent.addresses[peer]))

    def order(self, event: contract.Event) -> None:
        if not self.quiet:
            self._carry_out(*self._conversation.order(event, self._setting.clock.now_ns()))

    def end(self, reason: str) -> None:
        """Trace the end of the instance. Later reports of the program are not traced."""
        for event in self._conversation.end(self._setting.clock.now_ns(), reason):
            self._trace(event)
        self._over = True

    def kill(self) -> None:
        self._expected = True
        self._waiting.cancel()
        self._program.kill()

    async def stop(self) -> None:
        """Order the program to end, and wait for that."""
        self._waiting.cancel()
        self._expected = True
        self._program.write(encode_order("stop"))
        ended, _ = await asyncio.wait([self._program.ended], timeout=self._setting.end_s)
        if not ended:
            self._fail(ProgramError(f"did not end within {self._setting.end_s:g} s after 'stop'"))
        elif (status := self._program.ended.result()) != 0:
            self._fail(ProgramError(f"{describe_status(status)} after 'stop'"))

    def _hear(self, data: bytes) -> None:
        if self._over:
            return
        was_ready = self._conversation.ready
        try:
            self._carry_out(*self._conversation.hear(data, self._setting.clock.now_ns()))
        except LineError as error:
            self._fail(ProgramError(str(error)))
        if self._conversation.ready and not was_ready:
            self._check_listening()

    def _check_listening(self) -> None:
        self._waiting.cancel()
        _, port = self._setting.agent.addresses[self._setting.node]
        if not is_listening(port):
            self._fail(ProgramError(f"reported 'ready', but nothing listens on port {port}"))
        elif not self.listening.done():
            self.listening.set_result(None)

    def _carry_out(self, lines: bytes, events: Sequence[TraceEvent]) -> None:
        for event in events:
            self._trace(event)
        self._program.write(lines)

    def _fail_to_listen(self) -> None:
        self._fail(ProgramError(f"did not report 'ready' within {self._setting.ready_s:g} s"))

    def _judge_end(self, ended: asyncio.Future[int]) -> None:
        self._waiting.cancel()
        if not self._expected:
            self._fail(ProgramError(f"{describe_status(ended.result())} before it was told to stop"))

    def _fail(self, error: ProgramError) -> None:
        """End the program and report why. Only the first fault counts, since the others follow from it."""
        if not self._faulty:
            self._faulty = self._over = True
            self.kill()
            self._failed(error)
