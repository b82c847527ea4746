"""The processes of a node whose programs know nothing of Trellis: they are started, get a signal, and are judged.

Nothing is traced but the start and the stop of the peer that starts them. The captures show what they send.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from peer.core.contract import Event
from peer.core.directory import Directory
from peer.core.identifiers import NodeId, TopicId
from peer.files import ends_file, host_folder, output_files
from peer.instances.spec import AgentSpec, ProcessSpec
from peer.runtime.clock import Clock
from peer.runtime.names import own_names
from peer.runtime.namespaces import die_with_parent
from peer.runtime.piped_program import ProgramError, kill_group

RUNNING: Final = "running"
NOT_STARTED: Final = "not started"


class ProcessEnd(Struct, frozen=True):
    """A line of ``hosts/NAME/processes.jsonl``: how a process ended.

    Attributes:
        process: the name of its output files, such as ``curl.1000``.
        command: the program and its arguments.
        expected: the required state at the stop.
        found: its state at the stop: ``running``, ``exited STATUS``, ``signalled SIGNAL`` or ``not started``.
        started_ns: when it was started, a virtual instant (ns); None = never.
        ended_ns: when it ended by itself or by a signal; None = it had not ended at the stop.
        detail: why it was not started.
    """

    process: str
    command: tuple[str, ...]
    expected: str
    found: str
    started_ns: int | None = None
    ended_ns: int | None = None
    detail: str = ""


def collected_files(agent: AgentSpec) -> Iterator[str]:
    """Yield the paths, in the agent's work folder, of the files of the processes on its machine."""
    here, names = {place.node for place in agent.peers}, own_names(agent)
    for process in agent.processes:
        if process.node in here:
            yield from output_files(names[process.node], process.name)
    if agent.processes:
        yield from (ends_file(names[node]) for node in sorted(here))


class Processes:
    """The slot of a node that only starts processes. The node is up from the start to the stop.

    Each process has a process group of its own. What has not ended at the stop is killed and counts as running.

    Args:
        node: the node.
        agent: has the processes and the names of hosts.
        folder: the agent's work folder.
        clock: the clock of the node.
        zero_ns: returns the workload's zero, a virtual instant (ns). It is called when the peers start.

    Attributes:
        events: trace events by name: none.
    """

    def __init__(self, node: NodeId, agent: AgentSpec, folder: Path, clock: Clock, zero_ns: Callable[[], int]) -> None:
        self.events: dict[str, int] = {}
        self._zero_ns = zero_ns
        host = own_names(agent)[node]
        self._inside = folder / host_folder(host)
        self._ends = folder / ends_file(host)
        self._processes = [
            _Process(spec, self._inside, [folder / path for path in output_files(host, spec.name)], clock)
            for spec in agent.processes
            if spec.node == node
        ]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def states(self) -> list[str]:
        """How each process is now, as in ``ProcessEnd.found``."""
        return [process.describe().found for process in self._processes]

    async def listen(self) -> None:
        """Make the folder of the host. No process listens before it is started."""
        self._inside.mkdir(parents=True, exist_ok=True)

    async def begin(self, directory: Directory) -> None:
        """Start each process at its instant from now on."""
        zero_ns = self._zero_ns()
        self._tasks = [asyncio.create_task(process.run(zero_ns)) for process in self._processes]

    async def join(self, topics: Sequence[TopicId], directory: Directory) -> None:
        """Refuse a join.

        Raises:
            ValueError: always.
        """
        raise ValueError("a node with processes is up all the time")

    def leave(self) -> None:
        """Refuse a leave.

        Raises:
            ValueError: always.
        """
        raise ValueError("a node with processes is up all the time")

    crash = vanish = leave

    def feed(self, event: Event) -> None:
        """Do nothing: the programs know no topics, messages or nodes."""

    def quiesce(self) -> None:
        """End all processes. What runs now counts as running."""
        for task in self._tasks:
            task.cancel()
        for process in self._processes:
            process.stop()

    async def close(self) -> None:
        """Write how the processes ended.

        Raises:
            ProgramError: a process ended in another state than expected.
        """
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):  # a bug; a task that was cancelled is none
                raise result
        ends = [process.describe() for process in self._processes]
        self._ends.write_bytes(msgspec.json.Encoder().encode_lines(ends))
        wrong = [end for end in ends if end.found != end.expected]
        if wrong:
            first, more = wrong[0], f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            detail = f" ({first.detail})" if first.detail else ""
            raise ProgramError(f"{first.process} was to be {first.expected!r}, but was {first.found!r}{detail}{more}")


class _Process:
    """A process, from its start to its end.

    Args:
        spec: the process.
        inside: the folder in which it runs.
        outputs: the files of its standard output and standard error.
        clock: the clock of its instants.
    """

    def __init__(self, spec: ProcessSpec, inside: Path, outputs: Sequence[Path], clock: Clock) -> None:
        self._spec = spec
        self._inside = inside
        self._outputs = outputs
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._found = NOT_STARTED
        self._detail = ""
        self._started_ns: int | None = None
        self._ended_ns: int | None = None

    async def run(self, zero_ns: int) -> None:
        """Start the process, and send it the signal that the plan has for it, at their instants."""
        await self._sleep_until(zero_ns + self._spec.start_ns)
        try:
            self._start()
        except (OSError, subprocess.SubprocessError) as error:
            self._detail = str(error)
            return
        if self._spec.shutdown_ns is not None:
            await self._sleep_until(zero_ns + self._spec.shutdown_ns)
            if self._found == RUNNING and self._process is not None:
                signal.pidfd_send_signal(self._pidfd, signal.Signals[self._spec.shutdown_signal])

    def stop(self) -> None:
        """Kill the process and what is left in its group; it counts as running, unless it has ended already."""
        if self._found != RUNNING or self._process is None:
            return
        if os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self._reap()
            return
        asyncio.get_running_loop().remove_reader(self._pidfd)
        kill_group(self._process.pid, self._pidfd)
        self._process.wait()
        os.close(self._pidfd)
        self._process = None

    def describe(self) -> ProcessEnd:
        spec = self._spec
        instants = self._started_ns, self._ended_ns
        return ProcessEnd(spec.name, spec.command, spec.expected, self._found, *instants, self._detail)

    async def _sleep_until(self, at_ns: int) -> None:
        while (wait_s := self._clock.wait_s(at_ns)) > 0:
            await asyncio.sleep(wait_s)

    def _start(self) -> None:
        variables = dict(text.split("=", 1) for text in self._spec.environment)
        with self._outputs[0].open("wb") as out, self._outputs[1].open("wb") as error:
            self._process = subprocess.Popen(
                self._spec.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=error,
                cwd=self._inside,
                env={**os.environ, **variables},
                process_group=0,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        self._started_ns, self._found = self._clock.now_ns(), RUNNING
        self._pidfd = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        """Note how the process ended. Processes that it has left behind go on."""
        assert self._process is not None, "it was started"
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._ended_ns = self._clock.now_ns()
        self._found = _describe_state(self._process.wait())
        os.close(self._pidfd)


def _describe_state(status: int) -> str:
    """Return how a process ended, as in ``ProcessSpec.expected``. ``status``: as of ``subprocess``."""
    if status >= 0:
        return f"exited {status}"
    try:
        return f"signalled {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal without a name
        return f"signalled {-status}"
