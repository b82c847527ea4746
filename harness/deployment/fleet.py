"""All machines of a run, step by step and in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from invoke.exceptions import UnexpectedExit

from harness.deployment.clock import merge_offsets, read_clock_offset
from harness.deployment.moving import move_files
from harness.deployment.package import DEPENDENCIES, MIN_PYTHON, Package, build_package
from harness.deployment.session import FAULTS, Session, StepError
from harness.errors import DeploymentError
from harness.inventory import Machine
from harness.rundir import CLOCKS_FILE, ClockOffset, FinalState
from peer.runtime.spec import AgentSpec

Result = TypeVar("Result")

MAX_PARALLEL = 32
"""Threads at work at a time; a thread mostly waits for its machine."""

POLL_S = 0.2

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


class Deployment:
    """The machines of one run.

    The steps go in the order of the methods. Each runs on all machines at a time and either succeeds on all or raises
    a ``DeploymentError`` with every failed machine's own words. Leaving the context ends the agents, with them every
    peer, and the connections.
    """

    def __init__(self, machines: Sequence[Machine], run_id: str, logs: Path) -> None:
        self.logs = logs
        self.clocks: dict[str, ClockOffset] = {}
        self._sessions = {machine.name: Session(machine, run_id) for machine in machines}

    def __enter__(self) -> Self:
        """Enter; nothing is connected yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Disconnect, however the run ended."""
        self.disconnect()

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The machines, in the order given."""
        return tuple(session.machine for session in self._sessions.values())

    def connect(self) -> None:
        """Open one connection a machine."""
        self._each("connect", Session.open)

    def probe(self) -> dict[str, Versions]:
        """What every machine has."""
        return self._each("probe", _probe)

    def check_versions(self) -> dict[str, Versions]:
        """``probe``, refusing machines that cannot run a peer; says what to install there, by which command."""
        versions = self.probe()
        missing = {name: _missing(versions[name], session.machine) for name, session in self._sessions.items()}
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
            session.run(f"rm -rf {session.work} && mkdir -p -m 700 {session.work}")
            agent = msgspec.json.encode(specs[session.machine.name])
            for name, content in (("agent.json", agent), ("overlay.json", overlay), ("schedule.jsonl", schedule)):
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

    def start(self, zero_epoch_ns: int) -> None:
        """Lift the barrier: the workload's zero is this instant of our CLOCK_REALTIME, told to each in its own time."""

        def start_one(session: Session) -> None:
            session.call("start", str(zero_epoch_ns + self.clocks[session.machine.name].realtime_ns))

        self._each("start", start_one)

    def status(self) -> dict[str, Any]:
        """Every agent's own account."""
        return self._each("status", lambda session: session.call("status"))

    def wait(self, timeout_s: float) -> dict[str, int]:
        """Wait until every agent has ended, which it does when its peers have; the exit statuses."""
        deadline = time.monotonic() + timeout_s
        return self._each("wait", lambda session: session.wait_agent(deadline - time.monotonic()))

    def collect(self, run_dir: Path) -> None:
        """Bring everything home and, where the agent has ended, delete it on the machine.

        Afterwards ``run_dir`` has what ``fetch`` brings and, when machines have clocks of their own, ``clocks.json``:
        each machine's ``ClockOffset`` over the whole run.
        """
        self._each("collect", lambda session: _bring_home(session, run_dir))
        self._each("clean up", _remove_finished)
        if any(machine.own_clock for machine in self.machines):
            before, after = self.clocks, self.read_clocks()
            self.clocks = {name: merge_offsets(before.get(name, clock), clock) for name, clock in after.items()}
            (run_dir / CLOCKS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(self.clocks), indent=1))

    def fetch(self, destination: Path) -> None:
        """Copy what there is so far: ``trace/<node>.jsonl``, ``logs/``, ``record/`` and ``exits-<machine>.jsonl``."""
        self._each("collect", lambda session: session.fetch(_names_at_home(session), destination))

    def stop(self) -> None:
        """Ask every agent to end its peers now."""
        self._each("stop", lambda session: session.call("stop"))

    def disconnect(self) -> None:
        """Close the connections; what an agent still runs ends with its connection."""
        self._each("disconnect", Session.close)

    def _await_ready(self, session: Session, deadline: float) -> None:
        while not _is_ready(session):
            if (status := session.agent_status) is not None:
                words = _last_line(self._log_of(session))
                raise StepError(f"the agent ended with status {status}: {words}")
            if time.monotonic() > deadline:
                raise StepError("its peers did not reach the barrier in time")
            time.sleep(POLL_S)

    def _log_of(self, session: Session) -> Path:
        return self.logs / f"agent-{session.machine.name}.log"

    def _each(self, step: str, action: Callable[[Session], Result], parallel: int = MAX_PARALLEL) -> dict[str, Result]:
        """Do something on every machine; all finish before a failure is raised."""
        with ThreadPoolExecutor(max_workers=min(parallel, len(self._sessions))) as pool:
            futures = {name: pool.submit(action, session) for name, session in self._sessions.items()}
        failures = {name: text for name, future in futures.items() if (text := _failure(future))}
        if failures:
            raise DeploymentError(step, failures)
        return {name: future.result() for name, future in futures.items()}


def _names_at_home(session: Session) -> dict[str, str]:
    """What a run leaves on a machine, and the name that each gets in the run directory."""
    exits = f"exits-{session.machine.name}.jsonl"
    return {"trace": "trace", "logs": "logs", "record": "record", "exits.jsonl": exits}


def _bring_home(session: Session, run_dir: Path) -> None:
    """Move the files where they lie on a disk of ours, copy them where not."""
    machine, names = session.machine, _names_at_home(session)
    if machine.work_here:
        move_files(Path(machine.work_here) / session.work.relative_to(machine.work), names, run_dir)
    else:
        session.fetch(names, run_dir)


def _remove_finished(session: Session) -> None:
    if session.agent_status is not None:
        session.run(f"rm -rf {session.work}")


def _clock_offset(session: Session) -> ClockOffset:
    return read_clock_offset(session) if session.machine.own_clock else ClockOffset(0, 0, 0)


def _is_ready(session: Session) -> bool:
    try:
        status = msgspec.convert(session.call("status"), AgentStatus)
    except UnexpectedExit:
        return False  # an agent that has just begun does not listen yet
    if status.exits:
        first = status.exits[0]
        problem = f"{len(status.exits)} peers ended before the start"
        raise StepError(f"{problem}, first {first.process}, status {first.status}")
    return status.ready


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _failure(future: Future[Any]) -> str | None:
    """The machine's words when it failed. Other errors are bugs and go on up."""
    error = future.exception()
    if error is None:
        return None
    if isinstance(error, UnexpectedExit):
        words = (error.result.stderr or error.result.stdout).strip()
        return f"exit status {error.result.exited}: {words or error.result.command}"
    if isinstance(error, (StepError, *FAULTS)):
        return str(error) or type(error).__name__
    raise error


def _probe(session: Session) -> Versions:
    return msgspec.json.decode(session.run_python(_PROBE, *DEPENDENCIES), type=Versions)


def _missing(versions: Versions, machine: Machine) -> str:
    """What keeps the machine from running a peer, and the command that mends it; empty = nothing."""
    if tuple(int(part) for part in versions.python.split(".")[:2]) < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        return f"{machine.python} is Python {versions.python}, {wanted} or later is needed"
    absent = [name for name in DEPENDENCIES if name not in versions.packages]
    return (
        f"missing {', '.join(absent)}; run there: {machine.python} -m pip install {' '.join(absent)}" if absent else ""
    )
