"""What this machine has to offer a run."""

from __future__ import annotations

import resource
from pathlib import Path

from msgspec import Struct


class Capacity(Struct, frozen=True):
    """An amount of what runs out first: processes, memory, open files in one process."""

    processes: int
    memory_mib: float
    open_files: int


def this_machine() -> Capacity:
    """What is free here now; files are counted up to the hard limit, which a run raises its own to."""
    return Capacity(
        processes=_process_limit(),
        memory_mib=_available_memory_mib(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    )


def _process_limit() -> int:
    limits = [int(Path("/proc/sys/kernel/pid_max").read_text()), int(Path("/proc/sys/kernel/threads-max").read_text())]
    user_limit = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return min(limits if user_limit == resource.RLIM_INFINITY else [*limits, user_limit])


def _available_memory_mib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")
