"""The tables of captures, as Arrow schemas. Spark reads them unchanged, and so do DuckDB and pandas.

Instants are ``int64`` nanoseconds: CLOCK_MONOTONIC if ``epoch_offset_ns`` was given, otherwise the Unix epoch. Spark
takes no nanosecond timestamps, dictionaries or unsigned 32-bit integers from Python, so there are none.

A column name has one type in all tables: several can then be read in one pass as their union (``union_schema``).
"""

from typing import Final

import pyarrow as pa

_STRING, _INT16, _INT32, _INT64, _BOOL = pa.string(), pa.int16(), pa.int32(), pa.int64(), pa.bool_()
_TOPICS = pa.list_(_INT64)

PACKETS: Final = pa.schema(
    [
        ("ts_ns", _INT64),
        ("host", _INT32),  # the host whose interface recorded it; null = unknown
        ("tap", _STRING),  # "tx" left the host, "rx" arrived at it, "mid" the capture does not say
        ("src_ip", _STRING),
        ("src_port", _INT32),
        ("dst_ip", _STRING),
        ("dst_port", _INT32),
        ("proto", _INT16),  # IP protocol number; -1 = not IP, or cut off before it
        ("tcp_flags", _INT16),
        ("seq", _INT64),
        ("ack", _INT64),
        ("window", _INT32),
        ("payload_bytes", _INT64),
        ("wire_bytes", _INT64),
        ("cap_bytes", _INT64),
        ("is_retx", _BOOL),  # null unless the packets were read with reassembly
        ("pcap_file", _STRING),
        ("pcap_off", _INT64),  # offset of the record, so that a number can be traced back to its bytes
    ]
)
"""A record of a capture. Values of a TCP header are null if the packet has no such header (ports and payload: nor a UDP
header)."""

CONNS: Final = pa.schema(
    [
        ("ts_ns", _INT64),
        ("uid", _STRING),
        ("conn", _STRING),
        ("id_orig_h", _STRING),
        ("id_orig_p", _INT32),
        ("id_resp_h", _STRING),
        ("id_resp_p", _INT32),
        ("proto", _INT16),
        ("duration_ns", _INT64),
        ("opened_ns", _INT64),  # when both SYNs had been seen; null if one was not
        ("closed_ns", _INT64),  # the first FIN or RST; null if there was none
        ("orig_bytes", _INT64),
        ("resp_bytes", _INT64),
        ("conn_state", _STRING),
        ("history", _STRING),
        ("missed_bytes", _INT64),
        ("orig_pkts", _INT64),
        ("orig_ip_bytes", _INT64),
        ("resp_pkts", _INT64),
        ("resp_ip_bytes", _INT64),
        ("orig_retx_bytes", _INT64),
        ("resp_retx_bytes", _INT64),
        ("vantage_host", _INT32),
        ("orig_tap", _STRING),  # where the originator's packets were seen: "tx" = the vantage is the originator
    ]
)
"""A TCP connection or a UDP flow (``datagrams``) as one host saw it, with Zeek's names and ``_`` for ``.``: two rows
per connection if both ends record. ``uid`` is the same at both (it hashes the addresses, ports and the originator's
initial sequence number). A UDP flow is open when both sides have sent, and nothing closes it."""

FRAMES: Final = pa.schema(
    [
        ("uid", _STRING),
        ("conn", _STRING),  # as in peer.trace: "orig_ip:orig_port-resp_ip:resp_port"
        ("direction", _STRING),  # whose bytes: "orig" or "resp"
        ("vantage_host", _INT32),
        ("tap", _STRING),
        ("off", _INT64),
        ("len_bytes", _INT64),
        ("kind", _INT16),
        ("topics", _TOPICS),
        ("message_id", _INT64),  # null where the frame has none; ids of 2^63 and above wrap to negative
        ("t_first_ns", _INT64),  # first sighting of the first byte
        ("t_last_ns", _INT64),  # tx: first sighting of the last byte; rx: when all bytes up to the last had arrived
        ("n_segments", _INT32),  # packets that carried any of its bytes, copies included
        ("n_retx", _INT32),  # such packets that repeated bytes already seen here
        ("n_seconds", _INT32),  # one-second buckets that its bytes' first sightings fall into
    ]
)
"""An overlay frame at one vantage: a delivered frame has two rows, ``tx`` at its source, ``rx`` at its target."""

CONTROLS: Final = pa.schema(
    [
        ("uid", _STRING),
        ("conn", _STRING),
        ("direction", _STRING),
        ("vantage_host", _INT32),
        ("tap", _STRING),
        ("off", _INT64),
        ("kind", _INT16),  # null: from this offset on, the capture does not show which frames there are
        ("at_ns", _INT64),  # as ``t_last_ns`` of ``FRAMES``; null if ``kind`` is
        ("frame", pa.binary()),  # the whole frame; null where the capture cut it
    ]
)
"""Frames of some kinds with their bytes, at every vantage, found by the captured headers of all frames alone."""

