"""Summarise a capture: its connections, its bytes per second, its interfaces."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.pcap.flows import ORIG, RESP, Segments, TcpConnections, factorise, first_of
from metrics.pcap.headers import ACK, FIN, FRAGMENT, NOT_UNDERSTOOD, OTHER_IP, RST, SYN, TCP, UDP, Packets
from metrics.pcap.records import TAPS, Interface, host_column
from metrics.pcap.schemas import CAPTURES, CONNS, WIRE
from metrics.pcap.sightings import SECOND_NS
from metrics.pcap.streams import Streams
from metrics.pcap.walk import Bools, Ints

_PROTO_TCP = 6
_NEVER = np.iinfo(np.int64).max
_LETTERS = "SHADFR"  # in Zeek's history: SYN, SYN with ACK, pure ACK, data, FIN, RST; lower case = the responder's


def summarise_connections(connections: TcpConnections, streams: Streams, packets: Packets) -> pa.Table:
    """Return the table ``conns``: byte counts by sequence numbers; ``missed_bytes`` are the gaps in both directions.

    Args:
        connections: the connections of the capture.
        streams: their streams.
        packets: their packets.
    """
    segments, count = connections.segments, len(connections.names)
    packets_of = np.diff(segments.stream_starts)
    ip_bytes = _total(segments.stream, packets.columns.ip_bytes[segments.row], 2 * count)
    of_payload = segments.stream[streams.payload]
    seen_bytes = _total(of_payload, streams.new_bytes, 2 * count)
    retx_bytes = _total(of_payload, streams.length, 2 * count) - seen_bytes
    missed = (streams.extent - seen_bytes).reshape(-1, 2).sum(1)
    firsts = _first_letters(connections)
    states = _states(firsts)
    opened, closed = _opened_and_closed(firsts)
    instants = [pa.array(packets.records.ts_ns[rows], mask=rows < 0) for rows in (opened, closed)]
    addresses = connections.addresses
    columns = {
        "ts_ns": connections.start_ns,
        "uid": connections.uids,
        "conn": connections.names,
        "id_orig_h": [addresses[each] for each in connections.orig.tolist()],
        "id_orig_p": connections.orig_port,
        "id_resp_h": [addresses[each] for each in connections.resp.tolist()],
        "id_resp_p": connections.resp_port,
        "proto": np.full(count, _PROTO_TCP),
        "duration_ns": _ends(segments) - connections.start_ns,
        "opened_ns": instants[0],
        "closed_ns": instants[1],
        "orig_bytes": streams.extent[ORIG::2],
        "resp_bytes": streams.extent[RESP::2],
        "conn_state": states,
        "history": _histories(firsts),
        "missed_bytes": missed,
        "orig_pkts": packets_of[ORIG::2],
        "orig_ip_bytes": ip_bytes[ORIG::2],
        "resp_pkts": packets_of[RESP::2],
        "resp_ip_bytes": ip_bytes[RESP::2],
        "orig_retx_bytes": retx_bytes[ORIG::2],
        "resp_retx_bytes": retx_bytes[RESP::2],
        "vantage_host": host_column(connections.host),
        "orig_tap": [TAPS[each] for each in connections.tap[ORIG::2]],
    }
    return _table(columns, CONNS)


def _ends(segments: Segments) -> Ints:
    """Return when each connection's last packet was seen."""
    starts = segments.stream_starts
    ends = np.full(len(starts) - 1, np.iinfo(np.int64).min)
    seen = starts[1:] > starts[:-1]
    ends[seen] = segments.ts_ns[starts[1:][seen] - 1]
    return np.asarray(ends.reshape(-1, 2).max(1))


def _total(group: Ints, values: npt.NDArray[np.integer], groups: int) -> Ints:
    """Return sums by group, exact below 2^53."""
    return np.bincount(group, values, groups).astype(np.int64)


