"""Classic pcap files, with microseconds or nanoseconds, of either endianness.

The format of Linux of the 1990s ("modified pcap") has 8 more bytes in each record's header, which are not needed.
Source: draft-ietf-opsawg-pcap.
"""

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from metrics.pcap.records import HostRule, Interface, Records, Selection
from metrics.pcap.walk import NONE, Bools, Bytes, Ints, walk, word_view

_RECORD_HEADER_BYTES, _MODIFIED_BYTES = 16, 24
MAGIC: Final = {  # first four bytes -> byte order, nanoseconds in a unit of the fraction, bytes of a record's header
    b"\xd4\xc3\xb2\xa1": ("<", 1000, _RECORD_HEADER_BYTES),
    b"\x4d\x3c\xb2\xa1": ("<", 1, _RECORD_HEADER_BYTES),
    b"\x34\xcd\xb2\xa1": ("<", 1000, _MODIFIED_BYTES),
    b"\xa1\xb2\xc3\xd4": (">", 1000, _RECORD_HEADER_BYTES),
    b"\xa1\xb2\x3c\x4d": (">", 1, _RECORD_HEADER_BYTES),
    b"\xa1\xb2\xcd\x34": (">", 1000, _MODIFIED_BYTES),
}
_FILE_HEADER_BYTES = 24
_MAX_PACKET_BYTES = 1 << 24
_PLAUSIBLE_DAYS = 2


def is_classic(data: Bytes) -> bool:
    """Return whether the bytes begin as a classic pcap file does."""
    return data[:4].tobytes() in MAGIC


class _Layout:
    alignment = 1

    def __init__(self, data: Bytes, order: str, fraction_limit: int, header_bytes: int) -> None:
        self.minimum = header_bytes
        self._data = data.data
        self._words = word_view(data, order)
        self._length = struct.Struct(f"{order}I").unpack_from
        self._fraction_limit = fraction_limit
        self._first_s = int(self._words[_FILE_HEADER_BYTES]) if len(self._words) > _FILE_HEADER_BYTES else 0

    def length(self, at: int) -> int:
        kept: int = self._length(self._data, at + 8)[0]
        return self.minimum + kept if kept <= _MAX_PACKET_BYTES else NONE

    def lengths(self, at: Ints) -> Ints:
        kept = self._words[at + 8].astype(np.int64)
        return np.where(kept <= _MAX_PACKET_BYTES, self.minimum + kept, NONE)

    def plausible(self, at: Ints) -> Bools:
        seconds = self._words[at].astype(np.int64)
        kept = self._words[at + 8]
        return (
            (np.abs(seconds - self._first_s) < _PLAUSIBLE_DAYS * 86400)
            & (self._words[at + 4] < self._fraction_limit)
            & (kept > 0)
            & (kept <= self._words[at + 12])
            & (kept <= 1 << 18)
        )


def read_classic(
    data: Bytes, rule: HostRule, selection: Selection, window_bytes: int | None = None
) -> Iterator[Records]:
    """Yield the packets of a classic pcap file, some at a time (see ``pcapng.read_pcapng``).

    A file too short for its header yields none.

    Args:
        data: the file.
        rule: returns the host of its interface.
        selection: which packets to yield.
        window_bytes: how much of the file is read at a time; None = all of it.
    """
    order, fraction_ns, header_bytes = MAGIC[data[:4].tobytes()]
    if len(data) < _FILE_HEADER_BYTES:
        return
    snaplen, linktype = struct.unpack_from(f"{order}II", data.data, 16)
    interface = Interface("", linktype & 0xFFFF, snaplen, rule.host_of(""))
    layout, words = _Layout(data, order, 10**9 // fraction_ns, header_bytes), word_view(data, order)
    stop, span = _FILE_HEADER_BYTES, window_bytes or len(data)
    while True:
        start, end = stop, min(stop + span, len(data))
        at, stop = walk(layout, start, end)
        if stop == start and end < len(data):  # the next record is longer
            span *= 2
            continue
        span = window_bytes or len(data)
        at = at[selection.range_of(len(at))] if selection.wants(interface.host) else at[:0]
        seconds, fraction = words[at].astype(np.int64), words[at + 4].astype(np.int64)
        yield Records(
            data=data,
            at=at,
            start=at + header_bytes,
            cap_bytes=words[at + 8].astype(np.int64),
            wire_bytes=words[at + 12].astype(np.int64),
            ts_ns=seconds * 10**9 + fraction * fraction_ns,
            interface=np.zeros(len(at), np.int32),
            tap=np.zeros(len(at), np.int8),
            interfaces=[interface],
            unread_bytes=len(data) - stop,
        )
        if end == len(data):
            return
