"""Starts the processes that show a run. They run only when no other process wants the processor."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.interpreter import python_command
from harness.machine.scheduling import make_session_nice

_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_AT_IDLE = ("chrt", "--idle", "0")


def start_idle(
    module: str,
    words: Sequence[str],
    *,
    stdin: int | None = None,
    descriptors: Sequence[int] = (),
    steps_back: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a module of ours as a process that must not take time from the run.

    It runs under SCHED_IDLE in a session of the lowest priority, and ends with the calling thread.

    Args:
        module: as in ``python -m``.
        words: its arguments.
        stdin: as in ``subprocess.Popen``; None = it has none, and its standard output can be read instead.
        descriptors: those that it inherits.
        steps_back: it begins at the priority of the caller and calls ``step_back`` itself.
    """
    process = subprocess.Popen(
        [*_ENDS_WITH_US, *(() if steps_back else _AT_IDLE), *python_command("-m", module, *words)],
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE if stdin is None else None,
        start_new_session=True,  # Ctrl-C reaches the command only, which ends this
        pass_fds=descriptors,
    )
    if not steps_back:
        make_session_nice(process.pid)
    return process


def step_back() -> None:
    """Give this process and its session the lowest priority, as ``start_idle`` does."""
    for thread in Path("/proc/self/task").iterdir():  # numerical libraries have some; later ones inherit it
        os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
    make_session_nice(os.getpid())
