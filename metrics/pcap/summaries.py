"""What a capture adds up to: its connections, its bytes a second, its interfaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.pcap.flows import ORIG, RESP, Connections, factorise
from metrics.pcap.headers import ACK, FIN, FRAGMENT, NOT_UNDERSTOOD, OTHER_IP, RST, SYN, TCP, Packets
from metrics.pcap.records import TAPS, Records
from metrics.pcap.schemas import CAPTURES, CONNS, WIRE
from metrics.pcap.sightings import SECOND_NS
from metrics.pcap.streams import Streams, covered_bytes
from metrics.pcap.walk import Bools, Ints

_PROTO_TCP = 6
_LETTERS = "SHADFR"  # in Zeek's history: SYN, SYN with ACK, pure ACK, data, FIN, RST; lower case = the responder's


def summarise_connections(connections: Connections, streams: Streams, packets: Packets) -> pa.Table:
    """The table ``conns``: byte counts from sequence numbers, ``missed_bytes`` the holes in both directions."""
    segments, count = connections.segments, len(connections.names)
    of_stream = segments.stream
    packets_of = np.bincount(of_stream, minlength=2 * count)
    ip_bytes = _total(of_stream, packets.columns.ip_bytes[segments.row], 2 * count)
    repeated = streams.length - streams.new_bytes
    retx_bytes = _total(of_stream[streams.payload], repeated, 2 * count)
    missed = (streams.extent - covered_bytes(streams)).reshape(-1, 2).sum(1)
    end_ns = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(end_ns, of_stream // 2, segments.ts_ns)
    firsts = _first_letters(connections)
    states = _states(firsts)
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
        "duration_ns": end_ns - connections.start_ns,
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
        "vantage_host": connections.host,
        "orig_tap": [TAPS[each] for each in connections.tap[ORIG::2]],
    }
    return _table(columns, CONNS)


def _total(group: Ints, values: npt.NDArray[np.integer], groups: int) -> Ints:
    """Sums by group; exact below 2^53."""
    return np.bincount(group, values, groups).astype(np.int64)


def _table(columns: dict[str, object], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _first_letters(connections: Connections) -> Ints:
    """When each letter of the history was first seen (-1: never), the originator's letters before the responder's."""
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
    firsts = np.full((len(connections.names), 2, len(_LETTERS)), -1, np.int64)
    by_time = np.argsort(segments.row, kind="stable")[
        ::-1
    ]  # rows of a capture are in time order, but for stray records
    for letter, where in enumerate(has):
        mine = by_time[where[by_time]]
        stream = segments.stream[mine]
        firsts[stream // 2, stream % 2, letter] = segments.row[mine]
    return firsts.reshape(len(connections.names), 2 * len(_LETTERS))


def _histories(firsts: Ints) -> list[str]:
    letters = _LETTERS + _LETTERS.lower()
    order = np.argsort(firsts, axis=1, kind="stable").tolist()
    absent = (firsts < 0).sum(1).tolist()
    return ["".join(letters[each] for each in row[skip:]) for row, skip in zip(order, absent, strict=True)]


def _states(firsts: Ints) -> list[str]:
    """Zeek's ``conn_state`` of every connection."""
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


def account_wire(packets: Packets, connections: Connections, streams: Streams, origin_ns: int) -> pa.Table:
    """The table ``wire``. Payload before its stream's beginning counts as seen before."""
    records, columns = packets.records, packets.columns
    new_bytes = np.zeros(len(records), np.int64)
    new_bytes[connections.segments.row[streams.payload]] = streams.new_bytes
    is_tcp, payload, wire = columns.nature == TCP, columns.payload_bytes.astype(np.int64), records.wire_bytes
    second = (records.ts_ns - origin_ns) // SECOND_NS
    group, count = factorise(packets.host + 1, packets.tap, second - second.min(initial=0))
    first = np.zeros(count, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    with_payload = is_tcp & (payload > 0)
    parts = {
        "packets": np.ones(len(records), np.int64),
        "wire_bytes": wire,
        "payload_bytes": new_bytes,
        "retx_bytes": np.where(with_payload, payload - new_bytes, 0),
        "header_bytes": np.where(with_payload, wire - payload, 0),
        "pure_ack_bytes": np.where(is_tcp & ~with_payload, wire, 0),
        "other_bytes": np.where(is_tcp, 0, wire),
    }
    rows: dict[str, object] = {name: _total(group, values, count) for name, values in parts.items()}
    rows["vantage_host"] = packets.host[first]
    rows["tap"] = [TAPS[each] for each in packets.tap[first]]
    rows["at_ns"] = second[first] * SECOND_NS + origin_ns
    return _table(rows, WIRE)


class InterfaceCounts:
    """Adds up what was met at each interface of a file, over the pieces it is read in."""

    def __init__(self, records: Records) -> None:
        count = len(records.interfaces)
        self._natures = np.zeros((count, 4), np.int64)
        self._no_stream = np.zeros(count, np.int64)

    def add(self, packets: Packets, connections: Connections, streams: Streams) -> None:
        """Counts a piece."""
        interface = packets.records.interface.astype(np.int64)
        np.add.at(self._natures, (interface, packets.columns.nature), 1)
        np.add.at(self._no_stream, interface[connections.segments.row[streams.lost]], 1)

    def table(self, records: Records, path: Path, hosts: set[int]) -> pa.Table:
        """The table ``captures`` of a file, with its interfaces at ``hosts``."""
        ends = _first_and_last(records)
        chosen = [index for index, each in enumerate(records.interfaces) if each.host in hosts]
        interfaces = [records.interfaces[index] for index in chosen]
        natures = self._natures[chosen]
        columns = {
            "pcap_file": [path.name] * len(chosen),
            "vantage_host": [each.host for each in interfaces],
            "if_name": [each.name for each in interfaces],
            "linktype": [each.linktype for each in interfaces],
            "snaplen": [each.snaplen for each in interfaces],
            "packets": natures.sum(1),
            "dropped": [each.dropped for each in interfaces],
            "first_ns": [ends[index][0] for index in chosen],
            "last_ns": [ends[index][1] for index in chosen],
            "truncated": [records.unread_bytes > 0] * len(chosen),
            "unread_bytes": [records.unread_bytes] * len(chosen),
            "n_tcp": natures[:, TCP],
            "n_other_ip": natures[:, OTHER_IP],
            "n_fragments": natures[:, FRAGMENT],
            "n_not_understood": natures[:, NOT_UNDERSTOOD],
            "n_no_stream": self._no_stream[chosen],
            "unknown_blocks": [records.unknown_blocks] * len(chosen),
        }
        return _table(columns, CAPTURES)


def _first_and_last(records: Records) -> list[tuple[int | None, int | None]]:
    count = len(records.interfaces)
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, records.interface, records.ts_ns)
    np.maximum.at(last, records.interface, records.ts_ns)
    return [(int(a), int(b)) if a <= b else (None, None) for a, b in zip(first, last, strict=True)]
