"""What the handle asks of the forwarding process: JSON, one message a packet of a sequenced Unix socket.

Matrices and pipes travel as descriptors beside the message. Every command is answered by a ``Reply``.
"""

from __future__ import annotations

import io
import os

import msgspec
import numpy as np
from msgspec import Struct

from harness.testbeds.emulated.dataplane.faults import LateFirsts
from harness.testbeds.emulated.plane import Counters, FinalCounters, Port
from topologies.model import Matrix

MESSAGE_BYTES = 1 << 20
MAX_DESCRIPTORS = 64


class Attach(Struct, frozen=True, tag=True):
    """Make the devices. Descriptor: the matrices delay_ms, jitter_ms, loss_ratio."""

    ports: tuple[Port, ...]
    rate_mbit: tuple[float, ...]
    queue_ms: tuple[float, ...]
    seed: int
    time_dilation: float
    late_ns: int
    fault: LateFirsts | None = None


class SetPair(Struct, frozen=True, tag=True):
    """Change a pair."""

    source: int
    destination: int
    delay_ms: float
    jitter_ms: float
    loss_ratio: float


class SetPairs(Struct, frozen=True, tag=True):
    """Change all pairs. Descriptor: the matrices delay_ms, jitter_ms, loss_ratio."""


class SetRate(Struct, frozen=True, tag=True):
    """Change an access link."""

    host: int
    rate_mbit: float
    queue_ms: float


class Fail(Struct, frozen=True, tag=True):
    """Fail a host."""

    host: int


class Restore(Struct, frozen=True, tag=True):
    """Restore a host."""

    host: int


class StartCapture(Struct, frozen=True, tag=True):
    """Begin a capture. Descriptors: a pipe for each group of hosts."""

    snaplen_bytes: int
    epoch_offset_ns: int


class StopCapture(Struct, frozen=True, tag=True):
    """End the capture; answered when all of it is in the pipes."""


class Count(Struct, frozen=True, tag=True):
    """Tell the counters."""


class Close(Struct, frozen=True, tag=True):
    """Tell the last counters and end."""


Command = Attach | SetPair | SetPairs | SetRate | Fail | Restore | StartCapture | StopCapture | Count | Close


class Tally(Struct, frozen=True):
    """A capture's counts, see ``CaptureCounts``."""

    records_written: int
    records_dropped: int
    frames_in: int
    frames_out: int


class Reply(Struct, frozen=True):
    """The answer: an error, or what was asked for."""

    error: str | None = None
    counters: Counters | None = None
    tally: Tally | None = None
    final: FinalCounters | None = None


encode = msgspec.json.encode
decode_command = msgspec.json.Decoder(Command).decode
decode_reply = msgspec.json.Decoder(Reply).decode


def wrap_matrices(*matrices: Matrix) -> int:
    """Put matrices into a file in memory; returns its descriptor."""
    content = io.BytesIO()
    np.save(content, np.stack(matrices))
    descriptor = os.memfd_create("matrices")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content.getbuffer())
    return descriptor


def unwrap_matrices(descriptor: int) -> Matrix:
    """(3, n, n) from such a descriptor, which is closed."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        stacked: Matrix = np.load(file)
    return stacked
