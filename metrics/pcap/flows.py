"""Packets to TCP connections: who opened them, where their byte streams start, what they carried.

A connection is its addresses, its ports and its originator's initial sequence number, so that a reused port is a new
connection. One seen by two hosts is two connections here, one a vantage, with the same name and uid.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.pcap.headers import ACK, SYN, TCP, Packets, address_text
from metrics.pcap.walk import Ints

ORIG, RESP = 0, 1
UNKNOWN = -1


@dataclass
class Segments:
    """TCP packets, sorted by stream and then by time: a stream is one direction of a connection, ``2 * conn + side``.

    Attributes:
        row: each one's row in the packets.
        stream_starts: where each stream begins in these columns; one more entry at the end.
    """

    row: Ints
    stream: Ints
    ts_ns: Ints
    seq: Ints
    flags: npt.NDArray[np.int16]
    payload_bytes: Ints
    stream_starts: Ints


@dataclass
class Connections:
    """The connections of a capture; arrays by connection, ``base`` and ``tap`` by stream.

    Attributes:
        first: each connection's first packet's row.
        base: sequence number of each stream's byte 0, UNKNOWN where no handshake says it.
        tap: where each stream was seen, as in ``records``.
    """

    segments: Segments
    host: npt.NDArray[np.int32]
    orig: Ints
    orig_port: Ints
    resp: Ints
    resp_port: Ints
    base: Ints
    tap: npt.NDArray[np.int8]
    start_ns: Ints
    names: list[str]
    uids: list[str]
    addresses: dict[int, str]


def factorise(*columns: npt.NDArray[np.integer]) -> tuple[Ints, int]:
    """A dense number for every distinct row of ``columns``, in order of appearance, and how many there are."""
    code, count = _encode(columns[0])
    for column in columns[1:]:
        other, others = _encode(column)
        code, count = _encode(code * others + other)
    return code, count


def _encode(column: npt.NDArray[np.integer]) -> tuple[Ints, int]:
    encoded = pa.array(column).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def find_connections(packets: Packets) -> Connections:
    """The TCP connections among ``packets``."""
    rows = _in_time_order(packets)
    columns = packets.columns
    src, dst = columns.src[rows], columns.dst[rows]
    src_port, dst_port = columns.src_port[rows].astype(np.int64), columns.dst_port[rows].astype(np.int64)
    upward = (src < dst) | (src == dst) & (src_port < dst_port)
    low, high = np.where(upward, src, dst), np.where(upward, dst, src)
    low_port, high_port = np.where(upward, src_port, dst_port), np.where(upward, dst_port, src_port)
    flow, _ = factorise(packets.host[rows] + 1, low, high, low_port << 16 | high_port)
    seq, handshake = columns.seq[rows], columns.flags[rows] & (SYN | ACK)
    opening, answering = np.flatnonzero(handshake == SYN), np.flatnonzero(handshake == SYN | ACK)
    conn, count = factorise(flow, _incarnations(flow, opening, seq))

    first = _first_of(conn, count)
    opener, answer = _first_of(conn, count, opening), _first_of(conn, count, answering)
    # Without a handshake the side with the larger port is taken for the originator: both vantages agree on that.
    orig_is_low = np.where(answer >= 0, ~upward[answer], (low_port > high_port)[first])
    orig_is_low = np.where(opener >= 0, upward[opener], orig_is_low)
    segments = _sort_by_stream(packets, rows, 2 * conn + np.where(upward == orig_is_low[conn], ORIG, RESP), 2 * count)
    found = Connections(
        segments=segments,
        host=packets.host[rows[first]],
        orig=np.where(orig_is_low, low[first], high[first]),
        orig_port=np.where(orig_is_low, low_port[first], high_port[first]),
        resp=np.where(orig_is_low, high[first], low[first]),
        resp_port=np.where(orig_is_low, high_port[first], low_port[first]),
        base=_bases(opener, answer, seq, columns.ack[rows]),
        tap=_stream_taps(packets, segments, 2 * count),
        start_ns=packets.records.ts_ns[rows[first]],
        names=[],
        uids=[],
        addresses={},
    )
    _name(found, packets.ipv6)
    return found


def _bases(opener: Ints, answer: Ints, seq: Ints, ack: Ints) -> Ints:
    """The sequence number of each stream's byte 0, from the connections' SYN and SYN-ACK (-1: not seen)."""
    base = np.full(2 * len(opener), UNKNOWN, np.int64)
    base[RESP::2] = np.where(answer >= 0, seq[answer] + 1 & 0xFFFFFFFF, UNKNOWN)
    base[ORIG::2] = np.where(answer >= 0, ack[answer], UNKNOWN)
    base[ORIG::2] = np.where(opener >= 0, seq[opener] + 1 & 0xFFFFFFFF, base[ORIG::2])
    return base


def _in_time_order(packets: Packets) -> Ints:
    rows = np.flatnonzero(packets.columns.nature == TCP)
    ts_ns = packets.records.ts_ns[rows]
    if (ts_ns[1:] < ts_ns[:-1]).any():
        rows = rows[np.argsort(ts_ns, kind="stable")]
    return rows


def _incarnations(flow: Ints, opening: Ints, seq: Ints) -> Ints:
    """For every packet, how often its addresses and ports had been reopened with another sequence number before."""
    order = opening[np.argsort(flow[opening], kind="stable")]
    again = (flow[order][1:] == flow[order][:-1]) & (seq[order][1:] != seq[order][:-1])
    reopening = order[1:][again]
    if not len(reopening):
        return np.zeros(len(flow), np.int64)
    keys = np.sort(flow[reopening] * len(flow) + reopening)
    before_flow = np.searchsorted(keys, flow * len(flow))
    return np.searchsorted(keys, flow * len(flow) + np.arange(len(flow)), "right") - before_flow


def _first_of(group: Ints, count: int, rows: Ints | None = None) -> Ints:
    """The first row of each group (among ``rows``), -1 for a group without one."""
    rows = np.arange(len(group)) if rows is None else rows
    first = np.full(count, -1, np.int64)
    first[group[rows[::-1]]] = rows[::-1]  # of several assignments the last stays, which is the first row
    return first


def _sort_by_stream(packets: Packets, rows: Ints, stream: Ints, streams: int) -> Segments:
    order = np.sort(stream * len(stream) + np.arange(len(stream))) % max(
        len(stream), 1
    )  # unique keys: stable, and fast
    rows, stream = rows[order], stream[order]
    columns = packets.columns
    return Segments(
        row=rows,
        stream=stream,
        ts_ns=packets.records.ts_ns[rows],
        seq=columns.seq[rows],
        flags=columns.flags[rows],
        payload_bytes=columns.payload_bytes[rows].astype(np.int64),
        stream_starts=np.searchsorted(stream, np.arange(streams + 1)),
    )


def _stream_taps(packets: Packets, segments: Segments, streams: int) -> npt.NDArray[np.int8]:
    """A stream without packets is seen where its other direction is not."""
    starts = segments.stream_starts
    taps = np.zeros(streams, np.int8)
    seen = starts[1:] > starts[:-1]
    taps[seen] = packets.tap[segments.row[starts[:-1][seen]]]
    opposite = np.array([0, 2, 1], np.int8)[taps.reshape(-1, 2)[:, ::-1].ravel()]
    return np.where(seen, taps, opposite)


def _name(connections: Connections, ipv6: list[bytes]) -> None:
    addresses = connections.addresses
    for each in np.unique(np.concatenate((connections.orig, connections.resp))).tolist():
        addresses[each] = address_text(each, ipv6)
    columns = (
        connections.orig,
        connections.orig_port,
        connections.resp,
        connections.resp_port,
        connections.base[ORIG::2],
    )
    for orig, orig_port, resp, resp_port, base in zip(*(each.tolist() for each in columns), strict=True):
        name = f"{addresses[orig]}:{orig_port}-{addresses[resp]}:{resp_port}"
        connections.names.append(name)
        connections.uids.append("C" + hashlib.blake2b(f"{name}/{base}".encode(), digest_size=9).hexdigest())
