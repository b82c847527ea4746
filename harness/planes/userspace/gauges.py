"""The forwarding process's counters in shared memory, so that readers never disturb it.

A sequence number before and after the values tells a reader that a write was in progress; it then reads again. The
values are followed by rings of the latest bursts of late frames, one ring per kind in ``KINDS``. A burst is written
before the snapshot that counts it.
"""

import mmap
from struct import Struct as Layout

from msgspec import Struct

from harness.planes.plane import DROP_CAUSES, Counters
from harness.planes.userspace.intake import Burst
from harness.planes.userspace.lateness import BUCKETS

KINDS = ("gaps", "late", "waits")
"""Kinds of bursts: late ticks, which count as one frame each; frames written late; frames that may have waited long
before they were read."""

KEPT = 1024
"""Bursts kept per kind: gaps of at least five seconds."""

_ROW = Layout(f"={14 + len(DROP_CAUSES) + len(KINDS) + 2 * BUCKETS}q")
_STAMP = Layout("=q")
_BURST = Layout("=3q")
_RINGS_AT = _ROW.size + 2 * _STAMP.size
SIZE_BYTES = _RINGS_AT + len(KINDS) * KEPT * _BURST.size


class GaugeSnapshot(Struct, frozen=True):
    """One consistent state.

    Attributes:
        at_ns: when it was published.
        idle_ns: time that the loop has slept since its start.
        lateness_max_ns: since the start, exact.
        frames_late: frames with a lateness above the limit, including late ticks.
        waited_max_ns: largest upper bound of a frame's wait before it was read, exact.
        frames_waited: frames with a bound above the limit.
        bursts: number of bursts of each kind in ``KINDS``, see ``read_bursts``.
        histogram: lateness, see ``lateness``.
        intake_histogram: upper bounds of the waits, see ``intake``.
    """

    at_ns: int
    idle_ns: int
    counters: Counters
    records_written: int
    records_dropped: int
    lateness_max_ns: int
    frames_late: int
    waited_max_ns: int
    frames_waited: int
    bursts: dict[str, int]
    histogram: tuple[int, ...]
    intake_histogram: tuple[int, ...]


def publish(memory: mmap.mmap, snapshot: GaugeSnapshot) -> None:
    """Replace the snapshot in memory."""
    counters = snapshot.counters
    (sequence,) = _STAMP.unpack_from(memory, 0)
    _STAMP.pack_into(memory, 0, sequence + 1)
    _ROW.pack_into(
        memory,
        _STAMP.size,
        snapshot.at_ns,
        snapshot.idle_ns,
        counters.frames_in,
        counters.frames_out,
        counters.bytes_in,
        counters.bytes_out,
        counters.in_flight,
        counters.frames_doubled,
        *counters.drops.values(),
        snapshot.records_written,
        snapshot.records_dropped,
        snapshot.lateness_max_ns,
        snapshot.frames_late,
        snapshot.waited_max_ns,
        snapshot.frames_waited,
        *snapshot.bursts.values(),
        *snapshot.histogram,
        *snapshot.intake_histogram,
    )
    _STAMP.pack_into(memory, _STAMP.size + _ROW.size, sequence + 1)


def read(memory: mmap.mmap) -> GaugeSnapshot:
    """Return the latest snapshot; all zeros before the first one."""
    while True:
        (before,) = _STAMP.unpack_from(memory, _STAMP.size + _ROW.size)
        row = _ROW.unpack_from(memory, _STAMP.size)
        (after,) = _STAMP.unpack_from(memory, 0)
        if before == after:
            return _snapshot(row)


def publish_burst(memory: mmap.mmap, kind: str, ordinal: int, burst: Burst) -> None:
    """Write a burst over the one that is ``KEPT`` older. ``ordinal``: number of earlier bursts of the kind."""
    _BURST.pack_into(memory, _place(kind, ordinal), *burst)


def read_bursts(memory: mmap.mmap, kind: str, first: int, end: int) -> list[Burst]:
    """Return the bursts with ordinals from ``first`` to ``end`` (excluded) that are still kept."""
    ordinals = range(max(first, end - KEPT), end)
    return [_BURST.unpack_from(memory, _place(kind, ordinal)) for ordinal in ordinals]


def _place(kind: str, ordinal: int) -> int:
    return _RINGS_AT + (KINDS.index(kind) * KEPT + ordinal % KEPT) * _BURST.size


def _snapshot(row: tuple[int, ...]) -> GaugeSnapshot:
    at_ns, idle_ns, frames_in, frames_out, bytes_in, bytes_out, in_flight, frames_doubled, *rest = row
    causes = len(DROP_CAUSES)
    drops = dict(zip(DROP_CAUSES, rest, strict=False))
    records_written, records_dropped, lateness_max_ns, frames_late, waited_max_ns, frames_waited, *rest = rest[causes:]
    bursts, histograms = dict(zip(KINDS, rest, strict=False)), tuple(rest[len(KINDS) :])
    return GaugeSnapshot(
        at_ns,
        idle_ns,
        Counters(frames_in, frames_out, bytes_in, bytes_out, drops, in_flight, frames_doubled),
        records_written,
        records_dropped,
        lateness_max_ns,
        frames_late,
        waited_max_ns,
        frames_waited,
        bursts,
        histograms[:BUCKETS],
        histograms[BUCKETS:],
    )
