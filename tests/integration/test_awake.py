"""The processes that keep a virtual machine's processors awake."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.testbeds.emulated.awake import Vigil
from tests.processes import await_end

PROGRAM = """
from harness.testbeds.emulated.awake import Vigil
vigil = Vigil()
vigil.start()
print(*(process.pid for process in vigil.processes), flush=True)
input()
"""


@pytest.fixture
def vigil() -> Iterator[Vigil]:
    vigil = Vigil()
    vigil.start()
    yield vigil
    vigil.stop()


def await_idle_policy(pid: int) -> None:
    deadline = time.monotonic() + 20
    while os.sched_getscheduler(pid) != os.SCHED_IDLE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ticks(pid: int) -> int:
    """Processor time that a process has used, in ticks of the kernel's clock."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def test_every_processor_has_one_of_the_lowest_priority_that_never_sleeps(vigil: Vigil) -> None:
    pids = [process.pid for process in vigil.processes if process.pid is not None]
    for pid in pids:
        await_idle_policy(pid)
    assert [os.sched_getaffinity(pid) for pid in pids] == [{cpu} for cpu in sorted(os.sched_getaffinity(0))]
    assert all(os.getpriority(os.PRIO_PROCESS, pid) == 19 for pid in pids)
    before = [ticks(pid) for pid in pids]
    deadline = time.monotonic() + 20
    while any(ticks(pid) < used + 5 for pid, used in zip(pids, before, strict=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no autogroups")
def test_they_give_way_to_other_sessions_too(vigil: Vigil) -> None:
    for process in vigil.processes:
        assert process.pid is not None
        await_idle_policy(process.pid)
        assert autogroup(process.pid).endswith(" nice 19")
    assert not autogroup(os.getpid()).endswith(" nice 19")


def autogroup(pid: int) -> str:
    """That of a process' session, and how nice it is; empty for the kernel's first session, which has none."""
    return Path(f"/proc/{pid}/autogroup").read_text().strip()


def test_none_is_left(vigil: Vigil) -> None:
    pids = [process.pid for process in vigil.processes]
    vigil.processes[0].kill()
    vigil.processes[0].join()
    assert vigil.stop() == len(pids) - 1
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
