"""What a peer's program has started: it ends with the peer's agent, whatever it is the child of by then."""

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

END_S = 10.0


def descendants(process: int) -> dict[int, int]:
    """All processes below one -> their parents. Those that have ended and were not waited for are among them."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The second field, the program's name in brackets, may hold anything.
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    found: dict[int, int] = {}
    frontier = {process}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found |= {child: parents[child] for child in frontier}
    return found


def reap_orphans(known: Collection[int]) -> None:
    """Wait for this process's ended children, as far as they are not among the ``known``, which others wait for."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in known:
                return  # it is waited for soon, and the next call goes on
            os.waitpid(ended.si_pid, os.WNOHANG)


def end_descendants() -> list[int]:
    """Kill everything below this process, which adopts orphans (``namespaces.adopt_orphans``).

    Returns what is left after ``END_S``: nothing, unless the kernel itself holds it.
    """
    deadline = time.monotonic() + END_S
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        reap_orphans(())
        time.sleep(0.02)
    return list(left)
