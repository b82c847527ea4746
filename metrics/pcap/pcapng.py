"""Read pcapng files: sections of either endianness, interfaces, packets of all three kinds, interface statistics.

Source: draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from metrics.pcap.records import RX, TX, HostRule, Interface, Records, Selection, join
from metrics.pcap.walk import NONE, Bools, Bytes, Ints, as_slice, gather, walk, word_view

_SECTION, _INTERFACE, _OLD, _SIMPLE, _STATISTICS, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 5, 6
SECTION_MAGIC: Final = b"\x0a\x0d\x0d\x0a"
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_IF_NAME, _IF_TSRESOL, _IF_TSOFFSET = 2, 9, 14
_IFDROP, _OSDROP = 5, 7
_EPB_FLAGS = 2
_SNAPLEN_UNLIMITED = 1 << 18
_DIRECTION_TAP = np.array([0, RX, TX, 0], np.int8)  # epb_flags' two low bits: unknown, inbound, outbound, -


def is_pcapng(data: Bytes) -> bool:
    """Return whether the bytes begin as a pcapng file does."""
    return data[:4].tobytes() == SECTION_MAGIC and (len(data) < 12 or data[8:12].tobytes() in _ORDERS)


class _Layout:
    minimum = 12
    alignment = 4

    def __init__(self, data: Bytes, order: str) -> None:
        self._bytes, self._data = data, data.data
        self._words = word_view(data, order)
        self._header = struct.Struct(f"{order}II").unpack_from
        self._order = order

    def length(self, at: int) -> int:
        kind, length = self._header(self._data, at)
        if length < self.minimum or length % 4 or (kind == _SECTION and _order_at(self._bytes, at) != self._order):
            return NONE
        return int(length)

    def lengths(self, at: Ints) -> Ints:
        length = self._words[at + 4].astype(np.int64)
        return np.where(length < self.minimum, NONE, length)

    def plausible(self, at: Ints) -> Bools:
        found: Bools = self._words[at] == _ENHANCED
        length = self._words[at[found] + 4].astype(np.int64)
        trailer = np.minimum(at[found] + length - 4, len(self._words) - 1)
        found[found] = (length >= 32) & (self._words[trailer] == length)
        return found


def _words(*names: str, order: str) -> np.dtype[np.void]:
    """Return a structure of 32-bit words."""
    return np.dtype([(name, f"{order}u4") for name in names])


@dataclass
class _Blocks:
    """Blocks of one byte order in a row: offsets, types, lengths, and what follows: a packet's interface."""

    at: Ints
    kind: npt.NDArray[np.uint32]
    length: Ints
    interface: npt.NDArray[np.uint32]

    def __getitem__(self, rows: npt.NDArray[np.generic] | slice) -> _Blocks:
        return _Blocks(self.at[rows], self.kind[rows], self.length[rows], self.interface[rows])


@dataclass
class _Section:
    """A section, or the part of it that is in one window: its blocks, and the interfaces described so far."""

    order: str
    blocks: _Blocks
    interfaces: list[Interface] = field(default_factory=list)
    last_ns: int | None = None  # the time of the last packet of earlier windows that has one


def read_pcapng(
    data: Bytes, rule: HostRule, selection: Selection, window_bytes: int | None = None
) -> Iterator[Records]:
    """Yield the selected packets, some at a time. Count unreadable bytes, and end at a block that contradicts itself.

    Args:
        data: the file.
        rule: returns the hosts of its interfaces.
        selection: which packets to yield.
        window_bytes: how much of the file is read at a time, unless a block is longer; None = all of it.

    Yields:
        Packets of consecutive windows. ``interfaces`` is one list, complete at the end; the last item has the right
        ``unread_bytes``.
    """
    interfaces: list[Interface] = []  # of all sections
    section: _Section | None = None
    at = 0
    while at < len(data):
        order = _order_at(data, at) or (None if section is None else section.order)
        if order is None:
            return
        blocks, stop = _next_blocks(data, order, at, window_bytes)
        if not len(blocks.at):
            return
        parts = []
        for begins, own in _split_sections(blocks):
            if begins or section is None:
                section = _Section(order, own)
            section.blocks = own
            first = len(interfaces) - len(section.interfaces)
            for special in own.at[_is_one_of(own.kind, _INTERFACE, _STATISTICS)]:
                _read_special(data, section, int(special))
            for interface in section.interfaces[len(interfaces) - first :]:
                interface.host = rule.host_of(interface.name)
                interfaces.append(interface)
            part = _packets(data, section, selection)
            part.interface += first
            parts.append(part)
        at = stop
        yield replace(join(parts), interfaces=interfaces, unread_bytes=len(data) - at)


