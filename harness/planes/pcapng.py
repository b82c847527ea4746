"""pcapng blocks, little-endian.

Source: draft-ietf-opsawg-pcapng, sections 4.1 (section header), 4.2 (interface description), 4.3 (enhanced packet)
and 4.6 (interface statistics).
"""

from collections.abc import Iterable
from struct import Struct, pack

LINKTYPE_RAW = 101
INBOUND, OUTBOUND = 1, 2
"""Directions in ``epb_flags``, from the host's point of view: outbound = the host sent the packet."""

_SECTION_HEADER, _INTERFACE, _STATISTICS, _ENHANCED = 0x0A0D0D0A, 1, 5, 6
_IF_NAME, _IF_TSRESOL = 2, 9
_EPB_FLAGS = 2
_ISB_STARTTIME, _ISB_ENDTIME, _ISB_IFRECV, _ISB_IFDROP = 2, 3, 4, 5
_NANOSECONDS = 9
_EPB_FLAGS_HEADER = 4 << 16 | _EPB_FLAGS
_END_OF_OPTIONS = 0


def section_header() -> bytes:
    """Return the header of a section of unknown length."""
    return _block(_SECTION_HEADER, pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(name: str, snaplen_bytes: int) -> bytes:
    """Return the description of an interface with raw IP packets and timestamps in nanoseconds."""
    options = [(_IF_NAME, name.encode()), (_IF_TSRESOL, bytes([_NANOSECONDS]))]
    return _block(_INTERFACE, pack("<HHI", LINKTYPE_RAW, 0, snaplen_bytes) + _options(options))


def statistics(index: int, start_ns: int, end_ns: int, received: int, dropped: int) -> bytes:
    """Return an interface's statistics between the two instants."""
    options = [
        (_ISB_STARTTIME, pack("<II", start_ns >> 32, start_ns & 0xFFFFFFFF)),
        (_ISB_ENDTIME, pack("<II", end_ns >> 32, end_ns & 0xFFFFFFFF)),
        (_ISB_IFRECV, pack("<Q", received)),
        (_ISB_IFDROP, pack("<Q", dropped)),
    ]
    return _block(_STATISTICS, pack("<III", index, end_ns >> 32, end_ns & 0xFFFFFFFF) + _options(options))


class PacketForms:
    """Enhanced packet blocks with a direction. Each captured length has a compiled form, so a block is one call."""

    def __init__(self, snaplen_bytes: int) -> None:
        self._snaplen_bytes = snaplen_bytes
        forms = [Struct(f"<7I{captured}s{-captured % 4}x4I") for captured in range(snaplen_bytes + 1)]
        self._sizes = [form.size for form in forms]
        self._packs = [form.pack for form in forms]

    def packet(self, index: int, direction: int, stamp_ns: int, data: bytes, original: int = 0) -> bytes:
        """Return a packet's block, cut at the snap length. ``original``: the packet's length if ``data`` is cut."""
        original = original or len(data)
        captured = original if original < self._snaplen_bytes else self._snaplen_bytes
        total = self._sizes[captured]
        high, low = stamp_ns >> 32, stamp_ns & 0xFFFFFFFF
        head = (_ENHANCED, total, index, high, low, captured, original)
        return self._packs[captured](*head, data, _EPB_FLAGS_HEADER, direction, _END_OF_OPTIONS, total)


def _block(kind: int, body: bytes) -> bytes:
    total = len(body) + 12
    return pack("<II", kind, total) + body + pack("<I", total)


def _options(options: Iterable[tuple[int, bytes]]) -> bytes:
    encoded = [pack("<HH", code, len(value)) + value + bytes(-len(value) % 4) for code, value in options]
    return b"".join(encoded) + pack("<HH", 0, 0)
