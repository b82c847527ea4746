"""The processes that watch the processors."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.machine.scheduling import WATCHDOG_PRIORITY
from harness.machine.watchdog import LATE_NS, Watchdog
from metrics.recorded.stalls import covered_ns, read_stalls
from metrics.rundir.files import STALLS_FILE
from peer.runtime.clock import UNDILATED, Clock
from tests.processes import await_end, is_alive

HOG = """
import os, time
os.sched_setaffinity(0, [{cpu}])
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param({priority}))
time.sleep(0.05)
begin = time.monotonic_ns()
while time.monotonic_ns() < begin + {length_ns}: pass
print(begin, time.monotonic_ns())
"""

PROGRAM = """
import sys
from pathlib import Path
from harness.machine.watchdog import Watchdog
from peer.runtime.clock import UNDILATED
watchdog = Watchdog(Path(sys.argv[1]), UNDILATED)
watchdog.start()
print(*watchdog.pids, flush=True)
input()
"""


def realtime_is_allowed() -> bool:
    command = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return not subprocess.run([sys.executable, "-c", command], capture_output=True, check=False).returncode


needs_realtime = pytest.mark.skipif(not realtime_is_allowed(), reason="real-time priority is not allowed here")


@pytest.fixture
def watchdog(tmp_path: Path) -> Iterator[Watchdog]:
    watchdog = Watchdog(tmp_path, UNDILATED)
    watchdog.start()
    yield watchdog
    watchdog.stop()


def hog(priority: int, length_ns: int = 30_000_000) -> tuple[int, int]:
    """Keep the last processor busy at a real-time priority; returns from when to when."""
    program = HOG.format(cpu=max(os.sched_getaffinity(0)), priority=priority, length_ns=length_ns)
    words = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout.split()
    return int(words[0]), int(words[1])


@needs_realtime
def test_every_processor_is_watched_by_one_of_real_time_priority(watchdog: Watchdog) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    assert [os.sched_getaffinity(pid) for pid in watchdog.pids] == [{cpu} for cpu in cpus]
    assert {os.sched_getscheduler(pid) for pid in watchdog.pids} == {os.SCHED_FIFO}
    assert {os.sched_getparam(pid).sched_priority for pid in watchdog.pids} == {WATCHDOG_PRIORITY}
    assert watchdog.stop() == len(cpus)


def stalled_ratio(run_dir: Path, span_ns: tuple[int, int], least: float) -> float:
    """The share of a span that stalls cover, as soon as it is at least so much; what it is after a while if not."""
    span = np.array([span_ns])
    deadline = time.monotonic() + 0.5
    while True:
        ratio = float(covered_ns(read_stalls(run_dir).host, span[:, 0], span[:, 1])[0] / np.diff(span)[0, 0])
        if ratio >= least or time.monotonic() > deadline:
            return ratio
        time.sleep(0.01)


@needs_realtime
def test_a_foreign_process_of_higher_priority_is_a_stall_of_the_host(watchdog: Watchdog, tmp_path: Path) -> None:
    span_ns = hog(WATCHDOG_PRIORITY + 1)
    assert stalled_ratio(tmp_path, span_ns, 0.8) >= 0.8
    assert all(end - start > LATE_NS for start, end in read_stalls(tmp_path).host)


@needs_realtime
def test_a_busy_data_plane_is_none(watchdog: Watchdog, tmp_path: Path) -> None:
    """Five times, since something else may stall the machine just then."""
    assert any(stalled_ratio(tmp_path, hog(WATCHDOG_PRIORITY - 1), 0.5) < 0.5 for _ in range(5))


def test_without_permission_nothing_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    watchdog = Watchdog(tmp_path, UNDILATED)
    watchdog.start()
    time.sleep(0.1)
    assert watchdog.lost() == {}
    assert watchdog.stop() == 0
    assert (tmp_path / STALLS_FILE).read_bytes() == b""


@needs_realtime
def test_a_process_that_fails_is_lost(watchdog: Watchdog) -> None:
    assert watchdog.lost() == {}
    os.kill(watchdog.pids[-1], signal.SIGKILL)
    last = max(os.sched_getaffinity(0))
    assert await_lost(watchdog, f"watchdog-{last}") == {f"watchdog-{last}": "ended by SIGKILL"}


@needs_realtime
def test_a_process_that_cannot_write_is_lost(tmp_path: Path) -> None:
    (tmp_path / STALLS_FILE).symlink_to("/dev/full")
    last = f"watchdog-{max(os.sched_getaffinity(0))}"
    watchdog = Watchdog(tmp_path, UNDILATED)
    watchdog.start()
    try:
        hog(WATCHDOG_PRIORITY + 1)
        assert await_lost(watchdog, last)[last] == "ended with status 1"
    finally:
        watchdog.stop()
    assert watchdog.lost() == {}


def await_lost(watchdog: Watchdog, name: str) -> dict[str, str]:
    """What is lost as soon as `name` is. A stall of the machine may end another process earlier if none can write."""
    deadline_s = time.monotonic() + 300
    while name not in (lost := watchdog.lost()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return lost


@needs_realtime
def test_stalls_are_written_in_virtual_time(tmp_path: Path) -> None:
    watchdog = Watchdog(tmp_path, Clock(4.0))
    watchdog.start()
    begin_ns, end_ns = hog(WATCHDOG_PRIORITY + 1)
    assert stalled_ratio(tmp_path, (begin_ns // 4, end_ns // 4), 0.8) >= 0.8
    watchdog.stop()


def test_they_end_with_their_parent_and_outlive_an_interrupt(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    for pid in alive:
        os.kill(pid, 2)
    time.sleep(0.1)
    assert [pid for pid in alive if is_alive(pid)] == alive
    parent.kill()
    parent.communicate()
    await_end(pids)
