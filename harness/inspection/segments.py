"""The TCP segments of a capture, in the file's order, with the rules of files and headers that the tables have."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from metrics.pcap.files import CaptureError, open_capture, read_windows
from metrics.pcap.headers import IPV6_BASE, TCP, address_text, read_headers
from metrics.pcap.records import NO_NAME, RX, TX, Records
from metrics.storage import Place

_WINDOW_BYTES: Final = 8 << 20
_TAPS: Final = {TX: "tx", RX: "rx"}


class Segment(NamedTuple):
    """A TCP segment with data.

    Attributes:
        ts_ns: when it was seen, nanoseconds since the epoch.
        source: where it came from, as ``ip:port``.
        destination: where it went, likewise.
        tap: "tx" or "rx"; empty if the capture does not say.
        seq: sequence number of its first byte.
        kept: the bytes that the capture has.
        length: how many there were.
    """

    ts_ns: int
    source: str
    destination: str
    tap: str
    seq: int
    kept: bytes
    length: int


def read_segments(path: Place, port: int, trouble: Counter[str]) -> Iterator[Segment]:
    """Yield the segments with data to or from a port.

    Args:
        path: a capture file.
        port: the TCP port of the peers.
        trouble: counts ``other_packets`` and, at the end, ``unread_bytes``.

    Raises:
        CaptureError: the file is no capture, or ends within its first header.
    """
    data = open_capture(path)
    unread: int | None = None
    for records in read_windows(data, NO_NAME, _WINDOW_BYTES):
        unread = records.unread_bytes
        yield from _segments_of(records, port, trouble)
    if unread is None:
        raise CaptureError(path, f"it ends within its first header, after {len(data)} bytes")
    if unread:
        trouble["unread_bytes"] = unread


def _segments_of(records: Records, port: int, trouble: Counter[str]) -> Iterator[Segment]:
    columns, tap, ipv6 = read_headers(records)
    mine = (columns.nature == TCP) & ((columns.src_port == port) | (columns.dst_port == port))
    if others := len(mine) - int(mine.sum()):
        trouble["other_packets"] += others
    starts, lengths = columns.payload_start, columns.payload_bytes
    ends = np.minimum(starts + lengths, records.start + records.cap_bytes)
    for row in np.flatnonzero(mine & (lengths > 0)).tolist():
        yield Segment(
            int(records.ts_ns[row]),
            _end_text(int(columns.src[row]), int(columns.src_port[row]), ipv6),
            _end_text(int(columns.dst[row]), int(columns.dst_port[row]), ipv6),
            _TAPS.get(int(tap[row]), ""),
            int(columns.seq[row]),
            records.data[starts[row] : ends[row]].tobytes(),
            int(lengths[row]),
        )


def _end_text(address: int, port: int, ipv6: list[bytes]) -> str:
    text = address_text(address, ipv6)
    return f"{text}:{port}" if address < IPV6_BASE else f"[{text}]:{port}"
