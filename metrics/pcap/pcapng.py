"""Pcapng files: sections of either endianness, interfaces, enhanced and simple packets, interface statistics.

Source: draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from metrics.pcap.records import RX, TX, Interface, Records, no_records
from metrics.pcap.walk import Bools, Bytes, Ints, walk, word_view

_SECTION, _INTERFACE, _SIMPLE, _STATISTICS, _ENHANCED = 0x0A0D0D0A, 1, 3, 5, 6
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_IF_NAME, _IF_TSRESOL, _IF_TSOFFSET = 2, 9, 14
_IFDROP, _OSDROP = 5, 7
_EPB_FLAGS = 2
_SNAPLEN_UNLIMITED = 1 << 18
_DIRECTION_TAP = np.array([0, RX, TX, 0], np.int8)  # epb_flags' two low bits: unknown, inbound, outbound, -


def is_pcapng(data: Bytes) -> bool:
    """Whether the bytes begin as a pcapng file does."""
    return data[:4].tobytes() == b"\x0a\x0d\x0d\x0a"


class _Layout:
    minimum = 12
    alignment = 4

    def __init__(self, data: Bytes, order: str) -> None:
        self._bytes, self._data = data, data.data
        self._words = word_view(data, order)
        self._last = max(len(self._words) - 12, 0)
        self._header = struct.Struct(f"{order}II").unpack_from
        self._order = order

    def length(self, at: int) -> int:
        kind, length = self._header(self._data, at)
        if length % 4 or (kind == _SECTION and _order_at(self._bytes, at) != self._order):
            return 0
        return int(length)

    def lengths(self, at: Ints) -> Ints:
        length = self._words[np.minimum(at, self._last) + 4].astype(np.int64)
        return np.where(length % 4 == 0, length, 0)

    def plausible(self, at: Ints) -> Bools:
        at = np.minimum(at, self._last)
        length = self._words[at + 4].astype(np.int64)
        trailer = np.minimum(at + length - 4, len(self._words) - 1)
        return (  # type: ignore[no-any-return]
            (self._words[at] == _ENHANCED) & (length >= 32) & (self._words[trailer] == length)
        )


@dataclass
class _Section:
    """The blocks of a section, and what its special blocks said."""

    order: str
    blocks: Ints
    interfaces: list[Interface] = field(default_factory=list)


def read_pcapng(data: Bytes) -> Records:
    """The packets of a pcapng file. What cannot be read is counted; a self-contradicting block ends the walk."""
    parts: list[Records] = []
    interfaces: list[Interface] = []
    unknown = at = 0
    while at < len(data) and (order := _order_at(data, at)) is not None:
        blocks, stop = _blocks(data, order, at)
        if not len(blocks):
            break
        for section in _sections(data, order, blocks):
            part = _packets(data, section)
            part.interface += len(interfaces)
            interfaces += section.interfaces
            unknown += part.unknown_blocks
            parts.append(part)
        at = stop
    if not parts:
        return no_records(data, len(data))
    columns = ("at", "start", "cap_bytes", "wire_bytes", "ts_ns", "interface", "tap")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    return Records(data, **joined, interfaces=interfaces, unread_bytes=len(data) - at, unknown_blocks=unknown)


def _order_at(data: Bytes, at: int) -> str | None:
    """The byte order of the section that starts here, None if none does."""
    if at + 28 > len(data) or data[at : at + 4].tobytes() != b"\x0a\x0d\x0d\x0a":
        return None
    return _ORDERS.get(data[at + 8 : at + 12].tobytes())


def _blocks(data: Bytes, order: str, start: int) -> tuple[Ints, int]:
    """The blocks up to the file's end, the first inconsistent one, or the first section of another byte order."""
    at, stop = walk(_Layout(data, order), start, len(data))
    words = word_view(data, order)
    if len(at):
        bad = words[at + words[at + 4].astype(np.int64) - 4] != words[at + 4]
        bad |= (words[at] == _ENHANCED) & (words[at + 4] < 32) | (words[at] == _SIMPLE) & (words[at + 4] < 16)
        bad[words[at] == _SECTION] |= [_order_at(data, int(each)) != order for each in at[words[at] == _SECTION]]
        if bad.any():
            first = int(np.argmax(bad))
            at, stop = at[:first], int(at[first])
    return at, stop


