"""The handle's commands to the forwarding process: JSON, one message per packet of a sequenced Unix socket.

Networks and pipes are passed as descriptors with the message. The answer to every command is a ``Reply``.
"""

import io

import msgspec
import numpy as np
from msgspec import Struct

from harness.machine.child import unwrap, wrap
from harness.planes.plane import AccessChange, Counters, FinalCounters, PairChange, Port
from harness.planes.userspace.defects import Defect
from topologies.bottlenecks import NO_BOTTLENECKS, Bottlenecks
from topologies.link_graph import LinkGraph
from topologies.model import between
from topologies.network import AskedOfPairs, Network

MESSAGE_BYTES = 1 << 20
MAX_DESCRIPTORS = 64


class Attach(Struct, frozen=True, tag=True):
    """Make the devices. Descriptor: the network."""

    ports: tuple[Port, ...]
    seed: int
    time_dilation: float
    late_ns: int
    defect: Defect | None = None


class SetPair(Struct, frozen=True, tag=True):
    """Change a pair."""

    change: PairChange


class SetPairs(Struct, frozen=True, tag=True):
    """Change all pairs. Descriptor: a network with their values."""


class SetAccess(Struct, frozen=True, tag=True):
    """Change an access link."""

    change: AccessChange


class Schedule(Struct, frozen=True, tag=True):
    """Apply changes at their instants; jitter and disorder count from zero. Descriptor: ``encode_changes`` of them."""

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
_decode_graph = msgspec.json.Decoder(tuple[LinkGraph, tuple[int, ...]]).decode


def wrap_network(network: Network) -> int:
    """Write a network into a file in memory and return its descriptor. Matrices of zeros are left out."""
    names = ("size", "rate_mbit", "queue_ms", "jitter_correlation_ms")
    arrays = {name: np.array(getattr(network, name)) for name in names}
    arrays |= {name: matrix for name, matrix in network.asked_of_pairs()._asdict().items() if matrix.any()}
    if found := network.bottlenecks:
        arrays["bottlenecks"] = np.frombuffer(encode((found.graph, found.routers)), np.uint8)
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return wrap(content.getbuffer())


def unwrap_network(descriptor: int) -> Network:
    """Read a network from such a descriptor, and close it."""
    with np.load(io.BytesIO(unwrap(descriptor))) as found:
        zeros = between(int(found["size"]), 0.0)
        bottlenecks = NO_BOTTLENECKS
        if "bottlenecks" in found:
            bottlenecks = Bottlenecks(*_decode_graph(found["bottlenecks"].tobytes()))
        return Network.of_pairs(
            AskedOfPairs(*(found.get(name, zeros) for name in AskedOfPairs._fields)),
            rate_mbit=found["rate_mbit"].tolist(),
            queue_ms=found["queue_ms"].tolist(),
            jitter_correlation_ms=float(found["jitter_correlation_ms"]),
            bottlenecks=bottlenecks,
        )
