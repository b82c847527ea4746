"""The deployment of a run: each step runs on all machines in parallel."""

import secrets
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from harness.deployment.agents import files_of
from harness.deployment.answers import StepError
from harness.deployment.archive import move_files
from harness.deployment.clock import merge_offsets, read_clock_offset
from harness.deployment.package import DEPENDENCIES, MIN_PYTHON, Package, build_package
from harness.deployment.session import FAULTS, CommandError, MachineSession
from harness.errors import DeploymentError, last_line
from harness.experiment.inventory import Machine
from harness.terminal import printable
from metrics.rundir import ClockOffset, FinalState, write_document
from metrics.rundir.files import CLOCKS_FILE, agent_log
from peer.files import AGENT_FILE, OVERLAY_FILE, SCHEDULE_FILE, SCRIPT_FILE
from peer.instances.spec import AgentSpec
from peer.runtime.foreign_processes import collected_files

Result = TypeVar("Result")

MAX_PARALLEL = 32
"""Most threads at a time; a thread mostly waits for its machine."""

POLL_S = 0.2

LEAD_S = 1.0
"""Time from the start command to the start of the peers, besides the time that the command takes."""

_PROBE = """
import importlib.metadata as metadata, json, platform, sys
found = {}
for name in sys.argv[1:]:
    try: found[name] = metadata.version(name)
    except metadata.PackageNotFoundError: pass
print(json.dumps({"python": platform.python_version(), "kernel": platform.release(), "packages": found}))
"""


class Versions(msgspec.Struct, frozen=True):
    """The versions on a machine: of Python, of the kernel, and of the packages that it has of those asked for."""

    python: str
    kernel: str
    packages: dict[str, str]


class AgentStatus(msgspec.Struct, frozen=True):
    """The part of an agent's answer to ``status`` that the deployment reads."""

    ready: bool
    exits: tuple[FinalState, ...] = ()


class StartAnswer(msgspec.Struct, frozen=True):
    """The part of an agent's answer to ``start`` that the deployment reads."""

    lead_ns: int


