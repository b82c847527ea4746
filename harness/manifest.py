"""What ``manifest.json`` says of the machine and the programs, and the clock that a run goes by."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec.structs import replace

from harness.progress import step
from metrics.processors import usable_processors
from metrics.rundir import SCHEMA_VERSION, Manifest, Phase, write_document
from metrics.rundir.files import MANIFEST_FILE
from peer.runtime.clock import Clock

_PACKAGES = (
    "trellis-testbed",
    "msgspec",
    "uvloop",
    "prometheus-client",
    "mininet",
    "fabric",
    "paramiko",
    "numpy",
    "pyarrow",
)
_PROGRAMS = {"iproute2": ("ip", "-V"), "openssh": ("sshd", "-V"), "prometheus": ("prometheus", "--version")}
_CLOCK_SAMPLES = 200
_ROOT = Path(__file__).parents[1]


class PhaseLog:
    """Records the phases of the running stage, in the order in which they end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.phases: list[Phase] = []

    @contextmanager
    def phase(self, name: str, text: str = "", expected_s: float = 0.0) -> Iterator[None]:
        """Note when a phase began and ended; show it to the user under ``text``."""
        start_ns = self._clock.now_ns()
        with step(text or name.replace("_", " "), expected_s):
            yield
        self.add(name, start_ns, self._clock.now_ns())

    def add(self, name: str, start_ns: int, end_ns: int) -> None:
        """Note a phase whose instants are known."""
        self.phases.append(Phase(name, start_ns, end_ns))


def epoch_offset_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC now: the sample between the two closest readings of the latter."""
    samples = []
    for _ in range(_CLOCK_SAMPLES):
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        samples.append((after - before, now - (before + after) // 2))
    return min(samples)[1]


def versions() -> dict[str, str]:
    """The version of everything whose behaviour reaches the results; absent things are left out."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if (revision := _revision()) is not None:
        found["trellis revision"] = revision
    for name, argv in _PROGRAMS.items():
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        except OSError:
            continue
        words = (done.stdout + done.stderr).strip().splitlines()
        found[name] = next((line for line in words if any(map(str.isdigit, line))), "")
    return found


def _revision() -> str | None:
    """The commit of this checkout, "-dirty" where files differ from it; None where Git does not know it."""
    argv = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return done.stdout.strip() or None


def kernel() -> dict[str, str]:
    """The kernel and the processor that the run had."""
    return {
        "release": platform.release(),
        "version": platform.version(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "usable cpus": f"{usable_processors():g}",
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "pressure": "yes" if Path("/proc/pressure/cpu").exists() else "no",
    }


def write(run_dir: Path, manifest: Manifest) -> None:
    """Close the running stage. The manifest says the schema version of the run directory."""
    write_document(run_dir / MANIFEST_FILE, replace(manifest, schema_version=SCHEMA_VERSION))


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
