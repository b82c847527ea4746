"""Convert a capture file to tables, a bounded number of packets at a time: the entry point of the kernels."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.controls import find_controls
from metrics.pcap.datagrams import summarise_flows
from metrics.pcap.divided import CapturePart
from metrics.pcap.files import Capture, open_capture, read_bytes
from metrics.pcap.flows import TcpConnections, find_connections
from metrics.pcap.frames import locate_in_payload, locate_traced
from metrics.pcap.headers import FRAGMENT, IPV6_BASE, TCP, UDP, Packets, address_text, decode
from metrics.pcap.records import MID, TAPS, TX, Records, Selection, host_column
from metrics.pcap.schemas import CROSSINGS, PACKETS, SCHEMAS, TRACED
from metrics.pcap.sightings import sight
from metrics.pcap.streams import Streams, reassemble
from metrics.pcap.summaries import InterfaceCounts, account_wire, describe_unreadable, summarise_connections
from metrics.pcap.walk import Bools, Ints
from metrics.storage import Place, place
from metrics.storage.parquet import open_dataset, parts_of

_PIECE_PACKETS = 1_500_000
_IPV4_BYTES = 20


@dataclass(frozen=True)
class Reading:
    """What to read from a capture."""

    tables: tuple[str, ...]  # names of ``schemas.SCHEMAS``
    traced: Place | str | None = None  # Parquet of ``schemas.TRACED``; None = take frames from captured payload
    epoch_offset_ns: int = 0  # subtracted from every timestamp: epoch = CLOCK_MONOTONIC + this
    origin_ns: int = 0  # where the one-second buckets of ``wire`` and ``spans`` start, after the subtraction
    part: int = 0  # which part of the file: of its packets or, with reassembly, the hosts whose index % parts == part
    parts: int = 1  # how many parts there are; the parts of a divided capture consist of connections
    divided: Place | None = (
        None  # the file divided into as many parts (``divided.divide_capture``); None walks the file
    )
    foreign: bool = False  # whether a file that is not a capture counts as unreadable, instead of raising an error
    kinds: tuple[int, ...] = ()  # the kinds of frames that ``controls`` has
    retransmissions: bool = False  # whether ``packets`` has ``is_retx``: needs reassembly and a host's whole capture

    @property
    def reassembles(self) -> bool:
        """Whether the reading needs whole connections."""
        return self.retransmissions or any(table != "packets" for table in self.tables)

    def __post_init__(self) -> None:
        """Refuse readings that are impossible.

        Raises:
            ValueError: there is an unknown table, no table, or a table that a divided capture does not have.
        """
        if self.divided is not None and (self.traced is None or "packets" in self.tables):
            raise ValueError("a divided capture has neither payload nor the table packets")
        if "controls" in self.tables and not self.kinds:
            raise ValueError("the table controls needs kinds of frames")
        unknown = set(self.tables) - set(SCHEMAS)
        if unknown or not self.tables:
            raise ValueError(
                f"tables: expected some of {', '.join(SCHEMAS)}, got {', '.join(sorted(unknown)) or 'none'}"
            )


def read_tables(source: Place | Capture, reading: Reading) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a capture file, as (name, piece); a table may come in several pieces, or in none.

    Raises:
        CaptureError: the file is not a capture.
    """
    if not isinstance(source, Capture):
        source = Capture(source, source.name)
    if reading.divided is None:
        selection = Selection(reading.part, reading.parts, reading.reassembles)
        data = open_capture(source.path, foreign=reading.foreign)
        capture: _Walked | CapturePart = _Walked(read_bytes(data, source.rule, selection))
    else:
        whole = source.path if "controls" in reading.tables else None
        capture = CapturePart(reading.divided, reading.part, whole)
    if isinstance(capture, _Walked) and not reading.reassembles:
        for packets in capture.slices():
            packets.records.ts_ns -= reading.epoch_offset_ns
            yield "packets", _packets_table(packets, source, None)
        return
    counts = InterfaceCounts(len(capture.interfaces))
    hosts = np.array([each.host for each in capture.interfaces], np.int64)
    mine = {host for host in hosts.tolist() if host % reading.parts == reading.part}
    packets_of = capture.count_packets()
    found = mine if reading.divided is None else set(hosts[packets_of > 0].tolist())
    for chosen in _pieces(packets_of, hosts, found):
        packets = capture.packets(chosen)
        packets.records.ts_ns -= reading.epoch_offset_ns
        yield from _read_piece(packets, source, reading, counts)
    if "captures" in reading.tables:
        yield "captures", counts.table(capture, source.name, mine)
        if not capture.interfaces and reading.part == 0:
            yield "captures", describe_unreadable(capture, source.name)


