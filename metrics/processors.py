"""Find how many processors this process may use: those on which it may run, less what quotas of its cgroups remove.

A container often has a quota, an amount of processor time per period, on a machine of which it sees every processor.
When the quota is used up, all its processes stand still until the next period: they are *throttled*. The quotas of all
cgroups above a process hold. Quotas above a container's own root cannot be seen from inside.

Source: Documentation/admin-guide/cgroup-v2.rst ("cpu.max", "cpu.stat"), Documentation/scheduler/sched-bwc.rst (version
1), cgroups(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct


class Throttling(Struct, frozen=True):
    """The periods since the cgroups exist in which processes were made to stand still, and for how long, in us.

    The kernel adds the time up over processors.
    """

    periods: int = 0
    time_us: int = 0

    def since(self, before: Throttling) -> Throttling:
        """Return what was added since an earlier reading."""
        return Throttling(self.periods - before.periods, self.time_us - before.time_us)


def usable_processors() -> float:
    """Return how many processors this process may use at a time: fewer than it sees if a quota is smaller."""
    return min(len(os.sched_getaffinity(0)), processor_quota(find_groups()))


def usable_cores() -> int:
    """Return how many tasks this process may run at a time without sharing a processor; at least one."""
    return max(1, int(usable_processors()))


def find_groups(process: Path = Path("/proc/self")) -> tuple[Path, ...]:
    """Return the process's cgroup and the visible ones above it, in the hierarchies that may have quotas."""
    return tuple(_groups(process))


def processor_quota(groups: Iterable[Path]) -> float:
    """Return the smallest quota of the cgroups, in processors; infinite if there is none."""
    return min((quota for folder in groups for quota in _quotas(folder)), default=math.inf)


def read_throttling(groups: Iterable[Path]) -> Throttling:
    """Return the throttling by the quotas of all the cgroups together so far."""
    stats = [_read_stat(folder) for folder in groups]
    periods = sum(stat.get("nr_throttled", 0) for stat in stats)
    time_us = sum(stat.get("throttled_usec", 0) + stat.get("throttled_time", 0) // 1000 for stat in stats)
    return Throttling(periods, time_us)


def _quotas(folder: Path) -> Iterator[float]:
    """Yield a cgroup's own quota, by the files of version 2 and version 1."""
    quota, _, period = (_read(folder / "cpu.max") or "max").partition(" ")
    if quota != "max":
        yield int(quota) / int(period)
    quota, period = _read(folder / "cpu.cfs_quota_us") or "-1", _read(folder / "cpu.cfs_period_us") or "0"
    if int(quota) > 0 and int(period) > 0:
        yield int(quota) / int(period)


def _read_stat(folder: Path) -> dict[str, int]:
    lines = (line.split() for line in (_read(folder / "cpu.stat") or "").splitlines())
    return {words[0]: int(words[1]) for words in lines}


def _groups(process: Path) -> Iterator[Path]:
    mounts = _mounts(process / "mountinfo")
    for line in (_read(process / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for root, mount in mounts["cpu" if controllers else ""]:
            if Path(path).is_relative_to(root):
                inside = Path(path).relative_to(root)
                yield from (mount / folder for folder in (inside, *inside.parents[: len(inside.parts)]))
                break


def _mounts(mountinfo: Path) -> dict[str, list[tuple[Path, Path]]]:
    """Return where hierarchies are mounted: the cgroup that is the mount's root, and the mount's folder.

    The key ``cpu`` has the hierarchies of version 1 with processor time, the empty key those of version 2.
    """
    found: dict[str, list[tuple[Path, Path]]] = {"cpu": [], "": []}
    for line in (_read(mountinfo) or "").splitlines():
        mount, _, source = line.partition(" - ")
        fields, (kind, _, options) = mount.split(" "), source.split(" ", 2)
        place = Path(_unescape(fields[3])), Path(_unescape(fields[4]))
        if kind == "cgroup2":
            found[""].append(place)
        elif kind == "cgroup" and "cpu" in options.split(","):
            found["cpu"].append(place)
    return found


def _unescape(field: str) -> str:
    r"""Replace ``\040`` by a space, and likewise tab, newline and backslash, as mountinfo writes them."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _read(path: Path) -> str | None:
    """Read a file of the kernel; None if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