def _table(columns: dict[str, object], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _first_letters(connections: TcpConnections) -> Ints:
    """Return when each letter of the history was first seen (-1: never), the originator's letters first."""
    segments = connections.segments
    flags, payload = segments.flags, segments.payload_bytes > 0
    has = [
        flags & (SYN | ACK) == SYN,
        flags & (SYN | ACK) == SYN | ACK,
        (flags & (SYN | FIN | RST | ACK) == ACK) & ~payload,
        payload,
        flags & FIN != 0,
        flags & RST != 0,
    ]
    starts = segments.stream_starts
    seen = np.flatnonzero(starts[1:] > starts[:-1])
    firsts = np.full((len(starts) - 1, len(_LETTERS)), _NEVER)
    for letter, where in enumerate(has):
        if where.any():
            firsts[seen, letter] = np.minimum.reduceat(np.where(where, segments.row, _NEVER), starts[seen])
    firsts[firsts == _NEVER] = -1
    return firsts.reshape(len(connections.names), 2 * len(_LETTERS))


def _opened_and_closed(firsts: Ints) -> tuple[Ints, Ints]:
    """Return the packets with which each connection was open, and with which it began to close; -1 = none."""
    syn, answer = firsts[:, _LETTERS.index("S")], firsts[:, len(_LETTERS) + _LETTERS.index("H")]
    opened = np.where((syn >= 0) & (answer >= 0), np.maximum(syn, answer), -1)
    ends = [side + _LETTERS.index(letter) for side in (0, len(_LETTERS)) for letter in "FR"]
    closed = np.where(firsts[:, ends] < 0, _NEVER, firsts[:, ends]).min(1)
    return opened, np.where(closed == _NEVER, -1, closed)


def _histories(firsts: Ints) -> list[str]:
    letters = _LETTERS + _LETTERS.lower()
    order = np.argsort(firsts, axis=1, kind="stable").tolist()
    absent = (firsts < 0).sum(1).tolist()
    return ["".join(letters[each] for each in row[skip:]) for row, skip in zip(order, absent, strict=True)]


def _states(firsts: Ints) -> list[str]:
    """Return Zeek's ``conn_state`` of every connection."""
    seen = firsts >= 0
    syn, _, _, _, fin, rst = seen[:, :6].T
    _, answer, _, _, answer_fin, answer_rst = seen[:, 6:].T
    rules: list[tuple[Bools, str]] = [
        (syn & ~answer & answer_rst, "REJ"),
        (syn & ~answer & rst, "RSTOS0"),
        (syn & ~answer & fin, "SH"),
        (syn & ~answer, "S0"),
        (~syn & answer & answer_rst, "RSTRH"),
        (~syn & answer & answer_fin, "SHR"),
        (~syn, "OTH"),
        (rst, "RSTO"),
        (answer_rst, "RSTR"),
        (fin & answer_fin, "SF"),
        (fin, "S2"),
        (answer_fin, "S3"),
    ]
    return np.select([rule for rule, _ in rules], [state for _, state in rules], "S1").tolist()  # type: ignore[no-any-return]


def account_wire(packets: Packets, connections: TcpConnections, streams: Streams, origin_ns: int) -> pa.Table:
    """Return the table ``wire``. Payload before the beginning of its stream counts as seen before.

    Args:
        packets: the packets of the capture.
        connections: their connections.
        streams: the streams of the connections.
        origin_ns: the instant at which the one-second buckets start.
    """
    records, columns = packets.records, packets.columns
    second = (records.ts_ns - origin_ns) // SECOND_NS
    group, count = factorise(packets.host, packets.tap, second)
    first = first_of(group, count)
    is_tcp, is_udp = columns.nature == TCP, columns.nature == UDP
    kind = np.select([is_tcp, is_udp], [columns.payload_bytes > 0, 3], 2)  # a pure ACK, with payload, others, UDP
    of_kind = _total(4 * group + kind, records.wire_bytes, 4 * count).reshape(-1, 4)
    pure_ack_bytes, with_payload, other_bytes, of_udp = of_kind.T
    payload_bytes, datagram_bytes = (_total(group, columns.payload_bytes * own, count) for own in (is_tcp, is_udp))
    new_bytes = _total(group[connections.segments.row[streams.payload]], streams.new_bytes, count)
    rows: dict[str, object] = {
        "vantage_host": host_column(packets.host[first]),
        "tap": [TAPS[each] for each in packets.tap[first]],
        "at_ns": second[first] * SECOND_NS + origin_ns,
        "packets": np.bincount(group, minlength=count),
        "wire_bytes": of_kind.sum(1),
        "payload_bytes": new_bytes,
        "retx_bytes": payload_bytes - new_bytes,
        "header_bytes": with_payload - payload_bytes + of_udp - datagram_bytes,
        "pure_ack_bytes": pure_ack_bytes,
        "datagram_bytes": datagram_bytes,
        "other_bytes": other_bytes,
    }
    return _table(rows, WIRE)


class Described(Protocol):
    """What a capture file says about itself; see ``Records``."""

    interfaces: list[Interface]
    unread_bytes: int
    unknown_blocks: int


class InterfaceCounts:
    """Adds up what was found at each interface of a file, over the pieces in which it is read.

    Args:
        count: how many interfaces there are.
    """

    def __init__(self, count: int) -> None:
        self._first_ns = np.full(count, _NEVER)
        self._last_ns = np.full(count, np.iinfo(np.int64).min)
        self._natures = np.zeros((count, 5), np.int64)
        self._no_stream = np.zeros(count, np.int64)

    def add(self, packets: Packets, connections: TcpConnections, streams: Streams) -> None:
        interface = packets.records.interface.astype(np.int64)
        np.minimum.at(self._first_ns, interface, packets.records.ts_ns)
        np.maximum.at(self._last_ns, interface, packets.records.ts_ns)
        count, natures = self._natures.shape
        place = interface * natures + packets.columns.nature
        self._natures += np.bincount(place, minlength=count * natures).reshape(count, natures)
        self._no_stream += np.bincount(interface[connections.segments.row[streams.lost]], minlength=count)

    def table(self, capture: Described, name: str, hosts: set[int]) -> pa.Table:
        """Return the table ``captures`` of a file, with its interfaces at ``hosts``, and all others that have packets.

        Drops that the file reports at other interfaces are in the table if these are among ``hosts``.

        Args:
            capture: the file.
            name: the name of the file in tables.
            hosts: the hosts whose interfaces are in the table in any case.
        """
        met = self._natures.sum(1) > 0
        chosen = [index for index, each in enumerate(capture.interfaces) if each.host in hosts or met[index]]
        interfaces = [capture.interfaces[index] for index in chosen]
        natures = self._natures[chosen]
        first_ns, last_ns = self._first_ns[chosen], self._last_ns[chosen]
        columns = {
            "pcap_file": [name] * len(chosen),
            "vantage_host": host_column(np.array([each.host for each in interfaces], np.int32)),
            "if_name": [each.name for each in interfaces],
            "linktype": [each.linktype for each in interfaces],
            "snaplen": [each.snaplen for each in interfaces],
            "packets": natures.sum(1),
            "dropped": [each.dropped if each.host in hosts else None for each in interfaces],
            "first_ns": pa.array(first_ns, mask=first_ns > last_ns),
            "last_ns": pa.array(last_ns, mask=first_ns > last_ns),
            "truncated": [capture.unread_bytes > 0] * len(chosen),
            "unread_bytes": [capture.unread_bytes] * len(chosen),
            "n_tcp": natures[:, TCP],
            "n_other_ip": natures[:, [OTHER_IP, UDP]].sum(1),
            "n_fragments": natures[:, FRAGMENT],
            "n_not_understood": natures[:, NOT_UNDERSTOOD],
            "n_no_stream": self._no_stream[chosen],
            "unknown_blocks": [capture.unknown_blocks] * len(chosen),
        }
        return _table(columns, CAPTURES)


def describe_unreadable(capture: Described, name: str) -> pa.Table:
    """Return the table ``captures`` of a file without a readable interface: one row, which names none."""
    row = {field.name: 0 for field in CAPTURES} | {
        "pcap_file": name,
        "truncated": True,
        "unread_bytes": capture.unread_bytes,
        "unknown_blocks": capture.unknown_blocks,
    }
    row |= dict.fromkeys(("vantage_host", "if_name", "linktype", "snaplen", "dropped", "first_ns", "last_ns"))
    return pa.Table.from_pylist([row], CAPTURES)
