"""Read the packets of several captures together, with marks for copies of one packet.

If both ends of a flow record, a packet is in several places, and so it is on the interfaces of one host. A *vantage* is
what recorded it: an interface whose host is known by its number, or all other interfaces of a file. Within a vantage a
packet counts once. Between vantages, copies of a packet have the same key.

Copies of a packet are recognised by addresses, ports, length and IP identification, by TCP's sequence number,
acknowledgement and flags, and by the first bytes of UDP's payload. At a sender, the network card computes checksums
after the capture, and routers change the time to live, so neither is part of the key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from metrics.pcap.files import Capture, open_capture, read_bytes
from metrics.pcap.flows import factorise, first_of
from metrics.pcap.headers import IPV6_BASE, TCP, Columns, Packets, TapInference, complete, read_headers
from metrics.pcap.link_layers import strip_links
from metrics.pcap.records import COLUMNS, UNKNOWN_HOST, Records
from metrics.pcap.walk import Bools, Ints, big_endian_16, gather

UDP: Final = 17
SLICE_PACKETS: Final = 1_000_000

_COPY_NS: Final = 1_000_000_000
"""Copies within a host are seen this soon after each other. An IP identification repeats only later."""

_SAMPLE_BYTES, _UDP_BYTES, _IPV6_BYTES = 16, 8, 40
_PRIME, _SEED = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xCBF29CE484222325)

Hashes = npt.NDArray[np.uint64]


@dataclass
class Sighted:
    """Packets of TCP and UDP, once per vantage, in order of time within each vantage."""

    packets: Packets  # ``host`` is the number of the vantage
    key: Ints  # the same for the copies of a packet at other vantages
    udp_bytes: Ints  # UDP payload; 0 for TCP
    vantages: list[str]  # the name of each: the file, and the host if there are several in it
    hosts: list[str]  # the host for which each stands


def read_share(captures: Sequence[Capture], share: int, shares: int) -> Sighted:
    """Read the packets of a share of the pairs of addresses from all captures.

    Args:
        captures: in the same order for every share.
        share: the number of the share.
        shares: how many there are.
    """
    parts, ipv6 = list[_Part](), dict[bytes, int]()
    names, hosts = list[str](), list[str]()
    called = name_hosts([capture.name for capture in captures])
    for capture in captures:
        part = _read_file(capture, share, shares, len(names), ipv6)
        parts.append(part)
        several = len(part.hosts) > 1
        names += [f"{capture.name} {host}" if several and host >= 0 else capture.name for host in part.hosts]
        hosts += [str(host) if several and host >= 0 else called[capture.name] for host in part.hosts]
    return Sighted(
        packets=_join_packets([part.packets for part in parts], list(ipv6)),
        key=_joined(parts, "key"),
        udp_bytes=_joined(parts, "udp_bytes"),
        vantages=names,
        hosts=hosts,
    )


def name_hosts(files: Sequence[str]) -> dict[str, str]:
    """Return the name of each capture's host: the name of its file, or of its folder if two files have one name.

    Args:
        files: paths, such as ``alice/eth0.pcap`` and ``bob/eth0.pcap``, or ``alice.pcap`` and ``bob.pcap``.
    """
    stems = {file: PurePosixPath(file).name.partition(".")[0] for file in files}
    if len(set(stems.values())) == len(stems):
        return stems
    return {file: PurePosixPath(file).parent.name or stem for file, stem in stems.items()}


@dataclass
class _Part:
    """What was read of a file."""

    packets: Packets
    key: Ints
    udp_bytes: Ints
    hosts: list[int]  # the number of each vantage's host, below zero if it is not known


def _read_file(capture: Capture, share: int, shares: int, first: int, ipv6: dict[bytes, int]) -> _Part:
    """Read the share's packets of a file, and number its vantages from ``first`` on."""
    records = read_bytes(open_capture(capture.path), capture.rule)
    linktypes = np.array([each.linktype for each in records.interfaces] or [0])
    inference, kept = TapInference(), []
    for start in range(0, max(len(records), 1), SLICE_PACKETS):
        some = records.select(slice(start, start + SLICE_PACKETS))
        columns, tap, addresses = read_headers(some)
        inference.add(some, columns, tap, addresses)
        _number_addresses(columns, [ipv6.setdefault(each, len(ipv6)) for each in addresses])
        rows = np.flatnonzero(_of_share(columns, share, shares))
        some, columns, tap = some.select(rows), _take(columns, rows), tap[rows]
        kept.append((some, columns, tap, *_describe(some, columns, linktypes)))
    rows_of: dict[str, Any] = {name: _joined([each[0] for each in kept], name) for name in COLUMNS}
    joined = replace(records, **rows_of)
    columns = Columns(**{each.name: _joined([part[1] for part in kept], each.name) for each in fields(Columns)})
    tap, key, ip_id, udp_bytes = (np.concatenate([part[place] for part in kept]) for place in range(2, 6))
    packets = complete(joined, columns, tap, list(ipv6), inference.own_addresses())
    hosts = sorted({max(each.host, UNKNOWN_HOST) for each in records.interfaces} or {UNKNOWN_HOST})
    packets.host = first + np.searchsorted(hosts, np.maximum(packets.host, UNKNOWN_HOST)).astype(np.int32)
    rows = np.flatnonzero(~_is_copy(packets, key, ip_id))
    rows = rows[np.argsort(joined.ts_ns[rows], kind="stable")]
    return _Part(_select(packets, rows), key[rows], udp_bytes[rows], hosts)


