"""Facts about a machine. Gathering them is the only part of the doctor that touches the machine."""

import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from harness.doctor.collisions import CHECKOUT, current_collisions
from harness.doctor.programs import find_program, program_path, read_programs
from harness.planes.description import Device
from harness.planes.registry import PLANES
from harness.testbeds.registry import TESTBEDS
from metrics.processors import usable_processors

ATTEMPT_LIMIT_S = 10
TIMER_SAMPLES = 200

NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")
AS_ROOT = ("unshare", *NAMESPACES)
AS_USER = ("unshare", "--user", "--map-root-user", *NAMESPACES)
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

NEEDED = {device.name: device for testbed in TESTBEDS.values() for device in testbed.needs}
"""The devices that testbeds need of the kernel."""

OPTIONAL = {
    device.name: (plane.name, device)
    for plane in PLANES.values()
    for device in plane.needs
    if device.name not in NEEDED
}
"""The devices that only data planes need that an experiment has to name, each with the plane."""

DEVICES = {device.name: device.command for device in (*NEEDED.values(), *(device for _, device in OPTIONAL.values()))}
"""The command that tries each kernel feature, inside temporary namespaces."""


class Trial(Struct, frozen=True):
    """The result of a command. ``error`` is the last line of its output, or empty if it worked."""

    worked: bool
    error: str = ""


class TimerLateness(Struct, frozen=True):
    """How late a sleeping process wakes, from a short measurement."""

    p50_ms: float
    p99_ms: float


class Facts(Struct, frozen=True, kw_only=True):
    """The facts about a machine that matter to a run."""

    is_root: bool
    namespaces: Trial
    user_namespaces: Trial
    devices: dict[str, Trial]
    realtime: Trial
    programs: dict[str, str | None]
    java_major: int | None
    pressure_available: bool
    cgroup_version: int
    cpus: float
    visible_cpus: int
    open_files: int
    processes: int
    neighbours: int | None
    clocksource: str
    monotonic_resolution_ns: int
    timer: TimerLateness
    memory_available_mib: float
    disk_free_mib: float
    collisions: tuple[str, ...]


def attempt(argv: Sequence[str]) -> Trial:
    """Run a command and return whether it worked."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": program_path()},
            timeout=ATTEMPT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Trial(False, str(error))
    said = (done.stderr or done.stdout).strip().splitlines()
    if done.returncode == 0:
        return Trial(True)
    return Trial(False, said[-1] if said else f"exit status {done.returncode}")


def try_device(device: Device) -> Trial:
    """Try a kernel feature inside temporary namespaces."""
    return attempt((*_enter(), *device.command))


def _enter() -> tuple[str, ...]:
    """Return the command that makes this user's temporary namespaces."""
    return AS_ROOT if os.geteuid() == 0 else AS_USER


def gather() -> Facts:
    """Gather the facts about this machine, in about two seconds. Nothing is left behind."""
    is_root, enter = os.geteuid() == 0, _enter()
    return Facts(
        is_root=is_root,
        namespaces=attempt((*enter, "true")),
        user_namespaces=attempt((*(NOBODY if is_root else ()), *AS_USER, "true")),
        devices={name: attempt((*enter, *command)) for name, command in DEVICES.items()},
        realtime=attempt(("chrt", "--fifo", "1", "true")),
        programs={program.name: find_program(program.name) for program in read_programs()},
        java_major=java_major(_said(("java", "-version"))),
        pressure_available=_read("/proc/pressure/cpu") is not None,
        cgroup_version=2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
        cpus=usable_processors(),
        visible_cpus=len(os.sched_getaffinity(0)),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        processes=_process_limit(),
        neighbours=_read_number("/proc/sys/net/ipv4/neigh/default/gc_thresh3"),
        clocksource=_read("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown",
        monotonic_resolution_ns=round(time.clock_getres(time.CLOCK_MONOTONIC) * 1e9),
        timer=measure_timer(),
        memory_available_mib=memory_available_mib(_read("/proc/meminfo") or ""),
        disk_free_mib=shutil.disk_usage(CHECKOUT).free / 2**20,
        collisions=tuple(current_collisions()),
    )


def measure_timer() -> TimerLateness:
    """Sleep ``TIMER_SAMPLES`` times for 1 ms, and measure how late each sleep ends."""
    lateness_ns = []
    for _ in range(TIMER_SAMPLES):
        due_ns = time.monotonic_ns() + 1_000_000
        time.sleep(1e-3)
        lateness_ns.append(time.monotonic_ns() - due_ns)
    lateness_ns.sort()
    return TimerLateness(lateness_ns[TIMER_SAMPLES // 2] / 1e6, lateness_ns[TIMER_SAMPLES * 99 // 100] / 1e6)


def java_major(said: str) -> int | None:
    """Return the major version in the output of ``java -version`` (8 for ``1.8``); None if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def memory_available_mib(meminfo: str) -> float:
    """Return ``MemAvailable`` of /proc/meminfo in MiB; 0 if it is missing."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(match[1]) / 1024 if match else 0.0


def _process_limit() -> int:
    """Return the lowest limit on processes: the kernel's, the user's or the cgroup's."""
    user_limit = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    limits = [_read_number("/proc/sys/kernel/pid_max"), _read_number("/proc/sys/kernel/threads-max")]
    limits += [user_limit if user_limit != resource.RLIM_INFINITY else None, _read_number(_own_cgroup() / "pids.max")]
    return min(limit for limit in limits if limit is not None)


def _own_cgroup() -> Path:
    """Return this process's cgroup in the unified hierarchy."""
    match = re.search(r"^0::/(.*)$", _read("/proc/self/cgroup") or "", re.MULTILINE)
    return Path("/sys/fs/cgroup") / (match[1] if match else "")


def _said(argv: Sequence[str]) -> str:
    """Return the output of a command; empty if it cannot be started."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr


def _read(path: str | Path) -> str | None:
    """Return the content of a kernel file; None if it is missing or cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _read_number(path: str | Path) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.isdigit() else None
