"""All machines of a run, step by step and in parallel."""

from __future__ import annotations

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
from harness.deployment.clock import merge_offsets, read_clock_offset
from harness.deployment.moving import move_files
from harness.deployment.package import DEPENDENCIES, MIN_PYTHON, Package, build_package
from harness.deployment.session import FAULTS, CommandError, Session
from harness.errors import DeploymentError, printable
from harness.inventory import Machine
from metrics.rundir import ClockOffset, FinalState, write_document
from metrics.rundir.files import CLOCKS_FILE, agent_log
from peer.files import AGENT_FILE, OVERLAY_FILE, SCHEDULE_FILE
from peer.runtime.spec import AgentSpec

Result = TypeVar("Result")

MAX_PARALLEL = 32
"""Threads at work at a time; a thread mostly waits for its machine."""

POLL_S = 0.2

LEAD_S = 1.0
"""From the order to start to the first thing that a peer does, beside the time that the order itself takes."""

_PROBE = """
import importlib.metadata as metadata, json, platform, sys
found = {}
for name in sys.argv[1:]:
    try: found[name] = metadata.version(name)
    except metadata.PackageNotFoundError: pass
print(json.dumps({"python": platform.python_version(), "kernel": platform.release(), "packages": found}))
"""


class Versions(msgspec.Struct, frozen=True):
    """What a machine has: Python's version, the kernel's release, and those of ``DEPENDENCIES`` that it found."""

    python: str
    kernel: str
    packages: dict[str, str]


class AgentStatus(msgspec.Struct, frozen=True):
    """What the deployment reads of an agent's answer to ``status``; the agent says more."""

    ready: bool
    exits: tuple[FinalState, ...] = ()


class StartAnswer(msgspec.Struct, frozen=True):
    """What the deployment reads of an agent's answer to ``start``."""

    lead_ns: int


