"""Group packets into TCP connections: which side opened them, where their byte streams start, what they carried.

A connection is identified by its addresses, its ports and its originator's initial sequence number, so a reused port
gives a new connection. A connection that two hosts saw is two connections here, one per vantage, with the same name and
uid. If two hosts open a connection to each other at once, from the ports on which they listen, the result is one
connection (RFC 9293, section 3.5): each host answers with the sequence number of its own SYN.
"""

import hashlib
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.pcap.headers import ACK, SYN, TCP, Packets, address_text
from metrics.pcap.walk import Bools, Ints, as_slice

ORIG, RESP = 0, 1
UNKNOWN = -1

_PACKED = 1 << 62  # the number of different rows that one integer can distinguish


@dataclass
class Segments:
    """TCP packets by stream and then by time; a stream is one direction of a connection, ``2 * conn + side``."""

    row: Ints  # the row of each packet in the packets
    stream: Ints
    ts_ns: Ints
    seq: Ints
    flags: npt.NDArray[np.int16]
    payload_bytes: Ints
    stream_starts: Ints  # where each stream begins in these columns; one more entry at the end


@dataclass
class TcpConnections:
    """The connections of a capture; arrays by connection, ``base`` and ``tap`` by stream."""

    segments: Segments
    host: npt.NDArray[np.int32]
    orig: Ints
    orig_port: Ints
    resp: Ints
    resp_port: Ints
    base: Ints  # sequence number of each stream's byte 0, UNKNOWN without a handshake
    tap: npt.NDArray[np.int8]  # where each stream was seen, as in ``records``
    start_ns: Ints
    names: list[str]
    uids: list[str]
    addresses: dict[int, str]


def factorise(*columns: npt.NDArray[np.integer]) -> tuple[Ints, int]:
    """Return a dense number for every distinct row of ``columns``, in order of appearance, and how many there are.

    Columns are packed side by side into one, if their ranges allow it; columns with too many bits are numbered first.
    """
    code, size = _pack(columns[0])
    for column in columns[1:]:
        other, others = _pack(column)
        if size * others > _PACKED:
            (code, size), (other, others) = _encode(code), _encode(other)
        code, size = code * others + other, size * others
    return _encode(code)