def _sections(data: Bytes, order: str, blocks: Ints) -> Iterator[_Section]:
    kinds = word_view(data, order)[blocks]
    starts = np.flatnonzero(kinds == _SECTION)
    for first, last in zip(starts, [*starts[1:], len(blocks)], strict=True):
        section = _Section(order, blocks[first:last])
        special = np.isin(kinds[first:last], (_INTERFACE, _STATISTICS))
        for at in section.blocks[special]:
            _read_special(data, section, int(at))
        yield section


def _read_special(data: Bytes, section: _Section, at: int) -> None:
    order = section.order
    kind, length = struct.unpack_from(f"{order}II", data.data, at)
    if kind == _INTERFACE and length >= 20:
        linktype, snaplen = struct.unpack_from(f"{order}HxxI", data.data, at + 8)
        options = _options(data, order, at + 16, at + length - 4)
        resolution = options.get(_IF_TSRESOL, b"\x06")[0]
        offset = options.get(_IF_TSOFFSET, b"")
        section.interfaces.append(
            Interface(
                name=options.get(_IF_NAME, b"").rstrip(b"\0").decode(errors="replace"),
                linktype=linktype,
                snaplen=snaplen,
                resolution=resolution & 0x7F,
                binary_resolution=bool(resolution & 0x80),
                offset_s=struct.unpack(f"{order}q", offset)[0] if len(offset) == 8 else 0,
            )
        )
    elif kind == _STATISTICS and length >= 24:
        (number,) = struct.unpack_from(f"{order}I", data.data, at + 8)
        counts = [_options(data, order, at + 20, at + length - 4).get(code, b"") for code in (_IFDROP, _OSDROP)]
        if number < len(section.interfaces) and any(len(count) == 8 for count in counts):
            dropped = sum(struct.unpack(f"{order}Q", count)[0] for count in counts if len(count) == 8)
            section.interfaces[number].dropped = min(dropped, 2**63 - 1)


def _options(data: Bytes, order: str, at: int, end: int) -> dict[int, bytes]:
    """The options of a block, the first of each code; those that do not fit end the list."""
    options: dict[int, bytes] = {}
    while at + 4 <= end:
        code, length = struct.unpack_from(f"{order}HH", data.data, at)
        if code == 0 or at + 4 + length > end:
            break
        if length:
            options.setdefault(code, data[at + 4 : at + 4 + length].tobytes())
        at += 4 + (length + 3) // 4 * 4
    return options


def _packets(data: Bytes, section: _Section) -> Records:
    words, blocks, count = word_view(data, section.order), section.blocks, len(section.interfaces)
    kinds = words[blocks]
    enhanced, simple = kinds == _ENHANCED, kinds == _SIMPLE
    length = words[blocks + 4].astype(np.int64)
    # One gather for both kinds: a simple packet's fields are overwritten after it.
    interface = np.where(enhanced, words[blocks + 8], 0).astype(np.int64)
    inner = np.where(enhanced, blocks, 0)
    cap, wire = words[inner + 20].astype(np.int64), words[inner + 24].astype(np.int64)
    start, room = blocks + 28, length - 32
    if simple.any():
        snaplen = (section.interfaces[0].snaplen if count else 0) or _SNAPLEN_UNLIMITED
        wire[simple] = words[blocks[simple] + 8]
        start[simple], room[simple] = blocks[simple] + 12, length[simple] - 16
        cap[simple] = np.minimum(np.minimum(wire[simple], room[simple]), snaplen)
    packet = (enhanced | simple) & (interface < count) & (cap <= room)
    special = np.isin(kinds, (_SECTION, _INTERFACE, _STATISTICS))
    at = blocks[packet]
    ticks = (words[at + 12].astype(np.uint64) << np.uint64(32)) | words[np.minimum(at + 16, len(words) - 1)]
    ts_ns = _nanoseconds(ticks, interface[packet], section.interfaces)
    if simple.any():
        ts_ns = _fill_from_before(ts_ns, simple[packet])
    options_at = start[packet] + (cap[packet] + 3) // 4 * 4
    flags = _packet_flags(data, section.order, options_at, at + length[packet] - 4, enhanced[packet])
    return Records(
        data=data,
        at=at,
        start=start[packet],
        cap_bytes=cap[packet],
        wire_bytes=wire[packet],
        ts_ns=ts_ns,
        interface=interface[packet].astype(np.int32),
        tap=_DIRECTION_TAP[flags & 3],
        unknown_blocks=int((~packet & ~special).sum()),
    )


