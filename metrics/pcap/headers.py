"""Decode the IP and TCP headers of many packets at once.

Every packet's IP header and then its TCP header is copied to one row of bytes and read through a structured type. Link
layers, IP options, IPv6 and its extension headers differ only in where the next header starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Address, IPv6Address

import numpy as np
import numpy.typing as npt

from metrics.pcap.link_layers import ANY_IP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, strip_links
from metrics.pcap.records import MID, OTHER_HOST, RX, TX, Records
from metrics.pcap.walk import Bools, Bytes, Ints, as_slice, big_endian_16, gather

NOT_UNDERSTOOD, TCP, OTHER_IP, FRAGMENT, UDP = range(5)
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
IPV6_BASE = 1 << 32
"""Addresses are integers: an IPv4 address is its value, an IPv6 address is this plus its index in ``Packets.ipv6``."""

_PROTO_TCP, _PROTO_UDP = 6, 17
_UDP_BYTES = 8
_CHUNK = 1 << 14  # rows decoded at a time: their headers and columns stay in the processor's cache
_IPV6_EXTENSIONS = (0, 43, 60)  # hop-by-hop, routing, destination options: 8 bytes and more, length in the second one
_IPV6_FRAGMENT = 44

_IDENTIFIED = np.array([20, 28, 40])
"""The number of first bytes that identify a packet; fewer if fewer were kept."""

_IPV4_HEADER = np.dtype(
    {
        "names": ["first", "length", "fragment", "proto", "src", "dst"],
        "formats": ["u1", ">u2", ">u2", "u1", ">u4", ">u4"],
        "offsets": [0, 2, 6, 9, 12, 16],
        "itemsize": 20,
    }
)
_IPV6_HEADER = np.dtype(
    [("first", ">u4"), ("length", ">u2"), ("next", "u1"), ("hops", "u1"), ("src", "V16"), ("dst", "V16")]
)
_TCP_HEADER = np.dtype(
    {
        "names": ["src", "dst", "seq", "ack", "offset", "flags", "window"],
        "formats": [">u2", ">u2", ">u4", ">u4", "u1", "u1", ">u2"],
        "offsets": [0, 2, 4, 8, 12, 13, 14],
        "itemsize": 20,
    }
)


@dataclass
class Columns:
    """The decoded columns of packets; -1 where a packet has no such field."""

    nature: npt.NDArray[np.int8]  # TCP, UDP, OTHER_IP, FRAGMENT, NOT_UNDERSTOOD
    src: Ints
    dst: Ints
    src_port: npt.NDArray[np.int32]
    dst_port: npt.NDArray[np.int32]
    proto: npt.NDArray[np.int16]
    flags: npt.NDArray[np.int16]
    seq: Ints
    ack: Ints
    window: npt.NDArray[np.int32]
    ip_bytes: npt.NDArray[np.int32]
    payload_bytes: npt.NDArray[np.int32]  # payload of TCP and UDP; 0 for other packets
    payload_start: Ints  # where the payload starts in the file
    identity: Ints  # a hash of an IPv4 packet's first bytes, the same wherever the packet was seen (``identify``)

    @classmethod
    def unknown(cls, count: int) -> Columns:
        """Return columns for ``count`` packets about which nothing is known yet."""
        types = {"nature": "i1", "proto": "i2", "flags": "i2"} | dict.fromkeys(
            ("src_port", "dst_port", "window", "ip_bytes", "payload_bytes"), "i4"
        )
        columns = {each.name: np.full(count, -1, types.get(each.name, "i8")) for each in fields(cls)}
        columns["nature"][:] = NOT_UNDERSTOOD
        columns["payload_bytes"][:] = columns["ip_bytes"][:] = 0
        return cls(**columns)


@dataclass
class Packets:
    """A capture's packets with the content of their headers, row by row with ``records``."""

    records: Records
    columns: Columns
    host: npt.NDArray[np.int32]  # each packet's vantage host
    tap: npt.NDArray[np.int8]  # MID, TX or RX; if the capture does not say, by the address that is in every packet
    ipv6: list[bytes]  # the IPv6 addresses that occurred


def decode(records: Records) -> Packets:
    """Return the content of the headers of ``records``. Never raises on content: see ``Columns.nature``."""
    return complete(records, *read_headers(records))


def read_headers(records: Records) -> tuple[Columns, npt.NDArray[np.int8], list[bytes]]:
    """Decode the headers of packets, each by itself; return the arguments of ``complete``."""
    columns = Columns.unknown(len(records))
    tap = records.tap.copy()
    ipv6: dict[bytes, int] = {}
    linktypes = np.array([each.linktype for each in records.interfaces] or [0])
    for first in range(0, len(records), _CHUNK):
        rows = slice(first, first + _CHUNK)
        chunk = records.select(rows)
        at, ethertype = strip_links(chunk, linktypes, tap[rows])
        _decode_ip(chunk, at, ethertype, first, columns, ipv6)
    return columns, tap, list(ipv6)