def _pack(column: npt.NDArray[np.integer]) -> tuple[Ints, int]:
    """Return different numbers for different values, from 0 on, and how many there may be."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    if high - low >= _PACKED:
        return _encode(column)
    return np.subtract(column, low, dtype=np.int64), high - low + 1


def _encode(column: npt.NDArray[np.integer]) -> tuple[Ints, int]:
    encoded = pa.array(column).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def number_pair(one: str, other: str, count: int) -> int:
    """Return a number below ``count`` for two addresses, in either order.

    Args:
        one: an address.
        other: another address.
        count: how many numbers there are.
    """
    return zlib.crc32("-".join(sorted((one, other))).encode()) % count


def find_connections(packets: Packets) -> TcpConnections:
    """Return the TCP connections among ``packets``."""
    rows = _in_time_order(packets)
    columns, run = packets.columns, as_slice(rows)
    flow, count, upward = number_flows(packets, rows)
    seq, handshake = columns.seq[run], columns.flags[run] & (SYN | ACK)
    opening, answering = np.flatnonzero(handshake == SYN), np.flatnonzero(handshake == SYN | ACK)
    conn, count = _incarnations(flow, count, _find_reopenings(flow, upward, seq, opening, answering))

    first = first_of(conn, count)
    opener, answer = first_of(conn, count, opening), last_of(conn, count, answering)
    orig_is_low = guess_originators(packets, rows[first], upward[first])
    both = [first_of(conn, count, opening[upward[opening] == side]) for side in (False, True)]
    at_once = (both[0] >= 0) & (both[1] >= 0)
    for side, own in enumerate(both):
        opener = np.where(at_once & (orig_is_low == side), own, opener)
        answer = np.where(at_once & (orig_is_low != side), own, answer)
    orig_is_low = np.where(answer >= 0, ~upward[answer], orig_is_low)
    orig_is_low = np.where(opener >= 0, upward[opener], orig_is_low)
    src, dst = columns.src[rows[first]], columns.dst[rows[first]]
    src_port, dst_port = (each[rows[first]].astype(np.int64) for each in (columns.src_port, columns.dst_port))
    segments = _sort_by_stream(packets, rows, 2 * conn + np.where(upward == orig_is_low[conn], ORIG, RESP), 2 * count)
    forth = upward[first] == orig_is_low  # whether a connection's first packet is its originator's
    found = TcpConnections(
        segments=segments,
        host=packets.host[rows[first]],
        orig=np.where(forth, src, dst),
        orig_port=np.where(forth, src_port, dst_port),
        resp=np.where(forth, dst, src),
        resp_port=np.where(forth, dst_port, src_port),
        base=_bases(opener, answer, seq, columns.ack[run]),
        tap=_stream_taps(packets, segments, 2 * count),
        start_ns=packets.records.ts_ns[rows[first]],
        names=[],
        uids=[],
        addresses={},
    )
    _name(found, packets.ipv6)
    return found


def guess_originators(packets: Packets, first: Ints, upward: Bools) -> Bools:
    """Return whether the lower end of each flow counts as the one that began, if no handshake of one side shows it.

    The side that began is the side with the larger port; if the ports are equal, the side with the higher address. So
    both vantages agree, whichever packet each saw first.

    Args:
        packets: the packets of a capture.
        first: a packet of each flow.
        upward: whether these packets go to the higher end.
    """
    src_port, dst_port = packets.columns.src_port[first], packets.columns.dst_port[first]
    return np.where(upward, src_port > dst_port, dst_port > src_port)


def number_flows(packets: Packets, rows: Ints) -> tuple[Ints, int, Bools]:
    """Number packets by host, addresses and ports, in any direction; also return the count, and which go up.

    Directions are distinguished first: there are few, so only they need to be compared and paired.
    """
    columns = (packets.columns.src, packets.columns.src_port, packets.columns.dst, packets.columns.dst_port)
    run = as_slice(rows)
    direction, count = factorise(packets.host[run], *(each[run] for each in columns))
    first = rows[first_of(direction, count)]
    src, src_port, dst, dst_port = (each[first].astype(np.int64) for each in columns)
    upward = (src < dst) | (src == dst) & (src_port < dst_port)
    source, target = src << 16 | src_port, dst << 16 | dst_port
    flow, flows = factorise(packets.host[first], np.minimum(source, target), np.maximum(source, target))
    return flow[direction], flows, upward[direction]


def _bases(opener: Ints, answer: Ints, seq: Ints, ack: Ints) -> Ints:
    """Return the sequence number of each stream's byte 0, from a connection's SYN and its last SYN-ACK (-1: not seen).

    A program that listens again between two SYNs of one connection answers each with its own number. The last answer
    opens the connection.
    """
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


def _find_reopenings(flow: Ints, upward: Bools, seq: Ints, opening: Ints, answering: Ints) -> Ints:
    """Return the SYNs that open addresses and ports again, because they have another sequence number.

    If both sides answer with the numbers of their own SYNs, they opened at once, and no SYN opens the ports again.

    Args:
        flow: the flow of each packet.
        upward: the direction of each packet.
        seq: the sequence number of each packet.
        opening: the rows of the SYNs.
        answering: the rows of the SYN-ACKs.
    """
    order = opening[np.argsort(flow[opening], kind="stable")]
    again = (flow[order][1:] == flow[order][:-1]) & (seq[order][1:] != seq[order][:-1])
    own, _ = factorise(
        *(np.concatenate((each[order], each[answering])) for each in (flow, upward.astype(np.int64), seq))
    )
    is_met = np.isin(own[: len(order)], own[len(order) :])
    special = np.isin(flow[order], flow[order][is_met])
    reopening = order[1:][again & ~special[1:]].tolist()
    number, begun, current = -1, False, dict[bool, int]()
    for row, met in zip(order[special].tolist(), is_met[special].tolist(), strict=True):
        side = bool(upward[row])
        if flow[row] != number:
            number, begun, current = flow[row], met, {side: seq[row]}
        elif side not in current and begun and met:
            current[side] = seq[row]
        elif current.get(side) != seq[row]:
            begun, current = met, {side: seq[row]}
            reopening.append(row)
    return np.array(reopening, np.int64)


def _incarnations(flow: Ints, flows: int, reopening: Ints) -> tuple[Ints, int]:
    """Return the packets' connections: from each of some packets on, addresses and ports belong to a new one."""
    if not len(reopening):
        return flow, flows
    keys = np.sort(flow[reopening] * len(flow) + reopening)
    before_flow = np.searchsorted(keys, flow * len(flow))
    times = np.searchsorted(keys, flow * len(flow) + np.arange(len(flow)), "right") - before_flow
    return factorise(flow, times)


def first_of(group: Ints, count: int, rows: Ints | None = None) -> Ints:
    """Return the first row of each group (among ``rows``), -1 for a group without one.

    Args:
        group: (n,) the group of each row.
        count: the number of groups.
        rows: the rows to look at; None = all.
    """
    return last_of(group, count, (np.arange(len(group)) if rows is None else rows)[::-1])


def last_of(group: Ints, count: int, rows: Ints) -> Ints:
    """Return the last of ``rows`` of each group, -1 for a group without one.

    Args:
        group: (n,) the group of each row.
        count: the number of groups.
        rows: the rows to look at.
    """
    last = np.full(count, -1, np.int64)
    last[group[rows]] = rows  # the last of several assignments remains
    return last


def _sort_by_stream(packets: Packets, rows: Ints, stream: Ints, streams: int) -> Segments:
    bits = len(stream).bit_length()
    keys = np.sort(stream << bits | np.arange(len(stream)))  # unique keys: stable, and fast
    rows, stream = rows[keys & (1 << bits) - 1], keys >> bits
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
    """Return where each stream was seen; a stream without packets was seen where its other direction was not."""
    starts = segments.stream_starts
    taps = np.zeros(streams, np.int8)
    seen = starts[1:] > starts[:-1]
    taps[seen] = packets.tap[segments.row[starts[:-1][seen]]]
    opposite = np.array([0, 2, 1], np.int8)[taps.reshape(-1, 2)[:, ::-1].ravel()]
    return np.where(seen, taps, opposite)


def _name(connections: TcpConnections, ipv6: list[bytes]) -> None:
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
