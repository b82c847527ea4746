"""How many processors this process may use: those that it may run on, less what a quota of its cgroups takes away.

A container is often given a quota, time on processors per period, on a machine of which it sees every processor. Having
used it up, all its processes stand still until the next period: they are *throttled*. Quotas of every cgroup above a
process hold; those above a container's own root cannot be seen from inside.

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
    """Since the cgroups exist: periods in which processes were made to stand still, and for how long, in us.

    The kernel adds the time up over processors.
    """

    periods: int = 0
    time_us: int = 0

    def since(self, before: Throttling) -> Throttling:
        """What has come since an earlier reading."""
        return Throttling(self.periods - before.periods, self.time_us - before.time_us)


def usable_processors() -> float:
    """Processors that this process may use at a time: fewer than it sees where a quota is smaller."""
    return min(len(os.sched_getaffinity(0)), processor_quota(find_groups()))


def usable_cores() -> int:
    """Tasks that this process may run at a time without sharing a processor; one at least."""
    return max(1, int(usable_processors()))


def find_groups(process: Path = Path("/proc/self")) -> tuple[Path, ...]:
    """The process's cgroup and those above it, as far as they can be seen, in the hierarchies that may have quotas."""
    return tuple(_groups(process))


def processor_quota(groups: Iterable[Path]) -> float:
    """The smallest quota of the cgroups, in processors; infinite where there is none."""
    return min((quota for folder in groups for quota in _quotas(folder)), default=math.inf)


def read_throttling(groups: Iterable[Path]) -> Throttling:
    """What the quotas of the cgroups have done so far, all of them together."""
    stats = [_read_stat(folder) for folder in groups]
    periods = sum(stat.get("nr_throttled", 0) for stat in stats)
    time_us = sum(stat.get("throttled_usec", 0) + stat.get("throttled_time", 0) // 1000 for stat in stats)
    return Throttling(periods, time_us)


def _quotas(folder: Path) -> Iterator[float]:
    """A cgroup's own quota, by the files of version 2 and version 1."""
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
    """Where the hierarchies are mounted: the cgroup that the mount shows as its root, and the mount's folder.

    Under ``cpu`` those of version 1 with processor time, under the empty string those of version 2.
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
    r"""Mountinfo writes a space as ``\040``, and likewise tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _read(path: Path) -> str | None:
    """A file of the kernel's; None where it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
