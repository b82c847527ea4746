"""The contents of ``manifest.json``: phases, clocks, the machine and the versions of programs."""

import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec import to_builtins
from msgspec.structs import replace

from harness.progress import step
from harness.stages.locks import lock
from metrics.processors import usable_processors
from metrics.rundir import SCHEMA_VERSION, BegunPhase, Manifest, Phase, write_document
from metrics.rundir.files import MANIFEST_FILE
from peer.plugins import loaded
from peer.runtime.clock import Clock
from peer.runtime.clock import epoch_offset_ns as epoch_offset_ns

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
_ROOT = Path(__file__).parents[2]


class PhaseLog:
    """Records the phases of the running stage, in the order in which they end.

    Args:
        clock: the run's.
        begun: ``phases.jsonl``, which gets a line when a phase begins. Its lock tells whoever watches the run that the
            stage lives; the kernel frees it when this process ends.
    """

    def __init__(self, clock: Clock, begun: Path) -> None:
        self._clock = clock
        self.phases: list[Phase] = []
        self._begun = begun.open("wb", buffering=0)
        with suppress(OSError):  # a file system without locks, or another stage has it
            lock(self._begun)

    def close(self) -> None:
        """Free the lock. The end of this process does so, too."""
        self._begun.close()

    def plan(self, phases: Iterable[Phase]) -> None:
        """Announce phases that will begin at known instants."""
        self._announce(*(BegunPhase(phase.name, phase.start_ns, phase.end_ns) for phase in phases))

    def _announce(self, *phases: BegunPhase) -> None:
        with suppress(OSError):  # a full disk: the lines are for watchers only
            self._begun.write(b"".join(phase.line() for phase in phases))

    @contextmanager
    def phase(self, name: str, text: str = "") -> Iterator[None]:
        """Record when a phase began and ended, and show it to the user as ``text``."""
        start_ns = self._clock.now_ns()
        self._announce(BegunPhase(name, start_ns))
        with step(text or name.replace("_", " ")):
            yield
        self.add(name, start_ns, self._clock.now_ns())

    def add(self, name: str, start_ns: int, end_ns: int) -> None:
        """Record a phase whose instants are known."""
        self.phases.append(Phase(name, start_ns, end_ns))


def versions() -> dict[str, str]:
    """Return the versions of all programs and packages that can change results; absent ones are left out."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found |= revision()
    for name, argv in _PROGRAMS.items():
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        except OSError:
            continue
        words = (done.stdout + done.stderr).strip().splitlines()
        found[name] = next((line for line in words if any(map(str.isdigit, line))), "")
    return found


def plugins() -> tuple[dict[str, str], ...]:
    """Return the origin of every loaded plugin."""
    return tuple(to_builtins(plugin.origin) for plugin in loaded())


def run_id(name: str, run_dir: Path) -> str:
    """Return a run's name in results: its experiment's name and the last part of the run directory."""
    return f"{name}-{run_dir.name}"


def revision() -> dict[str, str]:
    """Return the commit of this checkout, with "-dirty" if files differ; nothing if this is no Git checkout."""
    argv = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return {}
    found = done.stdout.strip()
    return {"trellis revision": found} if found else {}


def kernel() -> dict[str, str]:
    """Return the kernel and the processor of this machine."""
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
    """Write ``manifest.json``, which ends the running stage, with the schema version of the run directory."""
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
