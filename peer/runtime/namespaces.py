"""System calls that Python 3.11 lacks: namespaces, dying with one's parent, adopting orphans, giving up privileges.

A peer needs no privilege: it has entered its network namespace, and its files and ports are a plain user's. What it
runs is code that an experiment file names. The parent of the processes of a node with a silent crash, which runs none
of it, keeps CAP_NET_ADMIN over its host's namespace (``peer.runtime.restarts``).

Source: capabilities(7), prctl(2), capset(2).
"""

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Collection
from itertools import count

CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
CAP_NET_ADMIN = 12
_VERSION_3 = 0x20080522


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


def drop_privileges(kept: Collection[int] = ()) -> None:
    """Empty all of this thread's sets of capabilities, and let no program that it executes gain any.

    Files that belong to this process's user stay its own, root's too.

    Args:
        kept: capabilities below 32 that this thread keeps for itself; what it executes does not get them.

    Raises:
        OSError: the kernel refused, such as to keep a capability that this thread lacks.
    """
    low = sum(1 << capability for capability in kept)
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(PermissionError):  # a user without capabilities may not; the last step covers it
        _empty_bounding_set(libc)
    check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear the ambient capabilities")
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    effective_permitted_inheritable = (low, low, 0)  # of the capabilities below 32; then of the others
    check(libc.capset(header, (ctypes.c_uint32 * 6)(*effective_permitted_inheritable)), "capset")
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _empty_bounding_set(libc: ctypes.CDLL) -> None:
    for capability in count():
        try:
            check(libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), f"drop capability {capability}")
        except OSError as error:
            if error.errno != errno.EINVAL:  # which says that there is no capability of this number
                raise
            return


def check(result: int, what: str) -> None:
    """Raise what the C library's last call left in ``errno``, if its result says that it failed.

    Raises:
        OSError: it did.
    """
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
