"""Find overlay frames on reassembled streams: by the payload, or by the stream offsets in the peers' traces."""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.flows import UNKNOWN, TcpConnections, factorise
from metrics.pcap.headers import Packets
from metrics.pcap.schemas import FRAMES
from metrics.pcap.streams import Streams
from metrics.pcap.walk import Ints
from peer import wire
from peer.core.frames import Data

DIRECTIONS: Final = ("orig", "resp")


@dataclass
class Located:
    """Frames as places in streams, with what is known of each frame: columns of equal length."""

    stream: Ints
    off: Ints
    len_bytes: Ints
    kind: pa.Array
    topics: pa.Array
    message_id: pa.Array


def locate_traced(connections: TcpConnections, traced: pa.Table) -> Located:
    """Locate the traced frames (``schemas.TRACED``) on every vantage's streams of their connection.

    If several connections have one name, a frame belongs to the last one that had begun when it was sent. Connections
    whose handshake was not captured are left out: without their first sequence number, offsets have no meaning.
    """
    names = pa.array(connections.names, pa.string())
    unique = names.unique()
    number = pc.index_in(names, unique).to_numpy().astype(np.int64)
    traced_number = pc.fill_null(pc.index_in(traced["conn"], unique), -1).to_numpy().astype(np.int64)
    ts_ns = traced["ts_ns"].to_numpy()
    rows, conns = [], []
    for of_number, start_ns, conn in _vantages(connections, number, len(unique)):
        mine = np.flatnonzero(traced_number >= 0)
        chosen = _latest_begun(of_number, start_ns, traced_number[mine], ts_ns[mine])
        rows.append(mine[chosen >= 0])
        conns.append(conn[chosen[chosen >= 0]])
    row = np.concatenate(rows) if rows else np.empty(0, np.int64)
    direction = pc.index_in(traced["direction"], pa.array(DIRECTIONS)).fill_null(0).to_numpy().astype(np.int64)
    stream = 2 * np.concatenate(conns) + direction[row] if conns else row
    known = connections.base[stream] != UNKNOWN
    row, stream = row[known], stream[known]
    taken = traced.select(["off", "len_bytes", "kind", "topics", "message_id"]).take(pa.array(row)).combine_chunks()
    columns = {name: taken[name].combine_chunks() for name in taken.column_names}
    return Located(
        stream,
        columns["off"].to_numpy(),
        columns["len_bytes"].to_numpy(),
        columns["kind"],
        columns["topics"],
        columns["message_id"],
    )


def _vantages(connections: TcpConnections, number: Ints, names: int) -> list[tuple[Ints, Ints, Ints]]:
    """Divide connections into layers in which a name occurs once per vantage; each layer is (name, start, index).

    Every layer is sorted by name and start.
    """
    if not names:
        return []
    order = np.lexsort((connections.start_ns, connections.host, number))
    pair, _ = factorise(number[order], connections.host[order])
    new_pair = np.diff(pair, prepend=-1) != 0
    pairs_so_far = np.cumsum(new_pair)
    new_name = np.diff(number[order], prepend=-1) != 0
    layer = pairs_so_far - pairs_so_far[new_name][np.cumsum(new_name) - 1]
    layers = [order[layer == each] for each in range(int(layer.max()) + 1)]
    return [(number[each], connections.start_ns[each], each) for each in layers]


def _latest_begun(of_number: Ints, start_ns: Ints, wanted: Ints, ts_ns: Ints) -> Ints:
    """Return for each wanted name and instant its last connection begun by then, else its first; -1 for none."""
    first = np.searchsorted(of_number, wanted, "left")
    last = np.searchsorted(of_number, wanted, "right")
    chosen = np.where(last > first, first, -1)
    for step in range(1, int((last - first).max(initial=0))):
        later = np.minimum(first + step, len(start_ns) - 1)
        chosen = np.where((first + step < last) & (start_ns[later] <= ts_ns), later, chosen)
    return chosen


def locate_in_payload(connections: TcpConnections, streams: Streams, packets: Packets) -> Located:
    """Locate the frames in the captured payload of each stream, from its start to the first byte that is missing.

    If a stream stops being frames (see ``peer.wire``), it ends there, as it does for a peer.

    Args:
        connections: the connections of the capture.
        streams: their streams.
        packets: their packets, with payload.
    """
    payload_row = connections.segments.row[streams.payload]
    file_at = packets.columns.payload_start[payload_row]
    records = packets.records
    kept = records.start[payload_row] + records.cap_bytes[payload_row] - file_at
    owner = streams.owner
    skipped = streams.start - streams.position[owner]
    length = np.minimum(streams.end - streams.start, np.maximum(kept[owner] - skipped, 0))
    cut = length < streams.end - streams.start
    source = file_at[owner] + skipped
    bounds = np.searchsorted(streams.start, np.append(streams.axis, np.iinfo(np.int64).max))
    data = records.data.data
    walked = _Walked()
    for stream in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
        first, last = int(bounds[stream]), int(bounds[stream + 1])
        usable = streams.reachable[first:last] & (np.cumsum(cut[first:last]) - cut[first:last] == 0)
        pieces = zip(source[first:last][usable].tolist(), length[first:last][usable].tolist(), strict=True)
        walked.add(stream, b"".join([data[at : at + size] for at, size in pieces]))
    return walked.located()


class _Walked:
    """Collects the frames of one stream after the other."""

    def __init__(self) -> None:
        self._stream: list[int] = []
        self._off: list[int] = []
        self._len_bytes: list[int] = []
        self._kind: list[int] = []
        self._message_id: list[int | None] = []
        self._topics: list[tuple[int, ...]] = []

    def add(self, stream: int, data: bytes) -> None:
        """Walk the headers of ``data``, the beginning of a stream."""
        at = 0
        unpack = wire.HEADER.unpack_from
        while at + wire.HEADER_BYTES <= len(data):
            magic, version, kind, length, message_id, _, _, topics, _ = unpack(data, at)
            least = wire.HEADER_BYTES + 4 * topics + 1
            if magic != wire.MAGIC or version != wire.VERSION or not least <= length <= wire.MAX_FRAME_BYTES:
                return
            if at + length > len(data):
                return
            self._stream.append(stream)
            self._off.append(at)
            self._len_bytes.append(length)
            self._kind.append(kind)
            self._message_id.append(_signed(message_id) if kind == Data.kind else None)
            self._topics.append(struct.unpack_from(f">{topics}I", data, at + wire.HEADER_BYTES) if topics else ())
            at += length

    def located(self) -> Located:
        return Located(
            np.array(self._stream, np.int64),
            np.array(self._off, np.int64),
            np.array(self._len_bytes, np.int64),
            pa.array(self._kind, FRAMES.field("kind").type),
            pa.array(self._topics, FRAMES.field("topics").type),
            pa.array(self._message_id, pa.int64()),
        )


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