class Deployment:
    """The machines of one run.

    The steps go in the order of the methods. Each runs on all machines at a time and either succeeds on all or raises
    a ``DeploymentError`` with every failed machine's own words. Leaving the context ends the agents, with them every
    peer, removes the run's folder where this deployment made it, and closes the connections.

    Args:
        machines: where to deploy to.
        token: names the run's folder on the machines (``make_token``).
        logs: a folder for the output of the agents.
        held: whether the run's folder vanishes from a machine with the connection to it, however that ends.

    Attributes:
        sessions: machine name -> the connection to it.
        call_s: machine name -> the seconds that its agent took for its last answer.
    """

    def __init__(self, machines: Sequence[Machine], token: str, logs: Path, *, held: bool = False) -> None:
        self.logs = logs
        self._held = held
        self.clocks: dict[str, ClockOffset] = {}
        self.sessions = {machine.name: Session(machine, token) for machine in machines}
        self.call_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.disconnect()

    @property
    def machines(self) -> tuple[Machine, ...]:
        return tuple(session.machine for session in self.sessions.values())

    def connect(self) -> None:
        self._each("connect", Session.open)

    def probe(self) -> dict[str, Versions]:
        decode = msgspec.json.Decoder(Versions).decode
        return self._each("probe", lambda session: decode(session.run_python(_PROBE, *DEPENDENCIES)))

    def check_versions(self) -> dict[str, Versions]:
        """``probe``, refusing machines that cannot run a peer; says what to install there, by which command."""
        versions = self.probe()
        missing = {name: _missing(versions[name], session.machine) for name, session in self.sessions.items()}
        if refused := {name: text for name, text in missing.items() if text}:
            raise DeploymentError("check versions", refused)
        return versions

    def ship(self, package: Package | None = None) -> dict[str, bool]:
        """Bring the peer package to every machine; where it was already there, the result is False."""
        package = package or build_package()
        return self._each("ship", lambda session: session.ship(package))

    def push(self, specs: Mapping[str, AgentSpec], overlay: bytes, schedule: bytes) -> None:
        """Make the run's folder on every machine and write the agent's documents into it."""

        def push_one(session: Session) -> None:
            session.make_folder(held=self._held)
            agent = msgspec.json.encode(specs[session.machine.name])
            for name, content in ((AGENT_FILE, agent), (OVERLAY_FILE, overlay), (SCHEDULE_FILE, schedule)):
                session.put(session.work / name, content)

        self._each("push", push_one)

    def start_agents(self) -> None:
        """Start every machine's agent, which starts its peers and holds them at the barrier."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self._each("start agent", lambda session: session.start_agent(self._log_of(session)))

    def await_ready(self, timeout_s: float) -> None:
        """Wait until every peer of every machine stands at the barrier; then read the clocks."""
        deadline = time.monotonic() + timeout_s
        self._each("await ready", lambda session: self._await_ready(session, deadline))
        self.clocks = self.read_clocks()

    def read_clocks(self) -> dict[str, ClockOffset]:
        """How far every machine's clocks are from ours now.

        One machine after the other: a round trip that others hold up is a poor clock.
        """
        return self._each("read clock", _clock_offset, parallel=1)

    @property
    def lead_s(self) -> float:
        """How long before the peers' start the order to start has to be given, in real time.

        Twice what the slowest machine took to say that it is ready, for each batch of machines that are told side by
        side, and ``LEAD_S``.
        """
        batches = -(-len(self.sessions) // MAX_PARALLEL)
        return LEAD_S + 2 * batches * max(self.call_s.values(), default=0.0)

    def start(self, zero_epoch_ns: int) -> dict[str, int]:
        """Lift the barrier: the workload's zero is this instant of our CLOCK_REALTIME, told to each in its own time.

        Returns:
            How long before their start each machine's peers were told, in ns of virtual time; below 0 = too late.
        """

        def start_one(session: Session) -> int:
            zero_ns = zero_epoch_ns + self.clocks[session.machine.name].realtime_ns
            return msgspec.convert(session.call("start", str(zero_ns)), StartAnswer).lead_ns

        return self._each("start", start_one)

    def faults(self) -> dict[str, str]:
        """The machines whose agent has ended otherwise than it should, or is out of reach, and what is known of it."""
        found = {name: session.agent_fault for name, session in self.sessions.items()}
        return {name: text for name, text in found.items() if text is not None}

    def status(self) -> dict[str, Any]:
        return self._each("status", lambda session: session.call("status"))

    def wait(self, timeout_s: float) -> dict[str, int]:
        """Wait until every agent has ended, which it does when its peers have; the exit statuses."""
        deadline = time.monotonic() + timeout_s
        return self._each("wait", lambda session: session.wait_agent(deadline - time.monotonic()))

    def collect(self, run_dir: Path, nodes: Mapping[str, Collection[int]]) -> None:
        """Bring everything home and, where the agent has ended, delete it on the machine.

        Afterwards ``run_dir`` has what ``fetch`` brings and, when machines have clocks of their own, ``clocks.json``:
        each machine's ``ClockOffset`` over the whole run. What could not be brought home stays on its machine.
        """

        def collect_one(session: Session) -> None:
            try:
                self._bring_home(session, run_dir, nodes)
            except BaseException:
                session.keep_folder()
                raise
            if session.agent_status is not None:
                session.remove_folder()

        try:
            self._each("collect", collect_one)
        finally:
            if any(machine.own_clock for machine in self.machines):
                self._write_clocks(run_dir / CLOCKS_FILE)

    def fetch(self, destination: Path, nodes: Mapping[str, Collection[int]]) -> None:
        """Copy what there is so far: ``trace/<node>.jsonl``, ``logs/``, ``record/`` and ``exits-<machine>.jsonl``.

        ``nodes`` are those on each machine. A machine may send their files and no others, and together the machines may
        fill half of the free space.
        """
        self._each("collect", lambda session: self._fetch(session, destination, nodes))

    def stop(self) -> None:
        self._each("stop", lambda session: session.call("stop"))

    def stop_running(self) -> None:
        """``stop`` on the machines whose agent runs."""
        running = {name: one for name, one in self.sessions.items() if one.agent_fault is None}
        self._each("stop", lambda session: session.call("stop"), among=running)

    def clean(self) -> dict[str, Any]:
        """Remove what ended runs have left on the machines; what was removed, and what may be in use and was kept."""
        return self._each("clean", lambda session: session.on_site("clean", session.machine.work))

    def disconnect(self) -> None:
        """End the agents that still run, remove the folders of this run that were not collected, close the connections.

        What cannot be done on a machine any more is said on standard error: its agent ends by itself.
        """
        for name, words in self._each("disconnect", _leave).items():
            if words:
                print(f"{name}: {printable(words)}; fab clean removes what is left", file=sys.stderr, flush=True)

    def _bring_home(self, session: Session, run_dir: Path, nodes: Mapping[str, Collection[int]]) -> None:
        """Move the files where they lie on a disk of ours, copy them where not."""
        machine = session.machine
        if machine.work_here:
            folder = Path(machine.work_here) / session.work.relative_to(machine.work)
            move_files(folder, files_of(machine.name, nodes.get(machine.name, ())), run_dir)
        else:
            self._fetch(session, run_dir, nodes)

    def _fetch(self, session: Session, destination: Path, nodes: Mapping[str, Collection[int]]) -> None:
        destination.mkdir(parents=True, exist_ok=True)
        name = session.machine.name
        budget_bytes = shutil.disk_usage(destination).free // 2 // len(self.sessions)
        session.fetch(files_of(name, nodes.get(name, ())), destination, budget_bytes)

    def _write_clocks(self, path: Path) -> None:
        try:
            after = self.read_clocks()
        except DeploymentError:
            after = self.clocks  # the step that failed has said so: what was read before is all that is known
        self.clocks = {name: merge_offsets(self.clocks.get(name, clock), clock) for name, clock in after.items()}
        write_document(path, self.clocks)

    def _await_ready(self, session: Session, deadline: float) -> None:
        while not self._is_ready(session):
            if (status := session.agent_status) is not None:
                words = _last_line(self._log_of(session))
                raise StepError(f"the agent ended with status {status}: {words}")
            if time.monotonic() > deadline:
                raise StepError("its peers did not reach the barrier in time")
            time.sleep(POLL_S)

    def _is_ready(self, session: Session) -> bool:
        asked_s = time.monotonic()
        try:
            status = msgspec.convert(session.call("status"), AgentStatus)
        except CommandError:
            return False  # an agent that has just begun does not listen yet
        self.call_s[session.machine.name] = time.monotonic() - asked_s
        if status.exits:
            first = status.exits[0]
            problem = f"{len(status.exits)} peers ended before the start"
            raise StepError(f"{problem}, first {first.process}, status {first.status}")
        return status.ready

    def _log_of(self, session: Session) -> Path:
        return self.logs / agent_log(session.machine.name)

    def _each(
        self,
        step: str,
        action: Callable[[Session], Result],
        parallel: int = MAX_PARALLEL,
        among: Mapping[str, Session] | None = None,
    ) -> dict[str, Result]:
        """Do something on every machine; all finish before a failure is raised. An interrupt waits for none."""
        sessions = self.sessions if among is None else among
        pool = ThreadPoolExecutor(max_workers=max(1, min(parallel, len(sessions))))
        try:
            futures = {name: pool.submit(action, session) for name, session in sessions.items()}
            failures = {name: text for name, future in futures.items() if (text := _failure(future))}
        finally:
            # Threads that an interrupt leaves behind end with their connections.
            pool.shutdown(wait=False, cancel_futures=True)
        if failures:
            raise DeploymentError(step, failures)
        return {name: future.result() for name, future in futures.items()}


def make_token() -> str:
    """A name for a run's folder on machines that no other run has."""
    return secrets.token_hex(8)