def complete(
    records: Records,
    columns: Columns,
    tap: npt.NDArray[np.int8],
    ipv6: list[bytes],
    own: Mapping[int, str] | None = None,
) -> Packets:
    """Return packets with the values that follow from all packets of an interface.

    Args:
        records: packets; all packets of their interfaces if ``own`` is not given.
        columns: the content of their headers.
        tap: where each was seen, as far as capture and header say; the other values are inferred in place.
        ipv6: the addresses that ``columns`` numbers.
        own: ``TapInference.own_addresses`` of all packets; None = it is found here.
    """
    hosts = np.array([each.host for each in records.interfaces] or [-1], np.int32)
    if own is None:
        inference = TapInference()
        inference.add(records, columns, tap, ipv6)
        own = inference.own_addresses()
    _infer_taps(records, columns, tap, ipv6, own)
    tap[tap == OTHER_HOST] = MID
    return Packets(records, columns, hosts[records.interface], tap, ipv6)


def address_text(address: int, ipv6: list[bytes]) -> str:
    """Return an address of ``Columns`` as people write it."""
    return str(IPv4Address(address) if address < IPV6_BASE else IPv6Address(ipv6[address - IPV6_BASE]))


def _decode_ip(
    records: Records, at: Ints, ethertype: Ints, first: int, columns: Columns, ipv6: dict[bytes, int]
) -> None:
    end = records.start + records.cap_bytes
    rows = np.flatnonzero((at >= 0) & (at + 20 <= end))
    version, kind = records.data[at[rows]] >> 4, ethertype[rows]
    wire_end = records.start + records.wire_bytes  # where the packet would end in the file if all of it were kept
    four = rows[(version == 4) & ((kind == ANY_IP) | (kind == ETHERTYPE_IPV4))]
    _decode_ipv4(records.data, at, end, wire_end, four, first, columns)
    six = rows[(version == 6) & ((kind == ANY_IP) | (kind == ETHERTYPE_IPV6)) & (at[rows] + 40 <= end[rows])]
    if len(six):
        _decode_ipv6(records.data, at, end, wire_end, six, first, columns, ipv6)


def _decode_ipv4(data: Bytes, at: Ints, end: Ints, wire_end: Ints, rows: Ints, first: int, columns: Columns) -> None:
    at, end, room = at[rows], end[rows], wire_end[rows] - at[rows]
    header = gather(data, at, _IPV4_HEADER)
    header_bytes = (header["first"] & 15).astype(np.int64) * 4
    length = header["length"].astype(np.int64)
    length = np.where(length == 0, room, length)  # segmentation offload leaves the length to the card
    sane = (header_bytes >= 20) & (length >= header_bytes) & (length <= room)
    if not sane.all():
        rows, header, header_bytes, length = rows[sane], header[sane], header_bytes[sane], length[sane]
        at, end = at[sane], end[sane]
    out = rows + first
    place = as_slice(out)
    columns.src[place], columns.dst[place] = header["src"], header["dst"]
    columns.ip_bytes[place] = length
    columns.identity[place] = identify(data, at, end)
    fragment = header["fragment"] & 0x3FFF != 0
    _decode_transport(data, at + header_bytes, end, at + length, header["proto"], fragment, out, columns)


def identify(data: Bytes, at: Ints, end: Ints) -> Ints:
    """Return a hash of each packet's first 40 bytes from its IP header on, or of its first 28 or 20 if it has fewer.

    These bytes do not change between two hosts: they have the addresses, the IP header's identification, and for TCP
    the whole header without options, or for an echo its identifier and sequence number.

    Args:
        data: the file.
        at: (n,) where the IP header of each packet begins.
        end: (n,) where the bytes of each packet end.
    """
    hashed = np.zeros(len(at), np.uint64)
    room = np.searchsorted(_IDENTIFIED, np.minimum(end, len(data)) - at, "right") - 1
    for size, kept in enumerate(_IDENTIFIED):
        rows = np.flatnonzero(room == size)
        if len(rows):
            first_bytes = gather(data, at[as_slice(rows)], np.dtype((np.void, kept)))
            hashed[as_slice(rows)] = _hash(first_bytes.view("<u4").reshape(len(rows), -1))
    return hashed.view(np.int64)


