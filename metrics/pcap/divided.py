"""Divide large captures by connections: each file is read once, from beginning to end, and decoded on the way.

A part has all packets between the two addresses of each of its pairs, at all hosts of the file (``number_pair``).
Packets without addresses are in a part chosen by their host. A divided capture is a folder. A part consists of NumPy
files with one row of ``_ROW`` per packet, one file for each window of the capture that has packets of the part. So a
reader of a part reads nothing else, except for the table ``controls``, which maps the capture to look at the payload of
its packets. Values that only the table ``packets`` needs are left out.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from metrics.pcap.files import Capture, open_capture, read_windows
from metrics.pcap.flows import factorise, first_of, number_pair
from metrics.pcap.headers import IPV6_BASE, Columns, Packets, TapInference, address_text, complete, read_headers
from metrics.pcap.records import Interface, Records
from metrics.pcap.walk import Bools, Ints
from metrics.storage import Place
from metrics.storage.attempts import whole_folder
from metrics.storage.copies import map_array

WINDOW_BYTES: Final = 64 << 20
"""Bytes of a capture file that are read at a time, which takes about eight times as much memory."""

_RECORD: Final = ("ts_ns", "wire_bytes", "interface", "tap")
_ADDRESSES: Final = ("src", "dst", "src_port", "dst_port")
_DECODED: Final = ("nature", *_ADDRESSES, "flags", "seq", "ack", "ip_bytes", "payload_bytes", "identity")
_PAYLOAD: Final = ("payload_start", "payload_kept")
_NARROW: Final = {"interface": "i4", "tap": "i1", "nature": "i1", "flags": "i2"} | dict.fromkeys(
    ("src_port", "dst_port", "ip_bytes", "payload_bytes", "payload_kept"), "i4"
)
_ROW: Final = np.dtype([(name, _NARROW.get(name, "i8")) for name in (*_RECORD, *_DECODED, *_PAYLOAD)])


class _Capture(msgspec.Struct, frozen=True):
    interfaces: list[Interface]
    unread_bytes: int
    unknown_blocks: int
    ipv6: dict[int, list[bytes]]  # the addresses that are numbered in each window, if any
    own: dict[int, str]  # the host's own address at interfaces that do not record directions


def divide_capture(capture: Capture, folder: Place, parts: int, window_bytes: int = WINDOW_BYTES) -> None:
    """Divide a capture file. A file that is not a capture has no packets.

    Args:
        capture: the file.
        folder: where the parts are written; it appears when they are complete.
        parts: how many parts to make.
        window_bytes: how much of the file is read at a time.
    """
    with whole_folder(folder) as attempt:
        _divide(capture, attempt, parts, window_bytes)


def _divide(capture: Capture, folder: Path, parts: int, window_bytes: int) -> None:
    data = open_capture(capture.path, foreign=True)
    interfaces: list[Interface] = []
    unread, unknown, ipv6 = len(data), 0, {}
    inference = TapInference()
    for window, records in enumerate(read_windows(data, capture.rule, window_bytes)):
        columns, tap, addresses = read_headers(records)
        inference.add(records, columns, tap, addresses)
        part_of = _part_of(records, columns, addresses, parts)
        order = np.argsort(part_of, kind="stable")
        rows = np.empty(len(records), _ROW)
        for name in _ROW.names or ():
            rows[name] = _column(name, records, columns, tap)[order]
        bounds = np.searchsorted(part_of[order], np.arange(parts + 1))
        for part in np.flatnonzero(np.diff(bounds)).tolist():
            np.save(folder / f"{part}-{window}.npy", rows[bounds[part] : bounds[part + 1]])
        if addresses:
            ipv6[window] = addresses
        interfaces, unread = records.interfaces, records.unread_bytes
        unknown += records.unknown_blocks
    said = _Capture(interfaces, unread, unknown, ipv6, inference.own_addresses())
    (folder / "capture.json").write_bytes(msgspec.json.encode(said))


def _column(name: str, records: Records, columns: Columns, tap: npt.NDArray[np.int8]) -> npt.NDArray[Any]:
    """Return a column of ``_ROW``."""
    if name == "tap":
        return tap
    if name == "payload_kept":
        return records.start + records.cap_bytes - columns.payload_start
    values: npt.NDArray[Any] = getattr(records if name in _RECORD else columns, name)
    return values


def _part_of(records: Records, columns: Columns, ipv6: list[bytes], parts: int) -> Ints:
    """Return the number of each packet's part."""
    hosts = np.array([each.host for each in records.interfaces] or [0], np.int64)
    pair, count = factorise(np.minimum(columns.src, columns.dst), np.maximum(columns.src, columns.dst))
    one = first_of(pair, count)
    ends = zip(columns.src[one].tolist(), columns.dst[one].tolist(), strict=True)
    numbers = [
        number_pair(address_text(src, ipv6), address_text(dst, ipv6), parts) if min(src, dst) >= 0 else -1
        for src, dst in ends
    ]
    found = np.array(numbers, np.int64)[pair]
    return np.where(found < 0, hosts[records.interface] % parts, found).astype(np.int32)