def _next_blocks(data: Bytes, order: str, at: int, window_bytes: int | None) -> tuple[_Blocks, int]:
    """Return the blocks in a window, which grows until one fits; none only if none follows in the file."""
    while True:
        end = len(data) if window_bytes is None else min(at + window_bytes, len(data))
        blocks, stop = _blocks(data, order, at, end)
        if window_bytes is None or len(blocks.at) or end == len(data):
            return blocks, stop
        window_bytes *= 2


def _order_at(data: Bytes, at: int) -> str | None:
    """Return the byte order of the section that starts here; None if none does."""
    if at + 28 > len(data) or data[at : at + 4].tobytes() != SECTION_MAGIC:
        return None
    return _ORDERS.get(data[at + 8 : at + 12].tobytes())


def _blocks(data: Bytes, order: str, start: int, end: int) -> tuple[_Blocks, int]:
    """Return the blocks up to an end, the first inconsistent one, or the first section of another byte order."""
    at, stop = walk(_Layout(data, order), start, end)
    words, head = word_view(data, order), gather(data, at, _words("kind", "length", "interface", order=order))
    blocks = _Blocks(at, head["kind"].copy(), head["length"].astype(np.int64), head["interface"].copy())
    if len(at):
        bad = (words[at + blocks.length - 4] != blocks.length) | (blocks.length & 3 != 0)
        old = blocks.kind == _OLD
        bad |= (blocks.length < 32) & (old | (blocks.kind == _ENHANCED)) | (blocks.length < 16) & (
            blocks.kind == _SIMPLE
        )
        if old.any():  # two bytes are the interface, and two bytes count drops
            blocks.interface[old] = blocks.interface[old] >> (0 if order == "<" else 16) & 0xFFFF
        sections = np.flatnonzero(blocks.kind == _SECTION)
        bad[sections] |= np.array([_order_at(data, int(each)) != order for each in at[sections]], np.bool_)
        if bad.any():
            first = int(np.argmax(bad))
            return blocks[:first], int(at[first])
    return blocks, stop


def _split_sections(blocks: _Blocks) -> Iterator[tuple[bool, _Blocks]]:
    """Yield the blocks of each section, and whether they begin it."""
    starts = np.flatnonzero(blocks.kind == _SECTION)
    bounds = np.unique(np.concatenate(([0], starts, [len(blocks.at)])))
    for first, last in pairwise(bounds.tolist()):
        yield bool(blocks.kind[first] == _SECTION), blocks[first:last]


def _is_one_of(kind: npt.NDArray[np.uint32], *wanted: int) -> Bools:
    found: Bools = kind == wanted[0]
    for each in wanted[1:]:
        found |= kind == each
    return found


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
    """Return the options of a block, the first of each code; options that do not fit end the list."""
    options: dict[int, bytes] = {}
    while at + 4 <= end:
        code, length = struct.unpack_from(f"{order}HH", data.data, at)
        if code == 0 or at + 4 + length > end:
            break
        if length:
            options.setdefault(code, data[at + 4 : at + 4 + length].tobytes())
        at += 4 + (length + 3) // 4 * 4
    return options


def _packets(data: Bytes, section: _Section, selection: Selection) -> Records:
    blocks, count = section.blocks, len(section.interfaces)
    simple = blocks.kind == _SIMPLE
    blocks.interface[simple] = 0
    is_packet = (simple | _is_one_of(blocks.kind, _ENHANCED, _OLD)) & (blocks.interface < count)
    unknown = ~is_packet & ~_is_one_of(blocks.kind, _SECTION, _INTERFACE, _STATISTICS)
    chosen = np.zeros(len(simple), np.bool_)
    chosen[selection.range_of(len(simple))] = True
    if selection.by_host:
        wanted = np.array([selection.wants(each.host) for each in section.interfaces] or [False])
        chosen &= wanted[np.minimum(blocks.interface, len(wanted) - 1)]
    # A packet without a time needs its predecessor's, wanted or not.
    early = is_packet & (chosen | simple.any())
    records = _read_blocks(data, section, blocks[as_slice(np.flatnonzero(early))])
    if simple.any():
        records = records.select(np.flatnonzero(chosen[early]))
    records.unknown_blocks = int(unknown.sum())
    return records


