"""The processes that keep a virtual machine's processors awake."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.machine.awake import KeepAwake
from tests.processes import await_end

PROGRAM = """
from harness.machine.awake import KeepAwake
keep_awake = KeepAwake()
keep_awake.start()
print(*(process.pid for process in keep_awake.processes), flush=True)
input()
"""


@pytest.fixture
def keep_awake() -> Iterator[KeepAwake]:
    keep_awake = KeepAwake()
    keep_awake.start()
    yield keep_awake
    keep_awake.stop()


def await_idle_policy(pid: int) -> None:
    deadline = time.monotonic() + 300
    while os.sched_getscheduler(pid) != os.SCHED_IDLE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ticks(pid: int) -> int:
    """Processor time that a process has used, in ticks of the kernel's clock."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def test_every_processor_has_one_of_the_lowest_priority_that_never_sleeps(keep_awake: KeepAwake) -> None:
    pids = [process.pid for process in keep_awake.processes if process.pid is not None]
    for pid in pids:
        await_idle_policy(pid)
    assert [os.sched_getaffinity(pid) for pid in pids] == [{cpu} for cpu in sorted(os.sched_getaffinity(0))]
    assert all(os.getpriority(os.PRIO_PROCESS, pid) == 19 for pid in pids)
    before = [ticks(pid) for pid in pids]
    deadline = time.monotonic() + 300
    while any(ticks(pid) < used + 5 for pid, used in zip(pids, before, strict=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no autogroups")
def test_they_give_way_to_other_sessions_too(keep_awake: KeepAwake) -> None:
    for process in keep_awake.processes:
        assert process.pid is not None
        await_idle_policy(process.pid)
        assert autogroup(process.pid).endswith(" nice 19")
    assert not autogroup(os.getpid()).endswith(" nice 19")


def autogroup(pid: int) -> str:
    """That of a process' session, and how nice it is; empty for the kernel's first session, which has none."""
    return Path(f"/proc/{pid}/autogroup").read_text().strip()


def test_none_is_left(keep_awake: KeepAwake) -> None:
    pids = [process.pid for process in keep_awake.processes]
    keep_awake.processes[0].kill()
    keep_awake.processes[0].join()
    assert keep_awake.stop() == len(pids) - 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_they_end_with_their_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    for pid in pids:
        await_idle_policy(pid)
    parent.kill()
    parent.communicate()
    await_end(pids)
