"""Find frames of some kinds, with their bytes, by the frame headers that captures kept, without traces.

All streams are walked at once, one frame of each at a time: from a frame's header to the next one's. If the next header
of a stream was not captured, the walk of this stream ends. It is then unknown which frames follow, and the table says
so.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.pcap.flows import UNKNOWN, TcpConnections
from metrics.pcap.headers import Packets
from metrics.pcap.records import RX
from metrics.pcap.schemas import CONTROLS
from metrics.pcap.sightings import identify_streams
from metrics.pcap.streams import Streams
from metrics.pcap.walk import Bools, Bytes, Ints, gather
from peer import wire

_HEADER: Final = np.dtype(
    {
        "names": ["magic", "version", "kind", "length", "topics"],
        "formats": [">u2", "u1", "u1", ">u4", "u1"],
        "offsets": [0, 2, 3, 4, 18],
        "itemsize": wire.HEADER_BYTES,
    }
)
"""The offset of a field in a frame; see ``peer.wire``."""

_NO_KIND: Final = -1


def find_controls(connections: TcpConnections, streams: Streams, packets: Packets, kinds: Collection[int]) -> pa.Table:
    """Return the table ``controls``: one row per frame of these kinds, and one per stream with an incomplete walk.

    If a stream stops being frames (see ``peer.wire``), it ends there, as it does for a peer. A frame that its sender
    did not finish has no row.

    Args:
        connections: the connections of the capture.
        streams: their streams.
        packets: their packets, with the bytes that the capture kept.
        kinds: the kinds of frames to find.
    """
    kept = _Kept(connections, streams, packets)
    stream, at, length, kind = _walk(connections, streams, kept, kinds)
    known = kind != _NO_KIND
    last, _ = streams.interval_at(at + np.maximum(length, 1) - 1)
    at_ns = np.where(connections.tap[stream] == RX, streams.available_ns[last], streams.first_ns[last])
    frames = [
        kept.read(first, size) if size else None for first, size in zip(at.tolist(), length.tolist(), strict=True)
    ]
    columns = identify_streams(connections, stream) | {
        "off": pa.array(at - streams.axis[stream]),
        "kind": pa.array(kind, pa.int16(), mask=~known),
        "at_ns": pa.array(at_ns, mask=~known),
        "frame": pa.array(frames, pa.binary()),
    }
    return pa.table([columns[name] for name in CONTROLS.names], schema=CONTROLS)


class _Kept:
    """The bytes of the streams that the capture kept; positions are on the axis of ``Streams``."""

    def __init__(self, connections: TcpConnections, streams: Streams, packets: Packets) -> None:
        owner, records = streams.owner, packets.records
        packet = connections.segments.row[streams.payload][owner]
        payload_start = packets.columns.payload_start[packet]
        skipped = streams.start - streams.position[owner]
        room = records.start[packet] + records.cap_bytes[packet] - payload_start - skipped
        self._start = streams.start
        self._end: Ints = streams.start + np.clip(room, 0, streams.end - streams.start)
        self._source: Ints = payload_start + skipped
        self._data: Bytes = records.data

    def headers(self, at: Ints, index: Ints) -> tuple[npt.NDArray[np.void], Bools]:
        """Return the frame headers at these positions, in these intervals, and which of them the capture kept."""
        found = np.zeros(len(at), _HEADER)
        known = at + wire.HEADER_BYTES <= self._end[index]
        place = index[known]
        found[known] = gather(self._data, self._source[place] + at[known] - self._start[place], _HEADER)
        for row in np.flatnonzero(~known).tolist():  # few: in two packets, or cut
            header = self.read(int(at[row]), wire.HEADER_BYTES)
            if header is not None:
                found[row], known[row] = np.frombuffer(header, _HEADER)[0], True
        return found, known

    def read(self, at: int, length: int) -> bytes | None:
        """Return ``length`` bytes from a position on; None if one of them was not kept."""
        pieces, end = [], at + length
        index = int(np.searchsorted(self._start, at, "right")) - 1
        while at < end:
            if not 0 <= index < len(self._end) or not self._start[index] <= at < self._end[index]:
                return None
            stop = min(end, int(self._end[index]))
            first = int(self._source[index] + at - self._start[index])
            pieces.append(self._data[first : first + stop - at].tobytes())
            at, index = stop, index + 1
        return b"".join(pieces)


def _walk(
    connections: TcpConnections, streams: Streams, kept: _Kept, kinds: Collection[int]
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the stream, position, length and kind of each wanted frame; ``_NO_KIND`` where a walk ends early.

    A receiver reads nothing after a gap.
    """
    wanted = np.zeros(256, np.bool_)
    wanted[list(kinds)] = True
    stream = np.flatnonzero(streams.extent >= wire.HEADER_BYTES)
    at = streams.axis[stream]
    known = connections.base[stream] != UNKNOWN
    found = [(at[:0],) * 4]
    while len(stream):
        is_read = connections.tap[stream] == RX
        index, seen = streams.interval_at(at)
        header, kept_whole = kept.headers(at, index)
        known &= seen & kept_whole
        length, kind = header["length"].astype(np.int64), header["kind"].astype(np.int64)
        end = streams.axis[stream] + streams.extent[stream]
        least = wire.HEADER_BYTES + 4 * header["topics"].astype(np.int64) + 1
        sound = known & (header["magic"] == wire.MAGIC) & (header["version"] == wire.VERSION)
        sound &= (least <= length) & (length <= wire.MAX_FRAME_BYTES) & (at + length <= end)
        last, ends = streams.interval_at(at + length - 1)
        lost = ~known | (sound & is_read & ~(ends & streams.reachable[last]))
        sound &= ~lost
        chosen = lost | (sound & wanted[kind])
        found.append(
            (stream[chosen], at[chosen], np.where(lost, 0, length)[chosen], np.where(lost, _NO_KIND, kind)[chosen])
        )
        at = at + length
        goes_on = sound & (at + wire.HEADER_BYTES <= end)
        stream, at, known = stream[goes_on], at[goes_on], known[goes_on]
    stream, at, length, kind = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return stream, at, length, kind
