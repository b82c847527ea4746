"""Which processes are stopped, which go on, and when that is noted."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.testbeds.emulated import pauser
from harness.testbeds.emulated.pauser import Orders, Pauses, send
from harness.testbeds.emulated.testbed import merge_applied
from metrics.rundir import AppliedChange
from topologies.timeline import Change

SHELLS = (10, 20, 30)
FIRST = Change(100, 0, 300, paused=(0, 1))
SECOND = Change(200, 1, 400, paused=(1, 2))
"""Host 1 is in both, so it goes on at 400."""


class Machine:
    """Processes by their host's shell, the signals that they got, and when standard input ends."""

    def __init__(self, ends_before: int | None = None) -> None:
        self.processes = {10: [11], 20: [21, 22], 30: [31]}
        self.signals: list[tuple[str, int]] = []
        self.passed = 0
        self.ends_before = ends_before
        self.newcomer: dict[int, int] = {}

    def find(self, shells: list[int]) -> list[int]:
        [shell] = shells
        found = list(self.processes[shell])
        self.processes[shell] += [self.newcomer.pop(shell)] if shell in self.newcomer else []
        return found

    def kill(self, process: int, number: int) -> None:
        self.signals.append((signal.Signals(number).name, process))

    def input_ends(self, timeout_s: float | None) -> bool:
        self.passed += 1
        return self.ends_before is not None and self.passed > 2 * self.ends_before


@contextmanager
def performed(machine: Machine, *changes: Change) -> Iterator[list[int]]:
    """Let the pauses pass; the number of instants that were noted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pauser, "find_processes", machine.find)
        patch.setattr(pauser, "input_ends", machine.input_ends)
        patch.setattr(os, "kill", machine.kill)
        file = os.memfd_create("applied")
        pauses = Pauses(Orders(0, 1.0, SHELLS, changes), file)
        pauses.perform()
        with os.fdopen(file, "rb") as applied:
            applied.seek(0)
            yield [int(line) for line in applied]
        pauses.resume_all()


def test_hosts_are_stopped_once_and_go_on_when_no_pause_has_them() -> None:
    machine = Machine()
    with performed(machine, FIRST, SECOND) as applied:
        stopped = [("SIGSTOP", 11), ("SIGSTOP", 21), ("SIGSTOP", 22), ("SIGSTOP", 31)]
        assert sorted(machine.signals[:4]) == stopped
        assert machine.signals[4] == ("SIGCONT", 11)
        assert sorted(machine.signals[5:]) == [("SIGCONT", 21), ("SIGCONT", 22), ("SIGCONT", 31)]
        assert len(applied) == 4 and applied == sorted(applied)


def test_a_process_that_appears_at_the_instant_is_stopped_and_goes_on_too() -> None:
    machine = Machine()
    machine.newcomer = {10: 12}
    with performed(machine, FIRST):
        assert [each for each in machine.signals if each[1] == 12] == [("SIGSTOP", 12), ("SIGCONT", 12)]


@pytest.mark.parametrize("passed", [0, 1, 2])
def test_when_standardinput_ends_everything_goes_on(passed: int) -> None:
    machine = Machine(ends_before=passed)
    with performed(machine, FIRST, SECOND) as applied:
        assert len(applied) == passed
    stopped, resumed = (
        {process for name, process in machine.signals if name == each} for each in ("SIGSTOP", "SIGCONT")
    )
    assert stopped == resumed
    assert bool(stopped) == bool(passed)


def test_a_process_that_has_ended_gets_no_signal() -> None:
    ended = os.fork()
    if ended == 0:
        os._exit(0)
    os.waitpid(ended, 0)
    send([ended], signal.SIGCONT)


def test_an_instant_is_applied_when_links_and_peers_have_changed() -> None:
    links, pauses = [Change(1, 0, 5), Change(3, 1)], [Change(1, 2, 4, paused=(0,))]
    assert merge_applied([(links, [11, 13, 15]), (pauses, [12, 14])], 10) == [
        AppliedChange(11, 12),
        AppliedChange(13, 13),
        AppliedChange(14, 14),
        AppliedChange(15, 15),
    ]
    assert merge_applied([(links, [11, 13, 15]), (pauses, [])], 10) == [AppliedChange(13, 13), AppliedChange(15, 15)]
    assert merge_applied([(links, []), ([], [])], 10) == []
