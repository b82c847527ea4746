"""System calls that Python 3.11 lacks: to enter namespaces, end with the parent, adopt orphans and drop privileges.

A peer needs no privilege: it has entered its network namespace, and an ordinary user may open its files and ports. It
runs code that an experiment file names. The parent of the processes of a node with a silent crash runs no such code. It
keeps CAP_NET_ADMIN over its host's namespace (``peer.runtime.restarts``).

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
        OSError: there is no such namespace, or this process may not enter it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        check(ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET), path)
    finally:
        os.close(descriptor)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the parent ends. End it now if the parent has ended already."""
    check(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    check(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1), "prctl")


def drop_privileges(kept: Collection[int] = ()) -> None:
    """Empty all of this thread's sets of capabilities, so that no program that it executes gains any.

    The process still owns the files of its user, even if the user is root.

    Args:
        kept: capabilities below 32 that this thread keeps. Programs that it executes do not get them.

    Raises:
        OSError: the kernel refused, such as to keep a capability that this thread lacks.
    """
    low = sum(1 << capability for capability in kept)
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(PermissionError):  # a user without capabilities may not; the last call suffices then
        _empty_bounding_set(libc)
    check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear the ambient capabilities")
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    effective_permitted_inheritable = (low, low, 0)  # for the capabilities below 32; the others follow
    check(libc.capset(header, (ctypes.c_uint32 * 6)(*effective_permitted_inheritable)), "capset")
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _empty_bounding_set(libc: ctypes.CDLL) -> None:
    for capability in count():
        try:
            check(libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), f"drop capability {capability}")
        except OSError as error:
            if error.errno != errno.EINVAL:  # there is no capability with this number
                raise
            return


def check(result: int, what: str) -> None:
    """Raise an exception if the result of a call of the C library says that it failed.

    Raises:
        OSError: it failed, with ``errno`` as the reason.
    """
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