class _Walked:
    """A capture file whose records were walked; see ``CapturePart``."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.interfaces, self.unread_bytes, self.unknown_blocks = (
            records.interfaces,
            records.unread_bytes,
            records.unknown_blocks,
        )

    def count_packets(self) -> Ints:
        return np.bincount(self._records.interface, minlength=len(self.interfaces))

    def packets(self, chosen: Bools | None) -> Packets:
        rows = slice(None) if chosen is None else np.flatnonzero(chosen[self._records.interface])
        return decode(self._records.select(rows))

    def slices(self) -> Iterator[Packets]:
        """Yield all packets, some at a time."""
        for start in range(0, len(self._records), _PIECE_PACKETS):
            yield decode(self._records.select(slice(start, start + _PIECE_PACKETS)))


def _pieces(per_interface: Ints, hosts: Ints, wanted: set[int]) -> Iterator[Bools | None]:
    """Yield the interfaces of whole hosts with about ``_PIECE_PACKETS``, which bounds the memory; None = all."""
    batches: list[list[int]] = [[]]
    filled = 0
    for host in sorted(wanted):
        size = int(per_interface[hosts == host].sum())
        if filled and filled + size > _PIECE_PACKETS:
            batches.append([])
            filled = 0
        batches[-1].append(host)
        filled += size
    for batch in batches:
        if batch:
            yield None if len(batch) == len(wanted) else np.isin(hosts, batch)


def _read_piece(
    packets: Packets, source: Capture, reading: Reading, counts: InterfaceCounts
) -> Iterator[tuple[str, pa.Table]]:
    connections = find_connections(packets)
    streams = reassemble(connections.segments, connections.base)
    counts.add(packets, connections, streams)
    if "packets" in reading.tables:
        yield "packets", _packets_table(packets, source, _retransmitted(packets, connections, streams))
    if "conns" in reading.tables:
        yield (
            "conns",
            pa.concat_tables([summarise_connections(connections, streams, packets), summarise_flows(packets)]),
        )
    if "crossings" in reading.tables:
        yield "crossings", _crossings_table(packets)
    if "wire" in reading.tables:
        yield "wire", account_wire(packets, connections, streams, reading.origin_ns)
    if "controls" in reading.tables:
        yield "controls", find_controls(connections, streams, packets, reading.kinds)
    if {"frames", "spans"} & set(reading.tables):
        if reading.traced is None:
            located = locate_in_payload(connections, streams, packets)
        else:
            located = locate_traced(connections, _read_traced(reading, connections))
        frames, spans = sight(located, connections, streams, reading.origin_ns)
        if "frames" in reading.tables:
            yield "frames", frames
        if "spans" in reading.tables:
            yield "spans", spans


def _read_traced(reading: Reading, connections: TcpConnections) -> pa.Table:
    """Return the traced frames of these connections, from the row groups that may have any.

    The traced frames of a divided capture are divided in the same way.
    """
    assert reading.traced is not None
    names = pa.array(connections.names, pa.string()).unique()
    traced = place(reading.traced) if isinstance(reading.traced, str) else reading.traced
    if reading.divided is None:
        dataset = open_dataset(traced, TRACED)
    else:
        dataset = open_dataset(parts_of(traced, reading.part), TRACED)
    if not len(names):
        return TRACED.empty_table()
    bounds = pc.min_max(names)
    nearby = (pc.field("conn") >= bounds["min"]) & (pc.field("conn") <= bounds["max"])
    return dataset.to_table(filter=nearby & pc.field("conn").isin(names))


def _retransmitted(packets: Packets, connections: TcpConnections, streams: Streams) -> npt.NDArray[np.bool_]:
    is_retx = np.zeros(len(packets.records), np.bool_)
    is_retx[connections.segments.row[streams.payload]] = streams.retransmits
    return is_retx


def _packets_table(packets: Packets, source: Capture, is_retx: npt.NDArray[np.bool_] | None) -> pa.Table:
    records, columns = packets.records, packets.columns
    count = len(records)
    no_tcp, no_ports = columns.nature != TCP, columns.src_port < 0
    no_payload = no_tcp & (columns.nature != UDP)
    arrays = {
        "ts_ns": pa.array(records.ts_ns),
        "host": host_column(packets.host),
        "tap": pa.array(TAPS).take(pa.array(packets.tap)),
        "src_ip": _address_strings(columns.src, packets.ipv6),
        "src_port": pa.array(columns.src_port, mask=no_ports),
        "dst_ip": _address_strings(columns.dst, packets.ipv6),
        "dst_port": pa.array(columns.dst_port, mask=no_ports),
        "proto": pa.array(columns.proto),
        "tcp_flags": pa.array(columns.flags, mask=no_tcp),
        "seq": pa.array(columns.seq, mask=no_tcp),
        "ack": pa.array(columns.ack, mask=no_tcp),
        "window": pa.array(columns.window, mask=no_tcp),
        "payload_bytes": pa.array(columns.payload_bytes.astype(np.int64), mask=no_payload),
        "wire_bytes": pa.array(records.wire_bytes),
        "cap_bytes": pa.array(records.cap_bytes),
        "is_retx": pa.nulls(count, pa.bool_()) if is_retx is None else pa.array(is_retx, mask=no_tcp),
        "pcap_file": pa.array([source.name]).take(pa.array(np.zeros(count, np.int8))),
        "pcap_off": pa.array(records.at),
    }
    return pa.table([arrays[name] for name in PACKETS.names], schema=PACKETS)


def _crossings_table(packets: Packets) -> pa.Table:
    """Return the IPv4 packets for which it is known whether they left or arrived.

    All of a fragment counts as payload: a large datagram brings its message in fragments.
    """
    columns, records = packets.columns, packets.records
    known = np.flatnonzero((packets.tap != MID) & (columns.src >= 0) & (columns.src < IPV6_BASE))
    found = {name: getattr(columns, name)[known] for name in ("src", "dst", "identity")}
    payload_bytes = np.where(columns.nature == FRAGMENT, columns.ip_bytes - _IPV4_BYTES, columns.payload_bytes)[known]
    found |= {"ts_ns": records.ts_ns[known], "wire_bytes": records.wire_bytes[known], "payload_bytes": payload_bytes}
    found["is_tx"] = packets.tap[known] == TX
    return pa.table([pa.array(found[name]) for name in CROSSINGS.names], schema=CROSSINGS)


def _address_strings(addresses: npt.NDArray[np.int64], ipv6: list[bytes]) -> pa.Array:
    """Return addresses as text, each formatted once; null if there is none."""
    encoded = pa.array(addresses).dictionary_encode()
    texts = [address_text(each, ipv6) if each >= 0 else None for each in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)
