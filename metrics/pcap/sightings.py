"""Find when located frames were seen at their vantage, in how many packets, and over which seconds."""

from typing import Final

import numpy as np
import pyarrow as pa

from metrics.pcap.flows import TcpConnections, factorise, first_of
from metrics.pcap.frames import DIRECTIONS, Located
from metrics.pcap.records import RX, TAPS, host_column
from metrics.pcap.schemas import FRAMES, SPANS
from metrics.pcap.streams import Streams
from metrics.pcap.walk import Ints

SECOND_NS: Final = 10**9


def sight(located: Located, connections: TcpConnections, streams: Streams, origin_ns: int) -> tuple[pa.Table, pa.Table]:
    """Return the tables ``frames`` and ``spans``. A frame with a byte that was not seen has no row.

    At a receiver (tap "rx"), a frame counts as seen only if all frames before it in its stream were seen, too.

    Args:
        located: where the frames are.
        connections: the connections of this capture.
        streams: the streams of this capture.
        origin_ns: the instant at which the one-second buckets start.
    """
    rows, first, last = _seen(located, connections, streams)
    stream, length, off = located.stream[rows], located.len_bytes[rows], located.off[rows]
    position = streams.axis[stream] + off
    in_order = connections.tap[stream] == RX
    (frame, at_ns, span_bytes), n_seconds = _spans(streams, position, length, first, last, origin_ns)
    n_segments, n_retx = _count_segments(streams, position, length)
    taken = pa.array(rows)
    identity = identify_streams(connections, stream) | {"off": pa.array(off)}
    columns = identity | {
        "len_bytes": pa.array(length),
        "kind": located.kind.take(taken),
        "topics": located.topics.take(taken),
        "message_id": located.message_id.take(taken),
        "t_first_ns": pa.array(streams.first_ns[first]),
        "t_last_ns": pa.array(np.where(in_order, streams.available_ns[last], streams.first_ns[last])),
        "n_segments": pa.array(n_segments, pa.int32()),
        "n_retx": pa.array(n_retx, pa.int32()),
        "n_seconds": pa.array(n_seconds, pa.int32()),
    }
    spans = {name: column.take(pa.array(frame)) for name, column in identity.items()}
    spans |= {"at_ns": pa.array(at_ns), "span_bytes": pa.array(span_bytes)}
    return (
        pa.table([columns[name] for name in FRAMES.names], schema=FRAMES),
        pa.table([spans[name] for name in SPANS.names], schema=SPANS),
    )


def _seen(located: Located, connections: TcpConnections, streams: Streams) -> tuple[Ints, Ints, Ints]:
    """Return the frames all of whose bytes were seen, with the intervals that hold their first and last byte."""
    stream, length = located.stream, located.len_bytes
    position = streams.axis[stream] + located.off
    first, first_seen = streams.interval_at(position)
    last, last_seen = streams.interval_at(position + length - 1)
    seen = (located.off >= 0) & (length > 0) & (located.off + length <= streams.extent[stream]) & first_seen & last_seen
    if len(streams.start):
        seen &= streams.gaps[first] == streams.gaps[last]
        seen &= (connections.tap[stream] != RX) | streams.reachable[last]
    rows = np.flatnonzero(seen)
    return rows, first[rows], last[rows]


def identify_streams(connections: TcpConnections, stream: Ints) -> dict[str, pa.Array]:
    """Return whose bytes each stream has, and where it was seen: columns that all tables of frames have."""
    conn = pa.array(stream // 2)
    return {
        "uid": pa.array(connections.uids, pa.string()).take(conn),
        "conn": pa.array(connections.names, pa.string()).take(conn),
        "direction": pa.array(DIRECTIONS).take(pa.array(stream % 2)),
        "vantage_host": host_column(connections.host).take(conn),
        "tap": pa.array(TAPS).take(pa.array(connections.tap[stream].astype(np.int64))),
    }


def _count_segments(streams: Streams, position: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Count the segments that touch each frame, and the segments among them that repeat bytes."""
    counts = []
    for some in (slice(None), streams.retransmits):
        start, length_of = streams.position[some], streams.length[some]
        begun = np.searchsorted(np.sort(start), position + length, "left")
        counts.append(begun - np.searchsorted(np.sort(start + length_of), position, "right"))
    return counts[0], counts[1]


def _spans(
    streams: Streams, position: Ints, length: Ints, first: Ints, last: Ints, origin_ns: int
) -> tuple[tuple[Ints, Ints, Ints], Ints]:
    """Return frames with bytes first seen in several seconds, as (frame, second, bytes); and the seconds by frame."""
    second = (streams.first_ns - origin_ns) // SECOND_NS
    changes = np.cumsum(np.diff(second, prepend=second[:1]) != 0)
    several = np.flatnonzero(changes[first] != changes[last]) if len(second) else first
    pieces = last[several] - first[several] + 1
    frame = np.repeat(several, pieces)
    interval = np.arange(len(frame)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[frame]
    size = np.minimum(streams.end[interval], position[frame] + length[frame])
    size = size - np.maximum(streams.start[interval], position[frame])
    group, groups = factorise(frame, second[interval])
    head = first_of(group, groups)
    span_bytes = np.bincount(group, size, groups).astype(np.int64)
    n_seconds = np.ones(len(position), np.int64)
    n_seconds[several] = 0
    np.add.at(n_seconds, frame[head], 1)
    return (frame[head], second[interval[head]] * SECOND_NS + origin_ns, span_bytes), n_seconds
