"""Locks of files of a run directory: the kernel frees them with their process, and a watcher of a run looks at them."""

import fcntl
import time
from contextlib import suppress
from typing import IO, Final

_ATTEMPTS: Final = 3
_PAUSE_S: Final = 0.05


def lock(file: IO[bytes]) -> None:
    """Lock a file, also if a watcher of the run is just finding out whether it is locked (``harness.live.following``).

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file system has no locks.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_PAUSE_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
