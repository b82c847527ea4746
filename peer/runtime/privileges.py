"""Giving up every privilege of a process, for good.

A peer needs none: it has entered its network namespace, and its files and ports are a plain user's. What it runs is
code that an experiment file names.

Source: capabilities(7), prctl(2), capset(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
from itertools import count

from peer.runtime.namespaces import check

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_VERSION_3 = 0x20080522


def drop_privileges() -> None:
    """Empty all of this thread's sets of capabilities, and let no program that it executes gain any.

    Files that belong to this process's user stay its own, root's too.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(PermissionError):  # a user without capabilities may not; the last step covers it
        _empty_bounding_set(libc)
    check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear the ambient capabilities")
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _empty_bounding_set(libc: ctypes.CDLL) -> None:
    for capability in count():
        try:
            check(libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), f"drop capability {capability}")
        except OSError as error:
            if error.errno != errno.EINVAL:  # which says that there is no capability of this number
                raise
            return