class Deployment:
    """The machines of one run, one ``MachineSession`` each.

    A run takes the steps in the order of the methods: connect, check, ship, push, start the agents, await the barrier,
    read the clocks, start, wait, collect. ``faults``, ``status`` and ``stop`` may be called at any time in between.
    Each step runs on all machines at the same time. It either succeeds on all of them or raises a ``DeploymentError``
    with the error message of every machine on which it failed; the other machines have completed the step by then.

    Agents live as long as their connections. Leaving the context ends the agents, and with them every peer, removes
    the run's folder where this deployment made it and did not fail to collect it, and closes the connections.

    Args:
        machines: the machines to deploy to.
        token: name of the run's folder on the machines (``make_token``).
        logs: the folder for the agents' logs.
        held: whether the run's folder on a machine is removed when the connection to it ends for any reason.

    Attributes:
        sessions: machine name -> the connection to it.
        call_s: machine name -> the seconds that its agent took for its last answer.
    """

    def __init__(self, machines: Sequence[Machine], token: str, logs: Path, *, held: bool = False) -> None:
        self.logs = logs
        self._held = held
        self.clocks: dict[str, ClockOffset] = {}
        self.sessions = {machine.name: MachineSession(machine, token) for machine in machines}
        self.call_s: dict[str, float] = {}
        self._outputs: dict[str, list[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.disconnect()

    @property
    def machines(self) -> tuple[Machine, ...]:
        return tuple(session.machine for session in self.sessions.values())

    def connect(self) -> None:
        self.each("connect", MachineSession.open)

    def check_versions(self, dependencies: Sequence[str] = DEPENDENCIES) -> dict[str, Versions]:
        """Return the versions on every machine. Refuse machines that lack a dependency, with the command for a fix."""
        decode = msgspec.json.Decoder(Versions).decode
        versions = self.each("probe", lambda session: decode(session.run_python(_PROBE, *dependencies)))
        missing = {
            name: _missing(versions[name], session.machine, dependencies) for name, session in self.sessions.items()
        }
        if refused := {name: text for name, text in missing.items() if text}:
            raise DeploymentError("check versions", refused)
        return versions

    def ship(self, package: Package | None = None) -> dict[str, bool]:
        """Copy the peer package to every machine; the result is False for machines that have it already."""
        package = package or build_package()
        return self.each("ship", lambda session: session.ship(package))

    def push(
        self, specs: Mapping[str, AgentSpec], overlay: bytes, schedule: bytes, script: bytes | None = None
    ) -> None:
        """Make the run's folder on every machine and write the agent's files into it.

        Args:
            specs: machine -> its agent.
            overlay: the content of ``overlay.json``.
            schedule: the content of ``schedule.jsonl``.
            script: the content of ``params.json``; None = there is none.
        """
        self._outputs = {name: list(collected_files(spec)) for name, spec in specs.items()}
        common = {OVERLAY_FILE: overlay, SCHEDULE_FILE: schedule} | ({} if script is None else {SCRIPT_FILE: script})

        def push_one(session: MachineSession) -> None:
            session.make_folder(held=self._held)
            agent = msgspec.json.encode(specs[session.machine.name])
            for name, content in {AGENT_FILE: agent, **common}.items():
                session.put(session.work / name, content)

        self.each("push", push_one)

    def start_agents(self) -> None:
        """Start every machine's agent, which starts its peers; these wait at the barrier."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.each("start agent", lambda session: session.start_agent(self._log_of(session)))

    def await_ready(self, timeout_s: float) -> None:
        """Wait until every peer has reached the barrier, then read the clocks."""
        deadline = time.monotonic() + timeout_s
        self.each("await ready", lambda session: self._await_ready(session, deadline))
        self.clocks = self.read_clocks()

    def read_clocks(self) -> dict[str, ClockOffset]:
        """Return the offset of every machine's clocks from this machine's.

        It asks one machine after the other, since parallel round trips delay each other.
        """
        return self.each("read clock", _clock_offset, parallel=1)

    @property
    def lead_s(self) -> float:
        """Real time by which the start command must precede the peers' start.

        For each batch of machines that get it in parallel, twice the time in which the slowest machine answered that it
        is ready; and ``LEAD_S``.
        """
        batches = -(-len(self.sessions) // MAX_PARALLEL)
        return LEAD_S + 2 * batches * max(self.call_s.values(), default=0.0)

    def start(self, zero_epoch_ns: int) -> dict[str, int]:
        """Lift the barrier.

        Args:
            zero_epoch_ns: the workload's zero by this machine's CLOCK_REALTIME; converted to each machine's clock.

        Returns:
            Time in virtual ns between the command's arrival at each machine and its peers' start; below 0 = too late.
        """

        def start_one(session: MachineSession) -> int:
            zero_ns = zero_epoch_ns + self.clocks[session.machine.name].realtime_ns
            return msgspec.convert(session.call("start", str(zero_ns)), StartAnswer).lead_ns

        return self.each("start", start_one)

    def faults(self) -> dict[str, str]:
        """Return the machines whose agent ended unexpectedly or cannot be reached, with the reason."""
        found = {name: session.agent_fault for name, session in self.sessions.items()}
        return {name: text for name, text in found.items() if text is not None}

    def status(self) -> dict[str, Any]:
        return self.each("status", lambda session: session.call("status"))

    def wait(self, timeout_s: float) -> dict[str, int]:
        """Wait until every agent has ended, which follows the end of its peers. Return the exit statuses."""
        deadline = time.monotonic() + timeout_s
        return self.each("wait", lambda session: session.wait_agent(deadline - time.monotonic()))

    def collect(self, run_dir: Path, nodes: Mapping[str, Collection[int]]) -> None:
        """Copy all files into ``run_dir``, and delete them on machines whose agent has ended.

        Afterwards ``run_dir`` has the files of ``fetch`` and, if machines have their own clocks, ``clocks.json``: each
        machine's ``ClockOffset`` over the whole run. Files that could not be copied stay on their machine.
        """

        def collect_one(session: MachineSession) -> None:
            try:
                self._bring_home(session, run_dir, nodes)
            except BaseException:
                session.keep_folder()
                raise
            if session.agent_status is not None:
                session.remove_folder()

        try:
            self.each("collect", collect_one)
        finally:
            if any(machine.own_clock for machine in self.machines):
                self._write_clocks(run_dir / CLOCKS_FILE)

    def fetch(self, destination: Path, nodes: Mapping[str, Collection[int]]) -> None:
        """Copy the files written so far: ``trace/<node>.jsonl``, ``logs/``, ``record/`` and ``exits-<machine>.jsonl``.

        ``nodes``: machine -> its nodes. A machine may send only their files, and all machines together at most half of
        the free space.
        """
        self.each("collect", lambda session: self._fetch(session, destination, nodes))

    def stop(self) -> None:
        self.each("stop", lambda session: session.call("stop"))

    def stop_running(self) -> None:
        """Tell the agents that still run to end their peers now."""
        running = {name: one for name, one in self.sessions.items() if one.agent_fault is None}
        self.each("stop", lambda session: session.call("stop"), among=running)

    def clean(self) -> dict[str, Any]:
        """Remove the folders of ended runs. Return per machine the removed folders, and those kept as maybe in use."""
        return self.each("clean", lambda session: session.on_site("clean", session.machine.work))

    def disconnect(self) -> None:
        """End the agents that still run, remove the folders of this run that were not collected, close the connections.

        A failure on a machine is reported on standard error; its agent ends by itself.
        """
        for name, words in self.each("disconnect", _leave).items():
            if words:
                print(f"{name}: {printable(words)}; fab clean removes what is left", file=sys.stderr, flush=True)

    def _bring_home(self, session: MachineSession, run_dir: Path, nodes: Mapping[str, Collection[int]]) -> None:
        """Move the files if they are on a disk of this machine, otherwise copy them."""
        machine = session.machine
        if machine.work_here:
            folder = Path(machine.work_here) / session.work.relative_to(machine.work)
            move_files(folder, self._files_of(machine.name, nodes), run_dir)
        else:
            self._fetch(session, run_dir, nodes)

    def _fetch(self, session: MachineSession, destination: Path, nodes: Mapping[str, Collection[int]]) -> None:
        destination.mkdir(parents=True, exist_ok=True)
        name = session.machine.name
        budget_bytes = shutil.disk_usage(destination).free // 2 // len(self.sessions)
        session.fetch(self._files_of(name, nodes), destination, budget_bytes)

    def _files_of(self, name: str, nodes: Mapping[str, Collection[int]]) -> dict[str, str]:
        return files_of(name, nodes.get(name, ()), self._outputs.get(name, ()))

    def _write_clocks(self, path: Path) -> None:
        try:
            after = self.read_clocks()
        except DeploymentError:
            after = self.clocks  # the failed step has reported it; use the offsets read before
        self.clocks = {name: merge_offsets(self.clocks.get(name, clock), clock) for name, clock in after.items()}
        write_document(path, self.clocks)

    def _await_ready(self, session: MachineSession, deadline: float) -> None:
        while not self._is_ready(session):
            if (status := session.agent_status) is not None:
                raise StepError(f"the agent ended with status {status}: {last_line(self._log_of(session))}")
            if time.monotonic() > deadline:
                raise StepError("the peers did not reach the barrier in time")
            time.sleep(POLL_S)

    def _is_ready(self, session: MachineSession) -> bool:
        asked_s = time.monotonic()
        try:
            status = msgspec.convert(session.call("status"), AgentStatus)
        except CommandError:
            return False  # an agent that has just started does not listen yet
        self.call_s[session.machine.name] = time.monotonic() - asked_s
        if status.exits:
            first = status.exits[0]
            problem = f"{len(status.exits)} peers ended before the start"
            raise StepError(f"{problem}, first {first.process}, status {first.status}")
        return status.ready

    def _log_of(self, session: MachineSession) -> Path:
        return self.logs / agent_log(session.machine.name)

    def each(
        self,
        step: str,
        action: Callable[[MachineSession], Result],
        parallel: int = MAX_PARALLEL,
        among: Mapping[str, MachineSession] | None = None,
    ) -> dict[str, Result]:
        """Run an action on every machine, and raise failures after all have finished. An interrupt does not wait."""
        sessions = self.sessions if among is None else among
        pool = ThreadPoolExecutor(max_workers=max(1, min(parallel, len(sessions))))
        try:
            futures = {name: pool.submit(action, session) for name, session in sessions.items()}
            failures = {name: text for name, future in futures.items() if (text := _failure(future))}
        finally:
            # After an interrupt, the remaining threads end with their connections.
            pool.shutdown(wait=False, cancel_futures=True)
        if failures:
            raise DeploymentError(step, failures)
        return {name: future.result() for name, future in futures.items()}


def make_token() -> str:
    """Return a unique name for a run's folder on machines."""
    return secrets.token_hex(8)


def _leave(session: MachineSession) -> str:
    """End a session's agent and remove its folder. Return what failed; empty = nothing."""
    words = ""
    if session.is_connected:
        try:
            session.end_agent()
            session.remove_folder()
        except (StepError, *FAULTS) as error:
            words = words_of(error)
    session.close()
    return words


def _clock_offset(session: MachineSession) -> ClockOffset:
    return read_clock_offset(session) if session.machine.own_clock else ClockOffset(0, 0, 0)


def _failure(future: Future[Any]) -> str | None:
    """Return the error message if the step failed on the machine. Raise other errors, which are bugs."""
    error = future.exception()
    if error is None:
        return None
    if isinstance(error, (StepError, *FAULTS)):
        return words_of(error)
    raise error


def words_of(error: BaseException) -> str:
    """Return why a step failed on a machine."""
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"  # SSH's timeout has no message
    return str(error) or type(error).__name__


def _missing(versions: Versions, machine: Machine, dependencies: Sequence[str]) -> str:
    """Return why the machine cannot run Trellis, and the command that fixes it; empty = it can."""
    if tuple(int(part) for part in versions.python.split(".")[:2]) < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        return f"{machine.python} is Python {versions.python}; {wanted} or later is needed"
    absent = [name for name in dependencies if name not in versions.packages]
    return (
        f"missing {', '.join(absent)}; run there: {machine.python} -m pip install {' '.join(absent)}" if absent else ""
    )
