"""Measures a ``Calibration`` and prints it: ``python -m harness.machine.measuring``. It uses no network.

The fixed piece of work resembles what a frame costs peers and data plane: two processes send each other a small message
over a socketpair, so that each is woken once. Each encodes and decodes the message, and looks up numbers in a table
that is larger than a processor's caches: peers that have little to do find little of their data there, and the speed of
memory varies most among machines. Both processes are on one processor, another one in each round: on two, it depends on
the scheduler whether the work takes once or twice as long.
"""

import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import cycle

import msgspec
from msgspec import Struct

from harness.machine.awake import kept_awake
from harness.machine.calibration import Calibration
from harness.machine.scheduling import WATCHDOG_PRIORITY
from metrics.processors import usable_processors
from peer.runtime.namespaces import die_with_parent

WORK_S = 0.8
"""How long rounds of work are measured (s)."""

EXCHANGES = 25
"""Messages there and back in a round."""

TABLE_SIZE = 1 << 18
"""Numbers in the table of each process: some 25 MB."""

LOOKUPS = 100
"""Numbers that are looked up for a message, far from each other in the table."""

_STEP = 104_729
"""The distance between two of them; odd, so that all numbers are looked up in turn."""

SLEEP_S = 0.001
SLEEPING_S = 0.8
"""How long wake-ups are measured (s)."""

_MESSAGE_BYTES = 4096


class _Message(Struct, array_like=True):
    number: int
    topics: tuple[int, ...]
    spent_ns: int
    payload: bytes


def measure_work_us() -> float:
    """Return the processor time in us that both processes need for a message, the median of the rounds."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            _answer(theirs, parent)
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        exchange = _exchange(ours)
        next(exchange)  # the other process makes its table
        rounds_us: list[float] = []
        until_s = time.monotonic() + WORK_S
        before_ns = next(exchange)
        allowed = os.sched_getaffinity(0)
        for processor in cycle(sorted(allowed)):
            if rounds_us and time.monotonic() > until_s:
                break
            for process in (parent, child):
                os.sched_setaffinity(process, [processor])
            for _ in range(EXCHANGES):
                spent_ns = next(exchange)
            rounds_us.append((spent_ns - before_ns) / EXCHANGES / 1000)
            before_ns = spent_ns
        os.sched_setaffinity(0, allowed)
    os.waitpid(child, 0)
    return statistics.median(rounds_us)


def _exchange(link: socket.socket) -> Iterator[int]:
    """Send a message, wait for the answer, and yield the processor time of both processes so far (ns)."""
    work = _Work()
    number = 0
    while True:
        link.send(work.encode(number))
        answer = work.decode(link.recv(_MESSAGE_BYTES))
        number += 1
        yield time.process_time_ns() + answer.spent_ns


def _answer(link: socket.socket, parent: int) -> None:
    """Answer each message until the other process closes the link."""
    die_with_parent(parent)
    work = _Work()
    while received := link.recv(_MESSAGE_BYTES):
        link.send(work.encode(work.decode(received).number))


class _Work:
    """What a process does for each message."""

    def __init__(self) -> None:
        self._table = {number: number for number in range(TABLE_SIZE)}
        self._place = os.getpid() % TABLE_SIZE
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Message)

    def encode(self, number: int) -> bytes:
        return self._encoder.encode(_Message(number, (1, 2), time.process_time_ns(), bytes(200)))

    def decode(self, content: bytes) -> _Message:
        table, place = self._table, self._place
        for _ in range(LOOKUPS):
            place = (table[place] + _STEP) % TABLE_SIZE
        self._place = place
        return self._decoder.decode(content)


def measure_late_ms() -> tuple[float, bool]:
    """Return how late a sleeping process wakes at the 99th percentile (ms), and whether it had real-time priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(WATCHDOG_PRIORITY))
    except OSError:
        realtime = False
    else:
        realtime = True
    late_ns: list[int] = []
    until_ns = time.monotonic_ns() + round(SLEEPING_S * 1e9)
    while not late_ns or time.monotonic_ns() < until_ns:
        due_ns = time.monotonic_ns() + round(SLEEP_S * 1e9)
        time.sleep(SLEEP_S)
        late_ns.append(time.monotonic_ns() - due_ns)
    late_ns.sort()
    return late_ns[len(late_ns) * 99 // 100] / 1e6, realtime


def main() -> int:
    """Measure, with the processors kept awake as in a run, and print the calibration."""
    with kept_awake():
        work_us = measure_work_us()
        late_ms, realtime = measure_late_ms()
    found = Calibration(round(work_us, 2), round(late_ms, 4), realtime, usable_processors())
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