def _nanoseconds(ticks: npt.NDArray[np.uint64], interface: Ints, interfaces: list[Interface]) -> Ints:
    ts_ns = np.empty(len(ticks), np.int64)
    units = {(each.resolution, each.binary_resolution, each.offset_s) for each in interfaces}
    for unit in units:
        same = [(each.resolution, each.binary_resolution, each.offset_s) == unit for each in interfaces]
        rows = np.array(same)[interface] if len(units) > 1 else slice(None)
        resolution, binary, offset_s = unit
        scaled = _scale_binary(ticks[rows], resolution) if binary else _scale_decimal(ticks[rows], resolution)
        ts_ns[rows] = scaled.astype(np.int64) + np.int64(_wrap(offset_s * 10**9))
    return ts_ns


def _wrap(value: int) -> int:
    """Into 64 bits: an absurd offset in a damaged file is no reason to stop."""
    return (value + 2**63) % 2**64 - 2**63


def _scale_decimal(ticks: npt.NDArray[np.uint64], digits: int) -> npt.NDArray[np.uint64]:
    if digits <= 9:
        return ticks * np.uint64(10 ** (9 - digits))
    return ticks // np.uint64(10 ** min(digits - 9, 19))


def _scale_binary(ticks: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """Whole seconds and the fraction apart, the latter cut to 33 bits, so that nothing overflows."""
    bits = min(bits, 63)
    seconds, fraction = ticks >> np.uint64(bits), ticks & np.uint64((1 << bits) - 1)
    kept = min(bits, 33)
    return seconds * np.uint64(10**9) + ((fraction >> np.uint64(bits - kept)) * np.uint64(10**9) >> np.uint64(kept))


def _fill_from_before(ts_ns: Ints, untimed: Bools) -> Ints:
    """Untimed packets take the time of the last timed one before them, the first ones that of the first after them."""
    timed = np.flatnonzero(~untimed)
    if not len(timed):
        return np.zeros_like(ts_ns)
    before = np.searchsorted(timed, np.arange(len(ts_ns)), "right") - 1
    return ts_ns[timed[np.maximum(before, 0)]]


def _packet_flags(data: Bytes, order: str, at: Ints, end: Ints, has_options: Bools) -> npt.NDArray[np.uint32]:
    """Every packet's epb_flags, 0 where it has none: all packets' option lists are walked abreast."""
    flags = np.zeros(len(at), np.uint32)
    words = word_view(data, order)
    shift_code, shift_length = (0, 16) if order == "<" else (16, 0)
    rows = np.flatnonzero(has_options & (at + 8 <= end))
    at, end = at[rows], end[rows]
    while len(rows):
        head = words[at].astype(np.int64)
        code, length = head >> shift_code & 0xFFFF, head >> shift_length & 0xFFFF
        found = (code == _EPB_FLAGS) & (length == 4)
        flags[rows[found]] = words[at[found] + 4]
        at = at + 4 + (length + 3) // 4 * 4
        more = ~found & (code != 0) & (at + 8 <= end)
        rows, at, end = rows[more], at[more], end[more]
    return flags
