"""Quotas of processors as cgroups of either version and containers show them: fabricated trees of kernel files."""

import math
import os
from pathlib import Path

import pytest

from harness.machine import awake
from metrics import processors
from metrics.processors import Throttling, find_groups, processor_quota, read_throttling

V2 = "29 23 0:26 {root} {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
V1 = "33 31 0:29 {root} {mount} rw - cgroup cgroup rw,cpu,cpuacct\n"
OTHERS = (
    "22 1 253:0 / / rw shared:1 - ext4 /dev/vda rw\n23 22 0:5 / /mnt rw -  tmpfs  rw\n"
    "35 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)


class Machine:
    """A process's ``cgroup`` and ``mountinfo``, and the folders that they lead to."""

    def __init__(self, folder: Path) -> None:
        self.process, self.mount = folder / "self", folder / "cgroup mount"
        self.process.mkdir()

    def say(self, cgroup: str, mountinfo: str, root: str = "/") -> None:
        (self.process / "cgroup").write_text(cgroup)
        mount = str(self.mount).replace(" ", "\\040")
        (self.process / "mountinfo").write_text(OTHERS + mountinfo.format(root=root, mount=mount))

    def put(self, group: str, **files: str) -> None:
        folder = self.mount / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(content + "\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("own", "above", "top", "quota"),
    [
        ("max 100000", "max 100000", None, math.inf),
        ("150000 100000", "max 100000", None, 1.5),
        ("max 100000", "20000 10000", None, 2.0),
        ("400000 100000", "300000 100000", None, 3.0),
        ("100000 100000", "300000 100000", None, 1.0),
        ("max 100000", "max 100000", "50000 100000", 0.5),
        (None, None, None, math.inf),
    ],
)
def test_the_smallest_quota_of_a_cgroup_and_those_above_it_holds(
    machine: Machine, own: str | None, above: str | None, top: str | None, quota: float
) -> None:
    machine.say("12:cpuset:/elsewhere\n0::/user.slice/run.scope\n", V2)
    for group, limit in (("user.slice/run.scope", own), ("user.slice", above), ("", top)):
        machine.put(group, **({"cpu__max": limit} if limit else {}))
    machine.put("elsewhere", cpu__max="1000 100000")
    assert processor_quota(find_groups(machine.process)) == quota


def test_a_container_with_a_cgroup_namespace_sees_its_own_at_the_top(machine: Machine) -> None:
    machine.say("0::/\n", V2)
    machine.put("", cpu__max="200000 100000")
    assert processor_quota(find_groups(machine.process)) == 2.0


@pytest.mark.parametrize(("quota_us", "quota"), [("-1", math.inf), ("200000", 2.0)])
def test_version_1_in_a_container_without_a_cgroup_namespace(machine: Machine, quota_us: str, quota: float) -> None:
    """The path is the host's, and the mount shows the part below the container's cgroup only."""
    machine.say("5:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f\n", V1, root="/docker/1f")
    machine.put("", cpu__cfs_quota_us=quota_us, cpu__cfs_period_us="100000")
    assert processor_quota(find_groups(machine.process)) == quota


def test_version_1_counts_the_cgroups_above_too(machine: Machine) -> None:
    machine.say("5:cpu,cpuacct:/a/b\n", V1)
    machine.put("a/b", cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    machine.put("a", cpu__cfs_quota_us="50000", cpu__cfs_period_us="50000")
    assert processor_quota(find_groups(machine.process)) == 1.0


def test_a_hierarchy_that_is_mounted_twice_is_counted_once(machine: Machine) -> None:
    machine.say("0::/a\n", V2 + V2)
    machine.put("a", cpu__stat="usage_usec 9\nnr_periods 8\nnr_throttled 3\nthrottled_usec 4500")
    assert read_throttling(find_groups(machine.process)) == Throttling(3, 4500)


def test_throttling_is_added_up_over_the_cgroups(machine: Machine) -> None:
    machine.say("0::/a/b\n", V2)
    machine.put("a/b", cpu__stat="nr_throttled 3\nthrottled_usec 4500")
    machine.put("a", cpu__stat="nr_throttled 1\nthrottled_usec 500")
    machine.put("", cpu__stat="usage_usec 1")
    assert read_throttling(find_groups(machine.process)) == Throttling(4, 5000)
    assert read_throttling(find_groups(machine.process)).since(Throttling(3, 4000)) == Throttling(1, 1000)


def test_version_1_counts_throttled_time_in_ns(machine: Machine) -> None:
    machine.say("5:cpu:/a\n", V1)
    machine.put("a", cpu__stat="nr_periods 9\nnr_throttled 2\nthrottled_time 7000000")
    assert read_throttling(find_groups(machine.process)) == Throttling(2, 7000)


def test_without_cgroups_there_is_no_quota(tmp_path: Path) -> None:
    assert processor_quota(find_groups(tmp_path)) == math.inf
    assert read_throttling(find_groups(tmp_path)) == Throttling(0, 0)


@pytest.mark.parametrize(
    ("missing", "virtual", "asked", "awake_on_all"),
    [
        (-math.inf, True, None, True),
        (-math.inf, True, "1", True),
        (-math.inf, True, "0", False),
        (-0.5, True, None, True),
        (0.0, True, None, False),
        (0.5, True, None, False),
        (1.0, True, None, False),
        (-math.inf, False, "1", False),
    ],
)
def test_processors_are_kept_awake_where_a_quota_leaves_them_all(
    monkeypatch: pytest.MonkeyPatch, missing: float, virtual: bool, asked: str | None, awake_on_all: bool
) -> None:
    monkeypatch.delenv(awake.KEEP_AWAKE_VARIABLE, raising=False)
    if asked is not None:
        monkeypatch.setenv(awake.KEEP_AWAKE_VARIABLE, asked)
    cpus = len(os.sched_getaffinity(0))
    monkeypatch.setattr(awake, "is_virtual", lambda: virtual)
    monkeypatch.setattr(awake, "processor_quota", lambda groups: cpus - missing)
    keep_awake = awake.make_keep_awake()
    assert (len(keep_awake.processes) if keep_awake else 0) == (cpus if awake_on_all else 0)


def test_a_quota_counts_for_whom_processors_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "processor_quota", lambda groups: 1.5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    assert processors.usable_processors() == 1.5
    monkeypatch.setattr(processors, "processor_quota", lambda groups: math.inf)
    assert processors.usable_processors() == 4