def _joined(parts: Sequence[object], name: str) -> npt.NDArray[Any]:
    return np.concatenate([getattr(part, name) for part in parts])


def _take(columns: Columns, rows: Ints) -> Columns:
    return Columns(**{each.name: getattr(columns, each.name)[rows] for each in fields(Columns)})


def _select(packets: Packets, rows: Ints) -> Packets:
    columns = _take(packets.columns, rows)
    return Packets(packets.records.select(rows), columns, packets.host[rows], packets.tap[rows], packets.ipv6)


def _join_packets(parts: Sequence[Packets], ipv6: list[bytes]) -> Packets:
    """Join the packets of several files, without their bytes."""
    records: dict[str, Any] = {name: _joined([part.records for part in parts], name) for name in COLUMNS}
    columns = {each.name: _joined([part.columns for part in parts], each.name) for each in fields(Columns)}
    none = Records(data=np.empty(0, np.uint8), **records)
    return Packets(none, Columns(**columns), _joined(parts, "host"), _joined(parts, "tap"), ipv6)


def _number_addresses(columns: Columns, numbers: Sequence[int]) -> None:
    """Give IPv6 addresses the numbers that they have over all files."""
    if numbers:
        for column in (columns.src, columns.dst):
            rows = column >= IPV6_BASE
            column[rows] = np.array(numbers)[column[rows] - IPV6_BASE] + IPV6_BASE


def _of_share(columns: Columns, share: int, shares: int) -> Bools:
    """Return which packets are of TCP or UDP, and of the share. All packets of two addresses are in one share."""
    has_ports = (columns.nature == TCP) | ((columns.proto == UDP) & (columns.src_port >= 0))
    low, high = np.minimum(columns.src, columns.dst), np.maximum(columns.src, columns.dst)
    pair = _mix(_mix(np.full(len(low), _SEED), low), high)
    return np.asarray(has_ports & (pair % np.uint64(shares) == share))


def _describe(records: Records, columns: Columns, linktypes: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the keys of packets, their IP identifications (0: none), and the bytes of UDP payload."""
    data = records.data
    at, _ = strip_links(records, linktypes, records.tap.copy())
    is_four = columns.src < IPV6_BASE
    ip_id = np.where(is_four, big_endian_16(data, at + 4), 0) if len(at) else at
    is_udp = columns.nature != TCP
    header_bytes = np.where(is_four, (data[at] & 15).astype(np.int64) * 4, _IPV6_BYTES) if len(at) else at
    udp_bytes = np.where(is_udp, columns.ip_bytes - header_bytes - _UDP_BYTES, 0).astype(np.int64)
    hashed = np.full(len(at), _SEED)
    parts = ("src", "dst", "src_port", "dst_port", "proto", "ip_bytes", "seq", "ack", "flags")
    for column in (*(getattr(columns, name) for name in parts), ip_id):
        hashed = _mix(hashed, column)
    sample_at = at + header_bytes + _UDP_BYTES
    sampled = np.flatnonzero(is_udp & (sample_at + _SAMPLE_BYTES <= records.start + records.cap_bytes))
    sample = gather(data, sample_at[sampled], np.dtype((np.void, _SAMPLE_BYTES))).view("<i8").reshape(-1, 2)
    for column in sample.T:
        hashed[sampled] = _mix(hashed[sampled], column)
    return hashed.view(np.int64), ip_id, udp_bytes


def _mix(hashed: Hashes, column: npt.NDArray[np.integer]) -> Hashes:
    """Add a column to hashes."""
    mixed = (hashed ^ column.astype(np.int64).view(np.uint64)) * _PRIME
    return np.asarray(mixed ^ mixed >> np.uint64(29))


def _is_copy(packets: Packets, key: Ints, ip_id: Ints) -> Bools:
    """Return which packets a vantage has again, because it records at several interfaces or both ways.

    With an IP identification, a packet with the key of an earlier packet is that packet: a packet that is sent again
    has another number. Without an identification, it is that packet if it was seen at another interface, or in the
    other direction, than the first.
    """
    ts_ns = packets.records.ts_ns
    group, _ = factorise(packets.host, key)
    order = np.lexsort((ts_ns, group))
    again = np.zeros(len(order), np.bool_)
    again[1:] = (group[order][1:] == group[order][:-1]) & (np.diff(ts_ns[order]) < _COPY_NS)
    group = np.empty_like(group)
    group[order] = np.cumsum(~again) - 1
    first = first_of(group, len(group), order)[group]
    side = packets.records.interface * 4 + packets.tap
    is_first = np.arange(len(group)) == first
    return np.asarray(~is_first & ((ip_id != 0) | (side != side[first])))
