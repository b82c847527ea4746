"""Starts the processes that show a run. They run only when no other process wants the processor."""

import subprocess
from collections.abc import Sequence

from harness.interpreter import python_command
from harness.machine.scheduling import make_session_nice

_AT_IDLE = ("setpriv", "--pdeathsig", "KILL", "chrt", "--idle", "0")


def start_idle(
    module: str, words: Sequence[str], *, stdin: int | None = None, descriptors: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a module of ours as a process that must not take time from the run.

    It runs under SCHED_IDLE in a session of the lowest priority, and ends with the calling thread.

    Args:
        module: as in ``python -m``.
        words: its arguments.
        stdin: as in ``subprocess.Popen``; None = it has none, and its standard output can be read instead.
        descriptors: those that it inherits.
    """
    process = subprocess.Popen(
        [*_AT_IDLE, *python_command("-m", module, *words)],
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE if stdin is None else None,
        start_new_session=True,  # Ctrl-C reaches the command only, which ends this
        pass_fds=descriptors,
    )
    make_session_nice(process.pid)
    return process
