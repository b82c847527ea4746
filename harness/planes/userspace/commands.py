"""The handle's commands to the forwarding process: JSON, one message per packet of a sequenced Unix socket.

Matrices and pipes are passed as descriptors with the message. The answer to every command is a ``Reply``.
"""

import io

import msgspec
import numpy as np
from msgspec import Struct

from harness.machine.child import unwrap, wrap
from harness.planes.plane import AccessChange, Counters, FinalCounters, PairChange, Port
from harness.planes.userspace.faults import Fault
from topologies.model import Matrix
from topologies.network import Link

MESSAGE_BYTES = 1 << 20
MAX_DESCRIPTORS = 64


class Attach(Struct, frozen=True, tag=True):
    """Make the devices. ``access`` has each host's link up and down.

    Descriptor: the matrices delay_ms, jitter_ms, loss_ratio.
    """

    ports: tuple[Port, ...]
    access: tuple[tuple[Link, Link], ...]
    jitter_correlation_ms: float
    seed: int
    time_dilation: float
    late_ns: int
    fault: Fault | None = None


class SetPair(Struct, frozen=True, tag=True):
    """Change a pair."""

    change: PairChange


class SetPairs(Struct, frozen=True, tag=True):
    """Change all pairs. Descriptor: the matrices delay_ms, jitter_ms, loss_ratio."""


class SetAccess(Struct, frozen=True, tag=True):
    """Change an access link."""

    change: AccessChange


class Schedule(Struct, frozen=True, tag=True):
    """Apply changes at their instants, and let jitter count from zero. Descriptor: ``encode_changes`` of them."""

    zero_ns: int


class StartCapture(Struct, frozen=True, tag=True):
    """Start a capture. Descriptors: one pipe per group of hosts."""

    snaplen_bytes: int
    epoch_offset_ns: int


class StopCapture(Struct, frozen=True, tag=True):
    """Stop the capture; the answer comes when all records are in the pipes."""


class Count(Struct, frozen=True, tag=True):
    """Return the counters."""


class Close(Struct, frozen=True, tag=True):
    """Return the last counters and end."""


Command = Attach | SetPair | SetPairs | SetAccess | Schedule | StartCapture | StopCapture | Count | Close


class CaptureTally(Struct, frozen=True):
    """The counts of a capture, see ``CaptureCounts``."""

    records_written: int
    records_dropped: int
    frames_in: int
    frames_out: int


class Reply(Struct, frozen=True):
    """The answer to a command: an error, or the result."""

    error: str | None = None
    counters: Counters | None = None
    tally: CaptureTally | None = None
    final: FinalCounters | None = None


encode = msgspec.json.encode
decode_command = msgspec.json.Decoder(Command).decode
decode_reply = msgspec.json.Decoder(Reply).decode


def wrap_matrices(*matrices: Matrix) -> int:
    """Write matrices into a file in memory and return its descriptor."""
    content = io.BytesIO()
    np.save(content, np.stack(matrices))
    return wrap(content.getbuffer())


def unwrap_matrices(descriptor: int) -> Matrix:
    """Read (3, n, n) matrices from such a descriptor, and close it."""
    stacked: Matrix = np.load(io.BytesIO(unwrap(descriptor)))
    return stacked
