"""Keeps the processors of a virtual machine awake while a run is measured.

An idle virtual processor is returned to the hypervisor, and the next process to wake waits until the hypervisor gives
it back: microseconds on an idle host, milliseconds on a busy one. A process of the lowest priority on each processor
prevents this; any other process preempts it at once. docs/adr/0014 has the measurements.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness.machine.scheduling import make_session_nice
from metrics.processors import find_groups, processor_quota
from peer.runtime.namespaces import die_with_parent

KEEP_AWAKE_VARIABLE: Final = "TRELLIS_KEEP_AWAKE"
"""The environment variable that lets the processors sleep if it is 0: for runs beside other work, of which keep-awake
processes would take 2 to 4 % for each run."""

_NICE = 19
"""The kernel counts time at this priority separately, so ``pressure.jsonl`` can leave it out."""


def is_virtual() -> bool:
    """Return whether this machine is virtual."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(line.startswith("flags") and "hypervisor" in line.split() for line in lines)


def make_keep_awake() -> KeepAwake | None:
    """Return a ``KeepAwake`` where it helps: on a virtual machine whose quota, if any, exceeds its processors.

    None as well if ``KEEP_AWAKE_VARIABLE`` is 0 in the environment.

    Busy waiting uses up a quota like other work. If the quota is smaller than all processors together, the run would be
    throttled for tens of milliseconds at a time, whereas waking a processor takes a few. If they are equal, one period
    in six was throttled, for about 1 ms (docs/emulated-testbed.md).
    """
    wanted = os.environ.get(KEEP_AWAKE_VARIABLE) != "0"
    enough = processor_quota(find_groups()) > len(os.sched_getaffinity(0))
    return KeepAwake() if wanted and is_virtual() and enough else None


class KeepAwake:
    """Keep-awake processes: one waits busily on every processor from ``start`` to ``stop`` or its parent's end."""

    def __init__(self) -> None:
        fork = multiprocessing.get_context("fork")
        self.processes = [
            fork.Process(target=_wait_busily, args=(cpu, os.getpid()), daemon=True, name=f"keep-awake-{cpu}")
            for cpu in sorted(os.sched_getaffinity(0))
        ]

    def start(self) -> None:
        """Start. Call it before any thread is started, because it forks."""
        for process in self.processes:
            process.start()

    def stop(self) -> int:
        """Stop, and return how many processes ran until now."""
        awake = sum(process.is_alive() for process in self.processes)
        for process in self.processes:
            process.kill()
            process.join()
            process.close()
        self.processes = []
        return awake


@contextmanager
def kept_awake() -> Iterator[None]:
    """Keep the processors awake as in a run, for measurements of a data plane without a run."""
    keep_awake = make_keep_awake()
    if keep_awake is not None:
        keep_awake.start()
    try:
        yield
    finally:
        if keep_awake is not None:
            keep_awake.stop()


def _wait_busily(cpu: int, parent: int) -> None:
    """Wait for a lock that is never released: the C library's loop tells the processor that it only waits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    die_with_parent(parent)
    os.sched_setaffinity(0, [cpu])
    os.setsid()
    make_session_nice(os.getpid())
    os.nice(_NICE)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    library, lock = ctypes.CDLL(None), ctypes.c_int()
    library.pthread_spin_init(ctypes.byref(lock), 0)
    library.pthread_spin_lock(ctypes.byref(lock))
    library.pthread_spin_lock(ctypes.byref(lock))
