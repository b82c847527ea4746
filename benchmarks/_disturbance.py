"""What disturbs a machine on purpose: processes that take its processors, and a process that is stopped for a while.

Every disturbance ends by itself after ``LONGEST_S``, and with the process that started it.
"""

import contextlib
import ctypes
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LONGEST_S = 400.0
PRIORITY = 90
"""Real-time priority of what is to run before everything of a run, its watchdogs included."""

_SET_PARENT_DEATH_SIGNAL = 1


@contextlib.contextmanager
def hogs(hog: Callable[[int], None], count: int) -> Iterator[None]:
    """Run ``hog(cpu)`` in ``count`` processes, spread over the processors and pinned to them."""
    cpus = sorted(os.sched_getaffinity(0))
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=_hold, args=(hog, cpus[number % len(cpus)], os.getpid()), daemon=True)
        for number in range(count)
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _hold(hog: Callable[[int], None], cpu: int, parent: int) -> None:
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    os.sched_setaffinity(0, [cpu])
    hog(cpu)


def stall_at_random(seed: int, per_s: float, length_s: float) -> Callable[[int], None]:
    """Take every processor at the same random instants (a Poisson process), with real-time priority."""
    begin_s = time.monotonic()

    def hog(_: int) -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        draws, at_s = random.Random(seed), begin_s
        while True:
            at_s += draws.expovariate(per_s)
            time.sleep(max(at_s - time.monotonic(), 0.0))
            _spin_until(at_s + length_s)

    return hog


def take_share(share: float, period_s: float = 0.02) -> Callable[[int], None]:
    """Take a share of a processor, with real-time priority."""

    def hog(_: int) -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        at_s = time.monotonic()
        while True:
            _spin_until(at_s + share * period_s)
            at_s += period_s
            time.sleep(max(at_s - time.monotonic(), 0.0))

    return hog


def spin(_: int) -> None:
    """Compute without end, with the usual priority."""
    while True:
        pass


def copy_memory(_: int) -> None:
    """Copy more memory than caches hold, without end, with the usual priority."""
    here, there = bytearray(64 << 20), bytearray(64 << 20)
    while True:
        there[:] = here


def start_processes(_: int) -> None:
    """Start processes that end at once, without end."""
    while True:
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)


def stop_for(process: int, length_s: float) -> None:
    """Stop a process for a time."""
    os.kill(process, signal.SIGSTOP)
    time.sleep(length_s)
    os.kill(process, signal.SIGCONT)


def find_descendant(process: int, command: str) -> int:
    """The first process below one whose command line contains ``command``.

    Raises:
        LookupError: there is none.
    """
    frontier = [process]
    while frontier:
        each = frontier.pop(0)
        with contextlib.suppress(OSError):
            if each != process and command.encode() in Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" "):
                return each
            for task in Path(f"/proc/{each}/task").iterdir():
                frontier += [int(word) for word in (task / "children").read_text(encoding="utf-8").split()]
    raise LookupError(f"no process below {process} runs {command}")


def _spin_until(instant_s: float) -> None:
    while time.monotonic() < instant_s:
        pass
