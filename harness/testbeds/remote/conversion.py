"""Converts a machine's capture to the form of the emulated testbed's: raw IP, one interface per host, on our clock.

So the analysis reads the captures of both testbeds alike, and the rules for clocks of machines are in one place.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct

from harness.planes.pcapng import (
    INBOUND,
    OUTBOUND,
    PacketForms,
    interface,
    section_header,
    statistics,
)
from metrics.pcap.files import open_capture, read_bytes
from metrics.pcap.link_layers import strip_links
from metrics.pcap.records import RX, TX, Records
from metrics.pcap.walk import Ints

CHUNK_PACKETS = 1 << 18
_IPV4_BYTES = 20


class Source(Struct, frozen=True):
    """A machine's capture.

    Attributes:
        path: the file.
        hosts: host by address (as an integer), of the machine's own.
        ahead_ns: CLOCK_REALTIME of the machine minus ours.
        snaplen_bytes: bytes to keep of each packet, from its IP header on.
        dropped: how many packets the machine's kernel dropped.
    """

    path: Path
    hosts: Mapping[int, int]
    ahead_ns: int
    snaplen_bytes: int
    dropped: int


def convert_capture(source: Source, target: Path) -> int:
    """Write the packets of a machine's hosts to a new file. A packet is its host's that sent or received it.

    Packets of a kind other than IPv4, of other addresses, and from before 1970 are left out.

    Returns:
        The bytes at the end of the machine's file that are no packet.

    Raises:
        CaptureError: it is no capture.
    """
    records = read_bytes(open_capture(source.path))
    records = records.select(np.flatnonzero(records.ts_ns >= source.ahead_ns))
    index = {host: place for place, host in enumerate(source.hosts.values())}
    forms, counts = PacketForms(source.snaplen_bytes), dict.fromkeys(index.values(), 0)
    with target.open("xb") as file:
        names = (interface(str(host), source.snaplen_bytes) for host in index)
        file.write(section_header() + b"".join(names))
        for first in range(0, len(records), CHUNK_PACKETS):
            chunk = records.select(slice(first, first + CHUNK_PACKETS))
            for host, direction, at_ns, data, length in _packets(chunk, source):
                counts[index[host]] += 1
                file.write(forms.packet(index[host], direction, at_ns, data, length))
        instants_ns = records.ts_ns - source.ahead_ns
        start_ns, end_ns = (int(instants_ns.min()), int(instants_ns.max())) if len(records) else (0, 0)
        for place, received in counts.items():
            dropped = 0 if place else source.dropped  # the kernel does not say of which host they were
            file.write(statistics(place, start_ns, end_ns, received + dropped, dropped))
    return records.unread_bytes


def _packets(records: Records, source: Source) -> Iterator[tuple[int, int, int, bytes, int]]:
    """Yield host, direction, our CLOCK_REALTIME in ns, beginning and length of each packet of the machine's hosts.

    A packet between two hosts of the machine left one and arrived at the other at the same instant: libpcap shows what
    passes the loopback device once, as it arrives.
    """
    linktypes = np.array([each.linktype for each in records.interfaces], np.int64)
    tap = records.tap.copy()
    at, _ = strip_links(records, linktypes, tap)
    end = records.start + records.cap_bytes
    rows = np.flatnonzero((at >= 0) & (at + _IPV4_BYTES <= end) & np.isin(tap, (TX, RX)))
    rows = rows[records.data[at[rows]] >> 4 == 4]
    senders, receivers = (_hosts_at(records, at[rows] + offset, source.hosts) for offset in (12, 16))
    length = records.wire_bytes - (at - records.start)
    data = records.data.data
    for row, left, sender, receiver in zip(rows.tolist(), (tap[rows] == TX).tolist(), senders, receivers, strict=True):
        at_ns, kept = int(records.ts_ns[row]) - source.ahead_ns, bytes(data[at[row] : end[row]])
        if sender is not None and (left or receiver is not None):
            yield sender, OUTBOUND, at_ns, kept, int(length[row])
        if receiver is not None and not left:
            yield receiver, INBOUND, at_ns, kept, int(length[row])


def _hosts_at(records: Records, at: Ints, hosts: Mapping[int, int]) -> list[int | None]:
    """Return the hosts of the addresses at offsets of the file; None = of no host."""
    octets = records.data[at[:, None] + np.arange(4)].astype(np.int64)
    addresses = octets @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return [hosts.get(address) for address in addresses.tolist()]
