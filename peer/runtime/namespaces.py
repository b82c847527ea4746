"""System calls that Python 3.11 lacks: entering a namespace, dying with one's parent, and adopting orphans."""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def enter_network(path: str) -> None:
    """Move this thread into the network namespace at ``path`` (such as /proc/123/ns/net).

    Raises:
        OSError: no such namespace, or no right to enter it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        check(ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET), path)
    finally:
        os.close(descriptor)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the parent dies; ends it if that has happened already."""
    check(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    check(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1), "prctl")


def check(result: int, what: str) -> None:
    """Raise what the C library's last call left in ``errno``, if its result says that it failed.

    Raises:
        OSError: it did.
    """
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