def _read_blocks(data: Bytes, section: _Section, blocks: _Blocks) -> Records:
    """Return the packets of such blocks. A length beyond the block's end is cut there."""
    at, is_simple = blocks.at, blocks.kind == _SIMPLE
    inner = np.minimum(at + 12, len(data) - 16)  # a simple block may end the file too early for these, and needs none
    head = gather(data, inner, _words("high", "low", "cap", "wire", order=section.order))
    cap, wire = head["cap"].astype(np.int64), head["wire"].astype(np.int64)
    start, room = at + 28, blocks.length - 32
    ticks = head["high"].astype(np.uint64) << np.uint64(32) | head["low"]
    ts_ns = _nanoseconds(ticks, blocks.interface, section.interfaces)
    if is_simple.any():
        simple = np.flatnonzero(is_simple)
        wire[simple] = word_view(data, section.order)[at[simple] + 8]
        start[simple], room[simple] = at[simple] + 12, blocks.length[simple] - 16
        cap[simple] = np.minimum(wire[simple], section.interfaces[0].snaplen or _SNAPLEN_UNLIMITED)
        ts_ns = _fill_from_before(ts_ns, is_simple, section.last_ns)
    if not is_simple.all():
        section.last_ns = int(ts_ns[-1])  # the time of a packet that has one, or took the last one's
    cap = np.minimum(cap, room)
    options_at = start + (cap + 3 & ~3)
    flags = _packet_flags(data, section.order, options_at, at + blocks.length - 4, ~is_simple)
    return Records(
        data=data,
        at=at,
        start=start,
        cap_bytes=cap,
        wire_bytes=wire,
        ts_ns=ts_ns,
        interface=blocks.interface.astype(np.int32),
        tap=_DIRECTION_TAP[flags & 3],
    )


def _nanoseconds(ticks: npt.NDArray[np.uint64], interface: npt.NDArray[np.uint32], interfaces: list[Interface]) -> Ints:
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
    """Wrap a value into 64 bits: an absurd offset in a damaged file must not stop the reader."""
    return (value + 2**63) % 2**64 - 2**63


def _scale_decimal(ticks: npt.NDArray[np.uint64], digits: int) -> npt.NDArray[np.uint64]:
    if digits <= 9:
        return ticks * np.uint64(10 ** (9 - digits))
    return ticks // np.uint64(10 ** min(digits - 9, 19))


def _scale_binary(ticks: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """Scale whole seconds and the fraction separately, with 33 bits of the fraction, so that nothing overflows."""
    bits = min(bits, 63)
    seconds, fraction = ticks >> np.uint64(bits), ticks & np.uint64((1 << bits) - 1)
    kept = min(bits, 33)
    return seconds * np.uint64(10**9) + ((fraction >> np.uint64(bits - kept)) * np.uint64(10**9) >> np.uint64(kept))


def _fill_from_before(ts_ns: Ints, untimed: Bools, last_ns: int | None) -> Ints:
    """Give untimed packets the time of the last timed one before them, or of the first one after them.

    Before these packets there was one at ``last_ns``, if that is known. Later packets are not looked at.
    """
    if last_ns is not None:
        return _fill_from_before(np.append(last_ns, ts_ns), np.append(False, untimed), None)[1:]
    timed = np.flatnonzero(~untimed)
    if not len(timed):
        return np.zeros_like(ts_ns)
    before = np.searchsorted(timed, np.arange(len(ts_ns)), "right") - 1
    return ts_ns[timed[np.maximum(before, 0)]]


def _packet_flags(data: Bytes, order: str, at: Ints, end: Ints, has_options: Bools) -> npt.NDArray[np.uint32]:
    """Return every packet's epb_flags, 0 if it has none: the option lists of all packets are walked together."""
    flags = np.zeros(len(at), np.uint32)
    layout = np.dtype([("code", f"{order}u2"), ("length", f"{order}u2"), ("value", f"{order}u4")])
    rows = np.flatnonzero(has_options & (at + 8 <= end))
    at, end = at[rows], end[rows]
    while len(rows):
        option = gather(data, at, layout)
        code, length = option["code"], option["length"].astype(np.int64)
        found = (code == _EPB_FLAGS) & (length == 4)
        flags[rows[found]] = option["value"][found]
        at = at + 4 + (length + 3 & ~3)
        more = np.flatnonzero(~found & (code != 0) & (at + 8 <= end))
        rows, at, end = rows[more], at[more], end[more]
    return flags
