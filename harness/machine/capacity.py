"""What this machine can offer a run."""

import math
import resource
from pathlib import Path

from msgspec import Struct

CGROUP = Path("/sys/fs/cgroup")
"""The folder with a container's own limits (cgroup v2)."""


class Capacity(Struct, frozen=True):
    """Amounts of the resources that run out first: processes, memory, open files in one process."""

    processes: float
    memory_mib: float
    open_files: float


def this_machine() -> Capacity:
    """Return what is free on this machine now. Files are counted up to the hard limit."""
    return Capacity(
        processes=_process_limit(),
        memory_mib=min(_available_memory_mib(), _cgroup_limit("memory.max", "memory.current") / 2**20),
        open_files=_resource_limit(resource.RLIMIT_NOFILE),
    )


def _process_limit() -> float:
    kernel = [int(Path("/proc/sys/kernel", name).read_text(encoding="utf-8")) for name in ("pid_max", "threads-max")]
    return min(*kernel, _resource_limit(resource.RLIMIT_NPROC), _cgroup_limit("pids.max", "pids.current"))


def _resource_limit(kind: int) -> float:
    limit = resource.getrlimit(kind)[1]
    return math.inf if limit == resource.RLIM_INFINITY else limit


def _cgroup_limit(limit: str, used: str) -> float:
    """Return what the container's limit leaves; infinite if there is no limit."""
    try:
        return int((CGROUP / limit).read_text(encoding="utf-8")) - int((CGROUP / used).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no such file, or the word "max"
        return math.inf


def _available_memory_mib() -> float:
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")
