"""The run directory's documents: their types, and their reader.

The running stage writes ``manifest.json`` with these types, the analysis reads it and writes ``summary.json``.
``docs/results.md`` explains every file to users. This module imports neither Spark nor Arrow, so that the running
stage may use it.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

if TYPE_CHECKING:
    from metrics.stalls import Stalls
    from topologies.model import Underlay

VALID, SUSPECT, INVALID = "valid", "suspect", "invalid"

CLOCKS_FILE = "clocks.json"
ATTEMPT_FILE = "attempt.json"
STALLS_FILE = "stalls.jsonl"


class Phase(Struct, frozen=True):
    """A stretch of the running stage, in ns of virtual time.

    Names: boot, probe_before, warmup, workload, cooldown, stop, settle, probe_after, collect.
    """

    name: str
    start_ns: int
    end_ns: int


class FinalState(Struct, frozen=True):
    """How a process ended. ``state``: exited, signalled, running, missing."""

    process: str
    expected: str
    state: str
    status: int | None = None
    at_ns: int | None = None
    detail: str = ""


class Manifest(Struct, frozen=True):
    """``manifest.json``. Its presence means: the running stage came to its end.

    Instants are virtual: CLOCK_MONOTONIC divided by ``time_dilation``. An instant's real time since the epoch is
    instant x time_dilation + ``epoch_offset_ns``; captures are stamped instant + ``epoch_offset_ns``.

    ``problems`` are the running stage's own findings, one sentence each; any of them keeps the run from being valid:
    each is (severity, text) with severity ``invalid`` or ``suspect``.

    ``deployment`` has the name of the run's ``folder`` below every machine's work folder, and where ``prometheus`` was.
    """

    run_id: str
    testbed: str
    epoch_offset_ns: int
    zero_ns: int
    phases: tuple[Phase, ...]
    final_states: tuple[FinalState, ...]
    counters: dict[str, int]
    versions: dict[str, str]
    kernel: dict[str, str]
    hashes: dict[str, str]
    problems: tuple[tuple[str, str], ...] = ()
    capture_files: tuple[str, ...] = ()
    resources: dict[str, float] = field(default_factory=dict)
    time_dilation: float = 1.0
    deployment: dict[str, str] = field(default_factory=dict)


class Check(Struct, frozen=True):
    """A row of the ``checks`` table: one invariant over the run.

    ``severity`` is what a failure makes of the run (``invalid`` or ``suspect``). ``worst`` and ``tolerance`` are in
    ``unit``. A check that could not be made has ``tested`` 0 and says why in ``detail``.

    Where a stall of the host may be the cause: ``late`` samples were beyond the limit, ``explained`` of them would not
    have been without such stalls (``metrics.stalls``), and the check fails if more than ``allowed`` are late. None: a
    stall of the host explains nothing here.
    """

    name: str
    tested: int
    failed: int
    worst: float
    tolerance: float
    unit: str
    severity: str
    detail: str = ""
    late: int | None = None
    explained: int | None = None
    allowed: int | None = None


class Attempt(Struct, frozen=True):
    """``attempt.json`` of a run that repeats another one, which stalls of the host spoiled.

    Attributes:
        attempt: 2 for the first repetition.
        repeats: the directory of the attempt before.
        reasons: that one's, all of which stalls of the host explain.
    """

    attempt: int
    repeats: str
    reasons: tuple[str, ...]


class Summary(Struct, frozen=True):
    """``summary.json``. ``reasons`` is empty when the verdict is ``valid``.

    ``attempt`` is None but for a run that repeats another one.
    """

    verdict: str
    reasons: tuple[str, ...]
    headline: dict[str, Any]
    checks: tuple[Check, ...]
    run_id: str
    name: str
    seed: int
    protocol: str
    attempt: Attempt | None = None


class Stall(Struct, frozen=True, omit_defaults=True):
    """A line of ``stalls.jsonl``, in ns of virtual time.

    Attributes:
        source: ``host``: a processor did not run a process that nothing of the run can delay; ``plane``: the data
            plane's loop came late to what it does every few milliseconds.
        start_ns: when it was to go on.
        end_ns: when it did.
        cpu: the processor; None = the data plane's, whichever that was.
    """

    source: str
    start_ns: int
    end_ns: int
    cpu: int | None = None

    def line(self) -> bytes:
        """As a line. Whoever appends it with one write needs no lock."""
        return msgspec.json.encode(self) + b"\n"


class ClockOffset(Struct, frozen=True):
    """A machine's clocks against ours, those of the computer that the run was started on.

    Attributes:
        realtime_ns: the machine's CLOCK_REALTIME minus ours.
        monotonic_ns: the machine's CLOCK_MONOTONIC minus ours (the machines booted at different times).
        error_ns: both are off by at most this much.
    """

    realtime_ns: int
    monotonic_ns: int
    error_ns: int


def read_clocks(run_dir: Path) -> dict[str, ClockOffset]:
    """``clocks.json``: every machine's clocks; empty where all processes of the run read ours."""
    path = run_dir / CLOCKS_FILE
    return msgspec.json.decode(path.read_bytes(), type=dict[str, ClockOffset]) if path.exists() else {}


