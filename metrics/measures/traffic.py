"""Measures of the frames that nodes sent."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from metrics.measures.measure import Family, ratio
from peer.core.frames import Bye, Data, Hello
from peer.protocols.registry import background_kinds

BACKGROUND = {Hello.kind, Bye.kind} | background_kinds()
"""Frames not caused by joins or leaves: periodic ones, and frames that open and close a link for any reason."""


class Traffic(Struct, frozen=True):
    """The frames that some nodes sent in a span of time."""

    frames: Mapping[int, int]  # number of frames, by kind
    sizes_bytes: Mapping[int, int]  # bytes of frames, by kind
    peer_seconds: float  # the number of nodes times the span
    changes: int = 0  # how many nodes joined, left or crashed in the span


def _control(counts: Mapping[int, int], without: Collection[int] = ()) -> int:
    """Return the total of all kinds other than data and those in ``without``."""
    return sum(count for kind, count in counts.items() if kind != Data.kind and kind not in without)


TRAFFIC = Family[Traffic]("frames sent")
TRAFFIC.add("frames", "frames", "frames of each kind", lambda it: sorted(it.frames.items()), "kind")
TRAFFIC.add(
    "control_frames_per_peer_per_s",
    "frames/s",
    "control traffic per peer: frames other than data",
    lambda it: ratio(_control(it.frames), it.peer_seconds),
)
TRAFFIC.add(
    "control_bytes_per_peer_per_s",
    "bytes/s",
    "control traffic per peer: bytes of frames other than data",
    lambda it: ratio(_control(it.sizes_bytes), it.peer_seconds),
)
TRAFFIC.add(
    "control_frames_per_change",
    "frames",
    "control frames per join, leave and crash, without heartbeats and frames that open and close links",
    lambda it: ratio(_control(it.frames, BACKGROUND), it.changes),
)
TRAFFIC.add(
    "control_frames_per_cycle",
    "frames",
    "control frames per cycle of a join and the departure that follows: twice those per join, leave and crash",
    lambda it: ratio(2 * _control(it.frames, BACKGROUND), it.changes),
)
TRAFFIC.add(
    "frames_per_change",
    "frames",
    "frames of each kind per join, leave and crash",
    lambda it: ((kind, count / it.changes) for kind, count in sorted(it.frames.items()) if it.changes),
    "kind",
)