def _leave(session: Session) -> str:
    """End what a session has on its machine; what went wrong, empty = nothing."""
    words = ""
    if session.is_connected:
        try:
            session.end_agent()
            session.remove_folder()
        except (StepError, *FAULTS) as error:
            words = words_of(error)
    session.close()
    return words


def _clock_offset(session: Session) -> ClockOffset:
    return read_clock_offset(session) if session.machine.own_clock else ClockOffset(0, 0, 0)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _failure(future: Future[Any]) -> str | None:
    """The machine's words when it failed. Other errors are bugs and go on up."""
    error = future.exception()
    if error is None:
        return None
    if isinstance(error, (StepError, *FAULTS)):
        return words_of(error)
    raise error


def words_of(error: BaseException) -> str:
    """Return why a step failed on a machine."""
    if isinstance(error, TimeoutError):
        return str(error) or "it did not answer in time"  # SSH's own has no words
    return str(error) or type(error).__name__


def _missing(versions: Versions, machine: Machine) -> str:
    """What keeps the machine from running a peer, and the command that mends it; empty = nothing."""
    if tuple(int(part) for part in versions.python.split(".")[:2]) < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        return f"{machine.python} is Python {versions.python}, {wanted} or later is needed"
    absent = [name for name in DEPENDENCIES if name not in versions.packages]
    return (
        f"missing {', '.join(absent)}; run there: {machine.python} -m pip install {' '.join(absent)}" if absent else ""
    )