class RunDir:
    """A run directory whose running stage has ended.

    The plan is read as plain values: its types belong to the harness, and plans of other versions must be readable.

    Args:
        path: the run directory.
        tables: where its tables are, or are being made; None = in their place.
    """

    def __init__(self, path: Path, tables: Path | None = None) -> None:
        self.path = path
        self.tables = tables or path / "tables"

    @cached_property
    def manifest(self) -> Manifest:
        """``manifest.json``."""
        return msgspec.json.decode((self.path / "manifest.json").read_bytes(), type=Manifest)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """``plan.json``."""
        plan: dict[str, Any] = json.loads((self.path / "plan.json").read_bytes())
        return plan

    @property
    def experiment(self) -> dict[str, Any]:
        """The resolved experiment."""
        experiment: dict[str, Any] = self.plan["experiment"]
        return experiment

    @cached_property
    def underlay(self) -> Underlay:
        """``underlay.json``."""
        from topologies.model import Underlay

        return Underlay.from_json((self.path / "underlay.json").read_bytes())

    @property
    def attempt(self) -> Attempt | None:
        """``attempt.json``, None where the run repeats no other."""
        path = self.path / ATTEMPT_FILE
        return msgspec.json.decode(path.read_bytes(), type=Attempt) if path.exists() else None

    @cached_property
    def stalls(self) -> Stalls:
        """``stalls.jsonl``."""
        from metrics.stalls import read_stalls

        return read_stalls(self.path)

    @property
    def nodes(self) -> list[int]:
        """Every node of the run."""
        return [place["node"] for place in self.plan["placement"]]

    @property
    def nodes_by_host(self) -> list[int]:
        """The node on each host; -1 = none."""
        nodes = [-1] * (1 + max(place["host"] for place in self.plan["placement"]))
        for place in self.plan["placement"]:
            nodes[place["host"]] = place["node"]
        return nodes

    @cached_property
    def clocks(self) -> dict[int, ClockOffset]:
        """Every node's clocks, by the machine that it ran on; empty where all read ours."""
        machines = read_clocks(self.path)
        places = self.plan["placement"]
        return {place["node"]: machines[place["machine"]] for place in places if place["machine"] in machines}

    @property
    def captures(self) -> list[Path]:
        """The capture files, none where nothing was captured."""
        return sorted(path for path in (self.path / "capture").glob("*.pcap*") if path.is_file())

    @property
    def end_ns(self) -> int:
        """The running stage's last instant."""
        return max(phase.end_ns for phase in self.manifest.phases)

    @property
    def judged_ns(self) -> tuple[int, int]:
        """The span in which hosts are judged: from the workload's zero until the peers are told to end.

        Before it all links are built at once, after it all are closed at once: bursts that no delivery takes part in.
        """
        ends = [phase.start_ns for phase in self.manifest.phases if phase.name == "stop"]
        return self.manifest.zero_ns, min(ends, default=self.end_ns)

    def phase(self, name: str) -> Phase | None:
        """A phase of the running stage, None where it had none of that name."""
        return next((phase for phase in self.manifest.phases if phase.name == name), None)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The objects in a file of JSON lines, none where it is missing; a last line that was cut off is left out."""
        path = self.path / name
        found: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_bytes().splitlines():
                try:
                    found.append(json.loads(line))
                except ValueError:
                    break
        return found
