"""Doing something inside another network namespace."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_CLONE_NEWNET = 0x40000000


@contextmanager
def entered(descriptor: int) -> Iterator[None]:
    """Move this thread into the network namespace that the descriptor refers to, and back.

    Raises:
        OSError: the kernel refused.
    """
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(descriptor)
        try:
            yield
        finally:
            _enter(own)
    finally:
        os.close(own)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
