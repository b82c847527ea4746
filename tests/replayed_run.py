"""The files of a run that goes on, as they were at an instant of a recorded run."""

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from msgspec.json import Decoder

from metrics.rundir import BegunPhase, Manifest
from metrics.rundir.files import (
    DATAPLANE_FILE,
    DEPLOYMENT_FILE,
    MANIFEST_FILE,
    PHASES_FILE,
    PRESSURE_FILE,
    STALLS_FILE,
    WORK_FOLDER,
)
from peer.files import EXITS_FILE, LOGS_FOLDER, TRACE_FOLDER

PLANNED = ("warmup", "workload", "cooldown")
TOKEN = "0123456789abcdef"
DOCUMENTS = ("experiment.toml", "plan.json", "underlay.json", "overlay.json", "schedule.jsonl")


class ReplayedRun:
    """A run directory in which the files of a recorded run grow.

    Args:
        recorded: the recorded run directory.
        run_dir: the directory to make.
    """

    def __init__(self, recorded: Path, run_dir: Path) -> None:
        self.recorded = recorded
        self.run_dir = run_dir
        self.manifest = Decoder(Manifest).decode((recorded / MANIFEST_FILE).read_bytes())
        self.zero_ns = self.manifest.zero_ns
        self.work = run_dir / WORK_FOLDER / TOKEN
        for folder in (TRACE_FOLDER, LOGS_FOLDER):
            (self.work / folder).mkdir(parents=True)
        for name in DOCUMENTS:
            shutil.copy(recorded / name, run_dir / name)
        self._lock: IO[bytes] | None = None

    def start(self) -> None:
        """Begin the running stage: it holds its lock."""
        self._lock = (self.run_dir / PHASES_FILE).open("wb", buffering=0)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def die(self) -> None:
        """End the running stage."""
        assert self._lock is not None
        self._lock.close()

    def at(self, now_s: float) -> int:
        """Write what the run had written at a second of its workload, and return the instant in ns."""
        now_ns = self.zero_ns + round(now_s * 1e9)
        (self.run_dir / DEPLOYMENT_FILE).write_text(json.dumps({"folder": TOKEN}))
        lines = []
        for phase in sorted(self.manifest.phases, key=lambda phase: phase.start_ns):
            first_ns = self.manifest.timeline.start_ns if phase.name in PLANNED else phase.start_ns
            if first_ns <= now_ns:
                end_ns = phase.end_ns if phase.name in PLANNED else None
                lines.append(BegunPhase(phase.name, phase.start_ns, end_ns).line())
        (self.run_dir / PHASES_FILE).write_bytes(b"".join(lines))
        for name, key in ((DATAPLANE_FILE, "at_ns"), (PRESSURE_FILE, "at_ns"), (STALLS_FILE, "end_ns")):
            _copy_until(self.recorded / name, self.run_dir / name, lambda line, key=key: line[key] <= now_ns)
        for trace in (self.recorded / TRACE_FOLDER).glob("*.jsonl"):
            _copy_until(trace, self.work / TRACE_FOLDER / trace.name, lambda line: line["ts_ns"] <= now_ns)
        (self.work / EXITS_FILE).touch()
        return now_ns

    def collect(self) -> int:
        """Write what the run had when its peers had ended and their files were collected; return the instant in ns."""
        now_ns = self.at((self.manifest.timeline.end_ns - self.zero_ns) / 1e9)
        shutil.rmtree(self.run_dir / WORK_FOLDER)
        shutil.copytree(self.recorded / TRACE_FOLDER, self.run_dir / TRACE_FOLDER)
        return now_ns

    def finish(self) -> int:
        """End the running stage as it should end, and return the instant in ns."""
        now_ns = self.collect()
        shutil.copy(self.recorded / MANIFEST_FILE, self.run_dir / MANIFEST_FILE)
        self.die()
        return now_ns


def _copy_until(source: Path, target: Path, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Copy the lines of a file up to the first one that does not hold, and half of that one, which is being written."""
    kept = []
    for line in source.read_bytes().splitlines(keepends=True):
        if not holds(json.loads(line)):
            kept.append(line[: len(line) // 2])
            break
        kept.append(line)
    target.write_bytes(b"".join(kept))


def read_events(recorded: Path) -> list[dict[str, Any]]:
    """Read all lines of all traces."""
    paths = sorted((recorded / TRACE_FOLDER).glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]
