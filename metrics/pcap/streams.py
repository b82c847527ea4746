"""Reassemble all TCP streams of a capture at once, without their bytes.

Sequence numbers are unwrapped to stream offsets, and all streams are laid side by side on one axis, so that every step
is one NumPy call for any number of streams. The segments' ends cut the axis into elementary intervals. Each interval
belongs to the segment that brought it first; a running maximum of first arrivals along a stream is the instant at which
a receiver could have read up to there.
"""

from dataclasses import dataclass

import numpy as np

from metrics.pcap.flows import UNKNOWN, Segments
from metrics.pcap.headers import SYN
from metrics.pcap.walk import Bools, Ints

_SAFE = 1 << 61


@dataclass
class Streams:
    """The streams' bytes by interval, in order; positions are on the common axis (``axis[stream] + offset``)."""

    axis: Ints  # where each stream's byte 0 lies
    extent: Ints  # how far the bytes of each reach (offsets, not positions on the axis)
    start: Ints  # the elementary intervals that arrived: where each begins ...
    end: Ints  # ... and ends
    first_ns: Ints  # when each was first seen
    available_ns: Ints  # when it and all before it in its stream had been seen; meaningless if not ``reachable``
    reachable: Bools  # whether all bytes before it were seen
    gaps: Ints  # number of holes before each interval, over all streams; equal numbers mean no hole between two
    owner: Ints  # index into ``payload`` of the segment that brought it
    payload: Ints  # the segments (rows of ``Segments``) with payload in their stream
    position: Ints  # where their first byte lies
    length: Ints  # how many bytes they carry
    new_bytes: Ints  # how many bytes that had not been seen each of them brought
    lost: Ints  # segments with payload before their stream's beginning: they belong to an older connection

    @property
    def retransmits(self) -> Bools:
        """Whether each segment of ``payload`` repeated bytes that had been seen."""
        return self.new_bytes < self.length

    def interval_at(self, position: Ints) -> tuple[Ints, Bools]:
        """Return the interval that holds each position, and whether one does."""
        index = np.maximum(np.searchsorted(self.start, position, "right") - 1, 0)
        if not len(self.start):
            return index, np.zeros(len(index), np.bool_)
        return index, (self.start[index] <= position) & (position < self.end[index])


def reassemble(segments: Segments, base: Ints) -> Streams:
    """Return the streams of ``segments``; ``base`` is the sequence number of byte 0 of each, or UNKNOWN.

    A stream of unknown base starts at its lowest sequence number.
    """
    offset = _unwrap(segments, base)
    rows = np.flatnonzero(segments.payload_bytes > 0)
    inside = offset[rows] >= 0
    payload, lost = rows[inside], rows[~inside]
    stream, length = segments.stream[payload], segments.payload_bytes[payload]
    offset = offset[payload]
    heads = np.flatnonzero(np.diff(stream, prepend=-1))
    extent = np.zeros(len(base), np.int64)
    if len(heads):
        extent[stream[heads]] = np.maximum.reduceat(offset + length, heads)
    axis = np.concatenate(([0], np.cumsum(extent + 1)))[:-1]  # one position between streams belongs to none
    position = axis[stream] + offset
    start, end, owner = _elementary_intervals(position, position + length)
    first_ns = segments.ts_ns[payload[owner]]
    interval_stream = stream[owner]
    opens = np.concatenate(([True], interval_stream[1:] != interval_stream[:-1]))[: len(start)]
    hole = np.where(opens, start > axis[interval_stream], np.concatenate(([0], end[:-1]))[: len(start)] < start)
    gaps = np.cumsum(hole)
    before = np.concatenate(([0], gaps))[:-1][opens] if len(start) else gaps
    group = np.cumsum(opens) - 1
    return Streams(
        axis=axis,
        extent=extent,
        start=start,
        end=end,
        first_ns=first_ns,
        available_ns=_running_max(first_ns, group),
        reachable=gaps == before[group],
        gaps=gaps,
        owner=owner,
        payload=payload,
        position=position,
        length=length,
        new_bytes=np.bincount(owner, end - start, len(payload)).astype(np.int64),
        lost=lost,
    )


def _unwrap(segments: Segments, base: Ints) -> Ints:
    """Return the stream offsets of the segments' first payload bytes: differences of 32-bit numbers, summed up.

    The result is right if two successive segments of a stream are less than 2 GiB apart. A SYN takes one number. Its
    payload starts with byte 0, whatever its number: SYN-ACKs of one connection may differ (``flows``).
    """
    syn, bases = (segments.flags & SYN) != 0, base[segments.stream]
    seq: Ints = np.where(syn & (bases != UNKNOWN), bases, segments.seq + syn)
    if not len(seq):
        return seq
    starts = segments.stream_starts
    used = np.flatnonzero(starts[1:] > starts[:-1])
    heads = starts[:-1][used]
    known = base[used] != UNKNOWN
    step = np.diff(seq, prepend=seq[:1])
    step[heads] = np.where(known, seq[heads] - base[used], 0)
    step = (step + (1 << 31) & 0xFFFFFFFF) - (1 << 31)
    total = np.cumsum(step)
    counts = np.diff(np.append(heads, len(seq)))
    offset: Ints = total - np.repeat(total[heads] - step[heads], counts)
    if not known.all():
        # Only packets with payload count: a keep-alive's number lies before the first byte.
        relevant = np.where(segments.payload_bytes > 0, offset, np.iinfo(np.int64).max)
        lowest = np.minimum.reduceat(relevant, heads)
        offset = offset - np.repeat(np.where(known | (lowest == np.iinfo(np.int64).max), 0, lowest), counts)
    return offset


def _elementary_intervals(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut the union of the segments [start, end) at all their ends: (starts, ends, first segment of each)."""
    if (start[1:] >= end[:-1]).all():
        return start, end, np.arange(len(start))
    apart = np.flatnonzero(np.append(end[:-1] != start[1:], True))  # where the next one does not start at the end
    points = np.sort(np.concatenate((start, end[apart])))  # and not np.unique, which hashes: five times slower
    points = points[np.diff(points, prepend=-1) != 0]
    low = np.searchsorted(points, start)
    high = np.roll(low, -1)
    high[apart] = np.searchsorted(points, end[apart])
    pieces = high - low
    segment = np.repeat(np.arange(len(start)), pieces)
    piece = np.arange(len(segment)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + low[segment]
    owner = np.full(len(points), -1, np.int64)
    owner[piece[::-1]] = segment[::-1]  # the last assignment remains: the first segment in time
    covered = np.flatnonzero(owner >= 0)
    return points[covered], points[covered + 1] if len(covered) else points[:0], owner[covered]


def _running_max(values: Ints, group: Ints) -> Ints:
    """Return the running maximum within each group (groups are numbered upwards and contiguous)."""
    if not len(values):
        return values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span * (int(group[-1]) + 1) < _SAFE:
        raised: Ints = values - low + group * span  # each group lies above the one before it
        return np.maximum.accumulate(raised) - group * span + low
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.concatenate([np.maximum.accumulate(part) for part in np.split(values, starts[1:])])
