"""Estimates the offset of a machine's clocks from this machine's by round trips."""

import time
from typing import IO

import paramiko  # type: ignore[import-untyped]

from harness.deployment.answers import StepError
from harness.deployment.script import COMMAND_S, LINE_BYTES
from harness.deployment.session import MachineSession
from metrics.rundir import ClockOffset
from peer.runtime.clock import epoch_offset_ns

ROUNDS = 20

_ECHO = """
import sys, time
now, real = time.monotonic_ns, time.time_ns
while sys.stdin.buffer.readline():
    _, middle, epoch = min((c - a, (a + c) // 2, b) for a, b, c in [(now(), real(), now()) for _ in range(5)])
    print(epoch, middle, flush=True)
"""
"""Both clocks are read at the same instant, as nearly as one of five attempts allows: traces are on one of them, and
captures on the other."""


def read_clock_offset(session: MachineSession) -> ClockOffset:
    """Estimate the offset from the fastest of some round trips over the machine's SSH connection.

    The clock is read between a question and its answer. Assuming the middle errs by at most half of the round trip,
    whatever the asymmetry of the path. The fastest round trip gives the smallest error.

    Returns:
        The offset; its ``error_ns`` is half of the fastest round trip.

    Source: F. Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989.
    """
    channel = session.open_channel(session.python_command("-c", _ECHO))
    channel.settimeout(COMMAND_S)
    answers = channel.makefile("rb")
    try:
        epoch_ns = epoch_offset_ns()
        return min((_read_once(channel, answers, epoch_ns) for _ in range(ROUNDS)), key=lambda offset: offset.error_ns)
    finally:
        channel.close()


def merge_offsets(before: ClockOffset, after: ClockOffset) -> ClockOffset:
    """Return one offset for the time between two readings: their middle, with an error that covers both.

    Traces are on CLOCK_MONOTONIC, captures on CLOCK_REALTIME. The error covers what either has moved, so also a machine
    whose clock was set meanwhile.
    """
    moved_ns = (after.monotonic_ns - before.monotonic_ns, after.realtime_ns - before.realtime_ns)
    spread = -(-max(map(abs, moved_ns)) // 2)
    return ClockOffset(
        realtime_ns=(before.realtime_ns + after.realtime_ns) // 2,
        monotonic_ns=(before.monotonic_ns + after.monotonic_ns) // 2,
        error_ns=max(before.error_ns, after.error_ns) + spread,
    )


def _read_once(channel: paramiko.Channel, answers: IO[bytes], epoch_ns: int) -> ClockOffset:
    asked_ns = time.monotonic_ns()
    channel.sendall(b"\n")
    words = answers.readline(LINE_BYTES).split()
    answered_ns = time.monotonic_ns()
    if len(words) != 2 or not all(word.isdigit() and len(word) < 20 for word in words):
        raise StepError("the machine's Python did not return the time")
    middle_ns = (asked_ns + answered_ns) // 2
    return ClockOffset(
        realtime_ns=int(words[0]) - (middle_ns + epoch_ns),
        monotonic_ns=int(words[1]) - middle_ns,
        error_ns=(answered_ns - asked_ns + 1) // 2,
    )
