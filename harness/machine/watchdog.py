"""Records stalls of the host's processors in ``stalls.jsonl``.

A process on each processor, with a real-time priority just above the data plane's, wakes every millisecond. No process
of the testbed can delay it. If it wakes late, something else had the processor: the hypervisor, a part of the kernel
that cannot be preempted, or another process with a higher priority. docs/verdict.md explains how stalls are used.

Without permission for real-time priority nothing is recorded: a late wake-up would only show that other processes ran.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError

from harness.errors import describe_status
from harness.machine.scheduling import WATCHDOG_PRIORITY
from metrics.rundir import Stall
from metrics.rundir.files import STALLS_FILE
from peer.runtime.clock import Clock
from peer.runtime.namespaces import die_with_parent

PERIOD_NS = 1_000_000
"""Real time between two wake-ups. A process uses 1 to 3 % of its processor."""

LATE_NS = 500_000
"""A wake-up that is later than this, in real time, is a stall."""

READY_S = 10.0
"""Time that the processes have to start."""


class Watchdog:
    """One process per usable processor, from ``start`` to ``stop`` or until its parent ends."""

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self._path = run_dir / STALLS_FILE
        self._clock = clock
        self._processes: list[multiprocessing.process.BaseProcess] = []

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid is not None]

    def start(self) -> None:
        """Start; return when all processes watch or have ended. Call it before any thread is started: it forks."""
        fork = multiprocessing.get_context("fork")
        cpus = sorted(os.sched_getaffinity(0))
        ready = fork.Barrier(len(cpus) + 1)
        self._path.touch()
        for cpu in cpus:
            arguments = (cpu, os.getpid(), self._path, self._clock, ready)
            process = fork.Process(target=_watch, args=arguments, daemon=True, name=f"watchdog-{cpu}")
            process.start()
            self._processes.append(process)
        with contextlib.suppress(BrokenBarrierError):
            ready.wait(READY_S)

    def lost(self) -> dict[str, str]:
        """Return the failed processes -> how they ended. To end for want of real-time priority is no failure."""
        ended = {process.name: process.exitcode for process in self._processes}
        return {name: describe_status(status) for name, status in ended.items() if status}

    def stop(self) -> int:
        """Stop; return how many processors were watched until now (0 without permission for real-time priority)."""
        watching = sum(process.is_alive() for process in self._processes)
        for process in self._processes:
            process.kill()
            process.join()
            process.close()
        self._processes = []
        return watching


def _watch(cpu: int, parent: int, path: Path, clock: Clock, ready: Barrier) -> None:
    """Write a line for each late wake-up. The stall begins when the process was to wake."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    die_with_parent(parent)
    gc.disable()
    try:
        os.sched_setaffinity(0, [cpu])
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(WATCHDOG_PRIORITY))
    except OSError:
        ready.abort()
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    with contextlib.suppress(BrokenBarrierError):
        ready.wait(READY_S)
    now_ns, sleep = time.monotonic_ns, time.sleep
    due_ns = now_ns() + PERIOD_NS
    while True:
        left_ns = due_ns - now_ns()
        if left_ns > 0:
            sleep(left_ns / 1e9)
        woke_ns = now_ns()
        if woke_ns - due_ns > LATE_NS:
            os.write(file, Stall("host", clock.virtual_ns(due_ns), clock.virtual_ns(woke_ns), cpu).line())
            woke_ns = now_ns()  # the time of the write is no stall
        due_ns = woke_ns + PERIOD_NS
