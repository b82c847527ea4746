"""A process that stops the peers of hosts at planned instants, and lets them go on: ``python -m`` this module.

SIGSTOP holds a process, while its kernel goes on to accept and acknowledge. The process has real-time priority, so that
busy peers do not delay it. Shortly before an instant it finds the processes in the hosts' namespaces, since a crash may
have replaced them; then it stops those, and those that have appeared meanwhile.

Standard input has a line of ``Orders``. When it ends, all stopped processes go on. That also happens when the testbed's
own process dies. The instants at which processes were stopped, or went on, are written as lines to a descriptor.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.errors import TestbedError
from harness.machine.child import Child, unwrap
from harness.machine.scheduling import PAUSER_PRIORITY
from harness.testbeds.emulated.host_processes import find_processes
from peer.files import LOGS_FOLDER
from peer.runtime.clock import Clock
from topologies.network import uniform_network
from topologies.timeline import Change, Timeline

AHEAD_S = 0.05
"""How long before an instant the processes are searched for: it takes some milliseconds in a large run."""


class Orders(Struct, frozen=True):
    """What the process is to do.

    Attributes:
        zero_ns: the zero of the changes' instants, on the run's clock.
        time_dilation: that of the run's clock.
        shells: Mininet's shell of each host, in order.
        changes: with the hosts whose peers they pause.
    """

    zero_ns: int
    time_dilation: float
    shells: tuple[int, ...]
    changes: tuple[Change, ...]


class Pauser:
    """The handle of the process, from its making to ``end``.

    Args:
        changes: of the run; only those that pause peers count.
        shells: Mininet's shell of each host, in order.
        run_dir: gets the log.
        time_dilation: that of the run's clock.
    """

    def __init__(self, changes: Sequence[Change], shells: Sequence[int], run_dir: Path, time_dilation: float) -> None:
        self._changes = tuple(change for change in changes if change.paused)
        self._shells = tuple(shells)
        self._time_dilation = time_dilation
        self._applied = os.memfd_create("applied")
        log = run_dir / LOGS_FOLDER / "pauser.log"
        arguments = [str(self._applied)]
        self._process = Child("the process that pauses peers", __name__, arguments, log, [self._applied])

    def schedule(self, zero_ns: int) -> None:
        """Schedule the pauses; ``zero_ns`` is their zero on the run's clock.

        Raises:
            TestbedError: the process has ended.
        """
        orders = Orders(zero_ns, self._time_dilation, self._shells, self._changes)
        try:
            self._process.tell(msgspec.json.encode(orders))
        except BrokenPipeError as error:
            raise TestbedError("schedule the pauses", f"the process has ended; {self._process.last_words}") from error

    def lost(self) -> dict[str, str]:
        """Return the process, and how it ended, if it has."""
        return self._process.lost()

    def end(self) -> tuple[list[int], list[str]]:
        """Let all peers go on. Return when each instant was applied (ns), and a sentence if the process failed."""
        complaints = self._process.end()
        self._process.kill()
        return [int(line) for line in unwrap(self._applied).splitlines()], complaints


class Pauses:
    """Carries out the orders.

    Args:
        orders: the orders of the run.
        file: the descriptor for the instants.
    """

    def __init__(self, orders: Orders, file: int) -> None:
        self._shells = orders.shells
        self._file = file
        self._clock = Clock(orders.time_dilation)
        network = uniform_network(len(orders.shells), 0.0)
        self._timeline = Timeline(network, orders.changes, zero_ns=orders.zero_ns)
        self._stopped: dict[int, list[int]] = {}

    def perform(self) -> None:
        """Pass all instants, or those before the end of standard input, and wait for it."""
        for at_ns in self._timeline.instants:
            paused = self._timeline.paused(at_ns)
            begin, end = paused - self._stopped.keys(), self._stopped.keys() - paused
            if input_ends(self._clock.left_s(at_ns) - AHEAD_S):
                return
            found = {host: self._find(host) for host in begin}
            if input_ends(self._clock.left_s(at_ns)):
                return
            self._resume(end)
            for host, processes in found.items():
                self._stopped[host] = processes
                send(processes, signal.SIGSTOP)
            os.write(self._file, b"%d\n" % self._clock.now_ns())
            for host in begin:
                self._stop_late(host)
        input_ends(None)

    def resume_all(self) -> None:
        """Let everything go on."""
        self._resume(set(self._stopped))

    def _find(self, host: int) -> list[int]:
        return find_processes([self._shells[host]])

    def _stop_late(self, host: int) -> None:
        """Stop the processes that have appeared since they were searched for."""
        late = set(self._find(host)) - {*self._stopped[host]}
        self._stopped[host] += late
        send(late, signal.SIGSTOP)

    def _resume(self, hosts: Collection[int]) -> None:
        for host in list(hosts):
            send(self._stopped.pop(host), signal.SIGCONT)


def send(processes: Collection[int], number: signal.Signals) -> None:
    """Send a signal to processes; some may have ended."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def input_ends(timeout_s: float | None) -> bool:
    """Wait for the end of standard input, at most for a time; None = without limit."""
    came, _, _ = select.select([0], [], [], None if timeout_s is None else max(timeout_s, 0.0))
    return bool(came)


def main() -> int:
    """Carry out the orders on standard input; the argument is the descriptor for the instants."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    if not (line := sys.stdin.buffer.readline()):
        return 0
    with contextlib.suppress(OSError):  # without the right, busy peers may delay a pause; a check judges that
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PAUSER_PRIORITY))
    pauses = Pauses(msgspec.json.decode(line, type=Orders), int(sys.argv[1]))
    try:
        pauses.perform()
    finally:
        pauses.resume_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