SPANS: Final = pa.schema(
    [
        ("uid", _STRING),
        ("conn", _STRING),
        ("direction", _STRING),
        ("vantage_host", _INT32),
        ("tap", _STRING),
        ("off", _INT64),
        ("at_ns", _INT64),
        ("span_bytes", _INT64),
    ]
)
"""How many bytes of the frames with ``n_seconds > 1`` were first seen in each second; ``off`` is the frame's."""

WIRE: Final = pa.schema(
    [
        ("vantage_host", _INT32),
        ("tap", _STRING),
        ("at_ns", _INT64),  # the bucket's start
        ("packets", _INT64),
        ("wire_bytes", _INT64),
        ("payload_bytes", _INT64),  # TCP payload seen for the first time at this vantage
        ("retx_bytes", _INT64),  # TCP payload seen before
        ("header_bytes", _INT64),  # link, IP and TCP or UDP headers of packets with TCP payload, or of UDP
        ("pure_ack_bytes", _INT64),  # whole packets of TCP without payload (SYN, FIN and RST too)
        ("datagram_bytes", _INT64),  # UDP payload
        ("other_bytes", _INT64),  # whole packets of anything else: ICMP, fragments, what is not understood
    ]
)
"""Bytes per host, tap and second.

Invariant: wire = payload + retx + header + pure_ack + datagram + other, to the byte."""

CROSSINGS: Final = pa.schema(
    [
        ("ts_ns", _INT64),
        ("src", _INT64),  # IPv4 addresses as integers
        ("dst", _INT64),
        ("is_tx", _BOOL),  # whether it left the host that recorded it; false = it arrived there
        ("identity", _INT64),  # the same at both taps (``metrics.pcap.headers``)
        ("wire_bytes", _INT64),
        ("payload_bytes", _INT64),  # of TCP or UDP; of a fragment, all after its IP header
    ]
)
"""An IPv4 packet that left its source or arrived at its destination, from which its delay follows."""

CAPTURES: Final = pa.schema(
    [
        ("pcap_file", _STRING),
        ("vantage_host", _INT32),
        ("if_name", _STRING),
        ("linktype", _INT32),
        ("snaplen", _INT64),
        ("packets", _INT64),
        ("dropped", _INT64),  # by the recorder, where the file says so (pcapng interface statistics); else null
        ("first_ns", _INT64),
        ("last_ns", _INT64),
        ("truncated", _BOOL),  # the file ends inside a record, or in bytes that are not a record
        ("unread_bytes", _INT64),  # the bytes from there on
        ("n_tcp", _INT64),
        ("n_other_ip", _INT64),
        ("n_fragments", _INT64),
        ("n_not_understood", _INT64),  # not IP, cut off before the TCP header's end, malformed
        ("n_no_stream", _INT64),  # TCP payload before the stream's first byte (data of an older connection)
        ("unknown_blocks", _INT64),  # pcapng blocks of other types, skipped
    ]
)
"""An interface of a capture file; one row without an interface if none can be read.

packets = n_tcp + n_other_ip + n_fragments + n_not_understood. File-wide figures (truncated, unread_bytes,
unknown_blocks) are repeated in each of its rows.
"""

TRACED: Final = pa.schema(
    [
        ("conn", _STRING),
        ("direction", _STRING),
        ("off", _INT64),
        ("len_bytes", _INT64),
        ("kind", _INT16),
        ("topics", _TOPICS),
        ("message_id", _INT64),
        ("ts_ns", _INT64),  # when it was sent (or received, where the sender's trace is lost)
    ]
)
"""Frames in the peers' traces, the input of header-only captures: distinct (conn, direction, off) per connection, from
``send`` events and from the ``receive`` events that no send matches. ``ts_ns`` is on the captures' time scale after
``epoch_offset_ns``; it distinguishes connections that reused addresses and ports. Write the table sorted by ``conn`` in
row groups of about 100,000: a task reads only the row groups of its hosts' connections."""

SCHEMAS: Final[dict[str, pa.Schema]] = {
    "packets": PACKETS,
    "conns": CONNS,
    "frames": FRAMES,
    "spans": SPANS,
    "controls": CONTROLS,
    "wire": WIRE,
    "crossings": CROSSINGS,
    "captures": CAPTURES,
}


def union_schema(tables: tuple[str, ...]) -> pa.Schema:
    """Return the schema of a read of ``tables`` from several files.

    It has the columns of all of them, ``table`` first if there are several, and in any case ``pcap_file``.

    Raises:
        KeyError: an unknown table.
    """
    columns: dict[str, pa.DataType] = {"table": _STRING} if len(tables) > 1 else {}
    for table in tables:
        columns |= {field.name: field.type for field in SCHEMAS[table]}
    return pa.schema(list((columns | {"pcap_file": _STRING}).items()))
