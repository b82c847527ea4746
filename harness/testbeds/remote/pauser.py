"""Stops peers of a machine at planned instants, and lets them go on. The machine's Python runs the text of this file.

The line of standard input is a list of steps in order of time, as JSON: ``at_ns`` (of CLOCK_MONOTONIC), and the nodes
whose peers ``stop`` and ``resume`` then. SIGSTOP holds a process, while its kernel goes on to accept and acknowledge.
Shortly before an instant the agent of the run's folder, which is the working folder, tells which processes the peers
are, since a crash may have replaced them. These and their descendants are stopped, then those that have appeared
meanwhile.

At the end of standard input all stopped processes go on, and the script prints when it has carried out each step (ns),
as JSON. So a lost connection leaves no peer stopped. The file uses only the standard library.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable

AHEAD_NS = 200_000_000
"""How long before an instant the processes are searched for."""

AGENT = "agent.sock"
AGENT_S = 10.0
"""How long the agent may take to answer."""

PRIORITY = 1
"""Under SCHED_FIFO, so that busy peers do not delay a pause."""


class Pauser:
    """Carries out the steps."""

    def __init__(self) -> None:
        self.applied_ns: list[int] = []
        self._stopped: dict[int, set[int]] = {}

    def perform(self, at_ns: int, stop: list[int], resume: list[int]) -> bool:
        """Carry out a step at its instant. Return whether it was reached before the end of standard input."""
        if input_ends(at_ns - AHEAD_NS):
            return False
        found = find_processes(stop)
        if input_ends(at_ns):
            return False
        for node in resume:
            self._resume(node)
        for node, processes in found.items():
            self._stop(node, processes)
        self.applied_ns.append(time.monotonic_ns())
        for node, processes in find_processes(stop).items():
            self._stop(node, processes - self._stopped.get(node, set()))
        return True

    def resume_all(self) -> None:
        """Let everything go on."""
        for node in list(self._stopped):
            self._resume(node)

    def _stop(self, node: int, processes: set[int]) -> None:
        self._stopped.setdefault(node, set()).update(processes)
        send(processes, signal.SIGSTOP)

    def _resume(self, node: int) -> None:
        send(self._stopped.pop(node, set()), signal.SIGCONT)


def find_processes(nodes: list[int]) -> dict[int, set[int]]:
    """Return the processes of nodes, with all that they have started; of a node whose agent has ended, none."""
    if not nodes:
        return {}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(AGENT_S)
            link.connect(AGENT)
            link.sendall(b'["status"]\n')
            peers = json.loads(link.makefile("rb").readline())["peers"]
    except OSError:
        return {}
    parents = find_parents()
    return {node: add_descendants(peers[str(node)]["pid"], parents) for node in nodes}


def find_parents() -> dict[int, int]:
    """Return the parent of every process."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - Path takes longer to import
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - likewise
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue  # it has ended
    return parents


def add_descendants(process: int, parents: dict[int, int]) -> set[int]:
    """Return a process and all that descend from it."""
    found, added = {process}, {process}
    while added:
        added = {child for child, parent in parents.items() if parent in added}
        found |= added
    return found


def send(processes: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes; some may have ended."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


def input_ends(until_ns: int) -> bool:
    """Wait for an instant of CLOCK_MONOTONIC; return whether standard input ended before."""
    left_s = max(0, until_ns - time.monotonic_ns()) / 1e9
    return bool(select.select([0], [], [], left_s)[0])


def main() -> None:
    """Carry out the steps on standard input."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    print("ready", flush=True)
    steps = json.loads(sys.stdin.buffer.readline() or "[]")  # nothing follows, so nothing more is buffered
    with contextlib.suppress(OSError):  # without the right, busy peers may delay a pause
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    pauser = Pauser()
    try:
        if all(pauser.perform(**step) for step in steps):
            select.select([0], [], [])
    finally:
        pauser.resume_all()
    print(json.dumps(pauser.applied_ns), flush=True)


if __name__ == "__main__":
    main()
