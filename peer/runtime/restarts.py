"""The processes of a node with scheduled crashes, one after another.

At a crash the process traces the end of its instance and kills itself (SIGKILL), so that the kernel closes its
connections. Its parent, which does nothing else and which the agent watches, then forks the next process. That one
appends to the same trace and waits for the node's next join.
"""

import ctypes
import mmap
import os
import signal
from collections.abc import Callable, Iterable
from typing import NamedTuple

from peer.core.schedule import Crash, Join
from peer.runtime.bootstrap import Step
from peer.runtime.namespaces import die_with_parent


class Stretch(NamedTuple):
    """The part of a node's schedule that one process carries out: up to and including a crash, or to the end.

    ``number``: of the node's stretches before. ``instances``: how many instances of the node began in them.
    """

    number: int
    instances: int
    steps: tuple[Step, ...]


def divide(steps: Iterable[Step], up: bool) -> list[Stretch]:
    """Return the stretches of a node's schedule, at least one.

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
        if isinstance(step.action, Crash):
            stretches.append(Stretch(len(stretches), instances, tuple(own)))
            own, instances = [], begun
    return [*stretches, Stretch(len(stretches), instances, tuple(own))]


class Shared:
    """Memory that the processes of a node share.

    Attributes:
        zero_ns: the workload's zero, which the first process is told.
        crashes: how many scheduled crashes have been carried out.
    """

    def __init__(self) -> None:
        self._numbers = (ctypes.c_int64 * 2).from_buffer(mmap.mmap(-1, 16))

    @property
    def zero_ns(self) -> int:
        return self._numbers[0]

    @zero_ns.setter
    def zero_ns(self, value: int) -> None:
        self._numbers[0] = value

    @property
    def crashes(self) -> int:
        return self._numbers[1]

    def crash(self) -> None:
        """Kill this process, as the schedule asks."""
        self._numbers[1] += 1
        os.kill(os.getpid(), signal.SIGKILL)


def run_in_turn(stretches: list[Stretch], shared: Shared, run: Callable[[Stretch], None]) -> None:
    """Run every stretch in a process of its own, each when a scheduled crash has killed the one before.

    Returns in these processes only, after ``run``. The calling process exits when one of them ends in any other way or
    the last one has ended: with the same status, or 128 and the number of the signal.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it goes to the whole group; the process below ends in order
    parent = os.getpid()
    code = 0
    for stretch in stretches:
        process = os.fork()
        if process == 0:
            die_with_parent(parent)
            run(stretch)
            return
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code != -signal.SIGKILL or shared.crashes == stretch.number:
            break
    os._exit(code if code >= 0 else 128 - code)