def _hash(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each row of (n, m) words: FNV-1a on words, then the last step of splitmix64."""
    found = np.full(len(words), 0xCBF29CE484222325, np.uint64)
    for column in words.T:
        found = (found ^ column) * np.uint64(0x100000001B3)
    found = (found ^ found >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    return found ^ found >> np.uint64(27)


def _decode_ipv6(
    data: Bytes, at: Ints, end: Ints, wire_end: Ints, rows: Ints, first: int, columns: Columns, ipv6: dict[bytes, int]
) -> None:
    header = gather(data, at[rows], _IPV6_HEADER)
    length = header["length"].astype(np.int64) + 40
    room = wire_end[rows] - at[rows]
    jumbo = length == 40
    length[jumbo] = room[jumbo]
    sane = length <= room
    rows, header, length = rows[sane], header[sane], length[sane]
    out = rows + first
    columns.src[out], columns.dst[out] = _ipv6_ids(header["src"], ipv6), _ipv6_ids(header["dst"], ipv6)
    proto, next_at = header["next"].astype(np.int64), at[rows] + 40
    fragment = _skip_extensions(data, next_at, end[rows], proto)
    _decode_transport(data, next_at, end[rows], at[rows] + length, proto, fragment, out, columns)
    columns.ip_bytes[out] = length


def _ipv6_ids(addresses: npt.NDArray[np.void], ipv6: dict[bytes, int]) -> Ints:
    unique, inverse = np.unique(addresses, return_inverse=True)
    ids = [ipv6.setdefault(each.tobytes(), len(ipv6)) for each in unique]
    return np.array(ids, np.int64)[inverse] + IPV6_BASE


def _skip_extensions(data: Bytes, at: Ints, end: Ints, proto: Ints) -> Bools:
    """Move ``at`` and ``proto`` over the extension headers; return which packets are fragments."""
    while True:
        rows = np.flatnonzero(np.isin(proto, _IPV6_EXTENSIONS) & (at + 8 <= end))
        if not len(rows):
            return np.asarray(proto == _IPV6_FRAGMENT)
        proto[rows] = data[at[rows]]
        at[rows] += 8 * (1 + data[at[rows] + 1].astype(np.int64))


def _decode_transport(
    data: Bytes,
    at: Ints,
    end: Ints,
    ip_end: Ints,
    proto: npt.NDArray[np.integer],
    fragment: Bools,
    out: Ints,
    columns: Columns,
) -> None:
    """Decode the transport headers at ``at``; the kept bytes end at ``end``, the packet at ``ip_end``."""
    place = as_slice(out)
    columns.proto[place] = proto
    columns.nature[place] = np.where(fragment, FRAGMENT, np.where(proto == _PROTO_TCP, NOT_UNDERSTOOD, OTHER_IP))
    udp = np.flatnonzero((proto == _PROTO_UDP) & ~fragment & (at + 4 <= end))
    columns.src_port[out[udp]] = big_endian_16(data, at[udp])
    columns.dst_port[out[udp]] = big_endian_16(data, at[udp] + 2)
    udp = udp[at[udp] + _UDP_BYTES <= ip_end[udp]]
    columns.nature[out[udp]] = UDP
    columns.payload_bytes[out[udp]] = ip_end[udp] - at[udp] - _UDP_BYTES
    tcp = np.flatnonzero((proto == _PROTO_TCP) & ~fragment & (at + 20 <= end) & (at + 20 <= ip_end))
    at, ip_end = at[tcp], ip_end[tcp]
    header = gather(data, at, _TCP_HEADER)
    start = at + (header["offset"] >> 4).astype(np.int64) * 4
    sane = (start >= at + 20) & (start <= ip_end)
    if not sane.all():
        tcp, header, start, ip_end = tcp[sane], header[sane], start[sane], ip_end[sane]
    place = as_slice(out[tcp])
    columns.nature[place] = TCP
    columns.src_port[place], columns.dst_port[place] = header["src"], header["dst"]
    columns.seq[place], columns.ack[place] = header["seq"], header["ack"]
    columns.flags[place], columns.window[place] = header["flags"], header["window"]
    columns.payload_bytes[place] = ip_end - start
    columns.payload_start[place] = start


def _infer_taps(
    records: Records, columns: Columns, tap: npt.NDArray[np.int8], ipv6: list[bytes], own: Mapping[int, str]
) -> None:
    for interface, address in own.items():
        rows = np.flatnonzero((records.interface == interface) & (tap == MID) & (columns.src >= 0))
        src = columns.src[rows]
        mine = [each for each in np.unique(src).tolist() if address_text(each, ipv6) == address]
        tap[rows] = np.where(np.isin(src, mine), TX, RX)


class TapInference:
    """Infers directions that a capture lacks: the only address in every packet of an interface is its host's."""

    def __init__(self) -> None:
        self._everywhere: dict[int, set[str]] = {}

    def add(self, records: Records, columns: Columns, tap: npt.NDArray[np.int8], ipv6: list[bytes]) -> None:
        """Add packets (for the arguments see ``complete``).

        Args:
            records: the packets.
            columns: the content of their headers.
            tap: where each was seen.
            ipv6: the addresses that ``columns`` numbers.
        """
        for interface in set(records.interface[tap == MID].tolist()):
            rows = np.flatnonzero((records.interface == interface) & (tap == MID) & (columns.src >= 0))
            if not len(rows):
                continue
            src, dst = columns.src[rows], columns.dst[rows]
            everywhere = {
                address_text(each, ipv6) for each in {int(src[0]), int(dst[0])} if ((src == each) | (dst == each)).all()
            }
            self._everywhere[interface] = self._everywhere.get(interface, everywhere) & everywhere

    def own_addresses(self) -> dict[int, str]:
        """Return the address of each interface's host, if exactly one is in every packet."""
        return {interface: min(found) for interface, found in self._everywhere.items() if len(found) == 1}
