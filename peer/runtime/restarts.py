"""The processes of a node with scheduled crashes, one after another.

At a crash, the process traces the end of its instance and kills itself (SIGKILL), so that the kernel closes its
connections. Its parent, which the agent watches, has no other task. It then forks the next process, which appends to
the same trace and waits for the node's next join.

At a silent crash, the process first asks its parent to make the host silent (``peer.runtime.silence``), so that the
kernel's packets for the closed connections do not leave the host. The process of the next join asks its parent to let
the host answer again. Only the parent may do either, since a process with a node has no privileges.
"""

import ctypes
import mmap
import os
import signal
import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple

from peer.core.schedule import Crash, Join, Vanish
from peer.instances.bootstrap import Step
from peer.runtime.namespaces import die_with_parent, drop_privileges
from peer.runtime.silence import Silence

_SILENT, _ANSWERS = b"S", b"A"
"""The requests of a process to its parent, which sends them back when they are done."""


class Stretch(NamedTuple):
    """The part of a node's schedule that one process carries out: up to and including a crash, or to the end.

    ``number``: the number of earlier stretches of the node. ``instances``: how many instances of the node began in
    them.
    """

    number: int
    instances: int
    steps: tuple[Step, ...]


def divide(steps: Iterable[Step], up: bool) -> list[Stretch]:
    """Divide a node's schedule into stretches, at least one.

    Args:
        steps: the node's actions in the order of their instants.
        up: whether the node is up at the start.
    """
    stretches: list[Stretch] = []
    own: list[Step] = []
    instances, begun = 0, int(up)
    for step in steps:
        own.append(step)
        begun += isinstance(step.action, Join)
        if isinstance(step.action, Crash | Vanish):
            stretches.append(Stretch(len(stretches), instances, tuple(own)))
            own, instances = [], begun
    return [*stretches, Stretch(len(stretches), instances, tuple(own))]


class Shared:
    """Memory that the processes of a node share.

    Attributes:
        zero_ns: the workload's zero, which the agent sends to the first process (ns).
        crashes: the number of scheduled crashes so far.
        silent: whether the host is silent.
        parent: the present process's end of a socket to its parent.
    """

    parent: socket.socket

    def __init__(self) -> None:
        self._numbers = (ctypes.c_int64 * 3).from_buffer(mmap.mmap(-1, 24))

    @property
    def zero_ns(self) -> int:
        return self._numbers[0]

    @zero_ns.setter
    def zero_ns(self, value: int) -> None:
        self._numbers[0] = value

    @property
    def crashes(self) -> int:
        return self._numbers[1]

    @property
    def silent(self) -> bool:
        return bool(self._numbers[2])

    def silence(self, silent: bool) -> None:
        """Ask the parent to make the host silent, or to let it answer again, unless that is so already.

        This process waits until it is done.

        Raises:
            ConnectionError: the parent has ended.
        """
        if silent == self.silent:
            return
        asked = _SILENT if silent else _ANSWERS
        self.parent.sendall(asked)
        if self.parent.recv(1) != asked:
            raise ConnectionResetError("the parent of the node's processes has ended")
        self._numbers[2] = silent

    def crash(self) -> None:
        """Kill this process, as the schedule requires."""
        self._numbers[1] += 1
        os.kill(os.getpid(), signal.SIGKILL)


def run_in_turn(
    stretches: list[Stretch], shared: Shared, run: Callable[[Stretch], None], silence: Silence | None = None
) -> None:
    """Run every stretch in its own process, each after a scheduled crash has killed the one before.

    It returns only in these processes, after ``run``. The calling process exits after the last one has ended, or one
    has ended in another way: with the same status, or 128 plus the number of the signal.

    Args:
        stretches: the stretches of the node.
        shared: memory that this process and the others share.
        run: carries out a stretch, without privileges.
        silence: makes the node's host silent; None = the schedule has no silent crash.

    Raises:
        OSError: the kernel refused to make the host silent, or to let it answer again.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is sent to the whole group, and the child ends in order
    parent = os.getpid()
    code = 0
    for stretch in stretches:
        ours, theirs = socket.socketpair()
        process = os.fork()
        if process == 0:
            ours.close()
            die_with_parent(parent)
            drop_privileges()
            shared.parent = theirs
            run(stretch)
            return
        theirs.close()
        with ours:
            while asked := ours.recv(1):
                assert silence is not None, "only a node whose schedule has a silent crash asks"
                silence.set(asked == _SILENT)
                ours.sendall(asked)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code != -signal.SIGKILL or shared.crashes == stretch.number:
            break
    os._exit(code if code >= 0 else 128 - code)