class CapturePart:
    """The packets of a part.

    Args:
        folder: the divided capture.
        part: which part.
        capture: the file itself, if the payload of packets is wanted; None = it is not read.

    Attributes:
        interfaces: the interfaces of the whole file.
        unread_bytes: of the whole file; see ``Records``.
        unknown_blocks: likewise.
    """

    def __init__(self, folder: Place, part: int, capture: Place | None = None) -> None:
        said = msgspec.json.decode((folder / "capture.json").read_bytes(), type=_Capture)
        self.interfaces, self.unread_bytes, self.unknown_blocks = (
            said.interfaces,
            said.unread_bytes,
            said.unknown_blocks,
        )
        self._ipv6, self._own = said.ipv6, said.own
        self._data = np.empty(0, np.uint8) if capture is None else open_capture(capture, foreign=True)
        windows = sorted(int(path.stem.partition("-")[2]) for path in folder.glob(f"{part}-*.npy"))
        self._files = {window: folder / f"{part}-{window}.npy" for window in windows}

    def count_packets(self) -> Ints:
        """Return how many packets each interface has."""
        counts = np.zeros(len(self.interfaces), np.int64)
        for file in self._files.values():
            counts += np.bincount(map_array(file)["interface"], minlength=len(counts))
        return counts

    def packets(self, chosen: Bools | None) -> Packets:
        """Return the decoded packets of some interfaces; None = all."""
        ipv6: dict[bytes, int] = {}
        found = [np.empty(0, _ROW)]
        for window, file in self._files.items():
            mapped = map_array(file)
            rows = np.array(mapped if chosen is None else mapped[chosen[mapped["interface"]]])
            addresses = self._ipv6.get(window)
            if addresses:
                number = np.array([ipv6.setdefault(each, len(ipv6)) for each in addresses])
                for name in ("src", "dst"):
                    six = rows[name] >= IPV6_BASE
                    rows[name][six] = IPV6_BASE + number[rows[name][six] - IPV6_BASE]
            found.append(rows)
        rows = np.concatenate(found)
        nothing: npt.NDArray[Any] = np.broadcast_to(np.int64(-1), len(rows))
        start = np.ascontiguousarray(rows["payload_start"])
        known: dict[str, Any] = {name: np.ascontiguousarray(rows[name]) for name in _RECORD}
        known |= {"at": nothing, "start": start, "cap_bytes": np.ascontiguousarray(rows["payload_kept"])}
        records = Records(self._data, **known, interfaces=self.interfaces)
        decoded = {name: np.ascontiguousarray(rows[name]) for name in _DECODED}
        columns = Columns(**decoded, payload_start=start, **dict.fromkeys(("proto", "window"), nothing))
        return complete(records, columns, records.tap.copy(), list(ipv6), self._own)
