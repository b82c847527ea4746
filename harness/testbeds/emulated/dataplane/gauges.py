"""The forwarding process's counts in shared memory, so that whoever reads them never disturbs it.

A sequence number before and after the values tells a reader that it met a writer at work; it reads again then.
Behind them is a ring of the latest gaps, times in which the loop stood still: they are written as they happen, before
the snapshot that counts them.
"""

from __future__ import annotations

import mmap
from struct import Struct as Layout

from msgspec import Struct

from harness.testbeds.emulated.dataplane.lateness import BUCKETS
from harness.testbeds.emulated.plane import DROP_CAUSES, Counters

_ROW = Layout(f"={11 + len(DROP_CAUSES) + BUCKETS}q")
_STAMP = Layout("=q")
_GAP = Layout("=2q")
_GAPS_AT = _ROW.size + 2 * _STAMP.size
GAPS = 1024
"""Gaps that are kept: of one second at least five times as many as it can have."""

SIZE_BYTES = _GAPS_AT + GAPS * _GAP.size


class Snapshot(Struct, frozen=True):
    """One consistent state.

    Attributes:
        at_ns: when it was published.
        idle_ns: time that the loop has slept since its start.
        lateness_max_ns: over the whole life, exact.
        gaps: how often the loop stood still, see ``read_gaps``.
        histogram: lateness, see ``lateness``.
    """

    at_ns: int
    idle_ns: int
    counters: Counters
    records_written: int
    records_dropped: int
    lateness_max_ns: int
    gaps: int
    histogram: tuple[int, ...]


def publish(memory: mmap.mmap, snapshot: Snapshot) -> None:
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
        *counters.drops.values(),
        snapshot.records_written,
        snapshot.records_dropped,
        snapshot.lateness_max_ns,
        snapshot.gaps,
        *snapshot.histogram,
    )
    _STAMP.pack_into(memory, _STAMP.size + _ROW.size, sequence + 1)


def read(memory: mmap.mmap) -> Snapshot:
    """The latest snapshot; all zeros before the first one."""
    while True:
        (before,) = _STAMP.unpack_from(memory, _STAMP.size + _ROW.size)
        row = _ROW.unpack_from(memory, _STAMP.size)
        (after,) = _STAMP.unpack_from(memory, 0)
        if before == after:
            return _snapshot(row)


def publish_gap(memory: mmap.mmap, ordinal: int, start_ns: int, end_ns: int) -> None:
    """Keep a gap in place of the one that is ``GAPS`` older. ``ordinal``: how many were before it."""
    _GAP.pack_into(memory, _GAPS_AT + ordinal % GAPS * _GAP.size, start_ns, end_ns)


def read_gaps(memory: mmap.mmap, first: int, end: int) -> list[tuple[int, int]]:
    """The gaps of these ordinals, start and end in ns, that are still kept."""
    ordinals = range(max(first, end - GAPS), end)
    gaps = (_GAP.unpack_from(memory, _GAPS_AT + ordinal % GAPS * _GAP.size) for ordinal in ordinals)
    return [(start_ns, end_ns) for start_ns, end_ns in gaps]


def _snapshot(row: tuple[int, ...]) -> Snapshot:
    at_ns, idle_ns, frames_in, frames_out, bytes_in, bytes_out, in_flight, *rest = row
    causes = len(DROP_CAUSES)
    drops = dict(zip(DROP_CAUSES, rest, strict=False))
    records_written, records_dropped, lateness_max_ns, gaps, *histogram = rest[causes:]
    counters = Counters(frames_in, frames_out, bytes_in, bytes_out, drops, in_flight)
    return Snapshot(at_ns, idle_ns, counters, records_written, records_dropped, lateness_max_ns, gaps, tuple(histogram))
