"""The records of a capture file: where each packet's bytes are, and when, where and which way it was seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.pcap.walk import Bytes, Ints

UNKNOWN_HOST = -1
MID, TX, RX, OTHER_HOST = 0, 1, 2, 3
TAPS = ("mid", "tx", "rx")
"""Names of the direction codes: the capture does not say; left the host that recorded it; arrived at that host.

``OTHER_HOST`` is only in records and headers: by the capture, neither the sender nor the receiver recorded the packet.
Such packets become ``MID``, and no direction is inferred for them.
"""


@dataclass
class Interface:
    """An interface as its capture describes it."""

    name: str
    linktype: int
    snaplen: int
    host: int = UNKNOWN_HOST
    resolution: int = 9
    binary_resolution: bool = False
    offset_s: int = 0
    dropped: int | None = None


@dataclass
class Records:
    """A capture's packets as columns, in the file's order."""

    data: Bytes  # the whole file
    at: Ints  # each record's offset in the file
    start: Ints  # its packet's first byte
    cap_bytes: Ints  # how many of the packet's bytes were kept
    wire_bytes: Ints  # how many bytes the packet had
    ts_ns: Ints  # nanoseconds since the epoch. A pcapng simple packet has no time and takes its predecessor's
    interface: npt.NDArray[np.int32]  # index into ``interfaces``
    tap: npt.NDArray[np.int8]  # MID, TX, RX or OTHER_HOST
    interfaces: list[Interface] = field(default_factory=list)
    unread_bytes: int = 0  # bytes after the last whole record
    unknown_blocks: int = 0  # pcapng blocks of no known type, or at an interface that was never described

    def __len__(self) -> int:
        return len(self.at)

    def select(self, rows: npt.NDArray[np.generic] | slice) -> Records:
        """Return the same capture with these packets only."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})


COLUMNS = ("at", "start", "cap_bytes", "wire_bytes", "ts_ns", "interface", "tap")
"""The fields of ``Records`` that have a value per packet."""


def join(parts: Sequence[Records]) -> Records:
    """Join one or more parts of a file; everything except the packets comes from the first part."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    return replace(parts[0], **joined, unknown_blocks=sum(part.unknown_blocks for part in parts))


@dataclass(frozen=True)
class Selection:
    """The packets of a file that are wanted: the ``part``-th of ``parts``, by host (index modulo parts) or by place."""

    part: int = 0
    parts: int = 1
    by_host: bool = False

    def wants(self, host: int) -> bool:
        """Return whether a host's packets are among the packets that are wanted by host."""
        return not self.by_host or host % self.parts == self.part

    def range_of(self, count: int) -> slice:
        """Return which of ``count`` records in a row are wanted by place."""
        if self.by_host:
            return slice(0, count)
        return slice(count * self.part // self.parts, count * (self.part + 1) // self.parts)


EVERYTHING = Selection()


def no_records(data: Bytes, unread_bytes: int) -> Records:
    """Return the records of a file in which nothing could be read."""
    none = np.empty(0, np.int64)
    return Records(
        data, none, none, none, none, none, none.astype(np.int32), none.astype(np.int8), unread_bytes=unread_bytes
    )


_INTERFACE_OF_HOST = re.compile(r"[0-9]{1,9}")
_FILE_OF_HOST = re.compile(r"(?:host|node|peer|h|n)[-_]?([0-9]{1,9})(?:-eth[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class HostRule:
    """Finds the host of an interface.

    The data plane gives an interface the number of its host as a name. Otherwise, the name of the file has the number,
    if it is that of one host: ``host-12.pcap``, ``node3.pcapng``, ``h1-eth0.pcap``. Any other number in a name does not
    stand for a host (a date, a part of the recording).

    Args:
        file_name: the file's name without folders.
        contested: hosts that other files claim, too; it is not known which of the files is meant.
    """

    file_name: str = ""
    contested: frozenset[int] = frozenset()

    def host_of(self, if_name: str) -> int:
        """Return the host's number; below zero if none is known.

        Contested hosts have different numbers below zero, so that they do not count as one host within their file.
        """
        if _INTERFACE_OF_HOST.fullmatch(if_name):
            host = int(if_name)
        else:
            found = _FILE_OF_HOST.fullmatch(self.file_name.partition(".")[0])
            host = int(found.group(1)) if found else UNKNOWN_HOST
        return UNKNOWN_HOST - 1 - host if host in self.contested else host


NO_NAME = HostRule()


def host_column(hosts: npt.NDArray[np.int32]) -> pa.Array:
    """Return hosts as a column, with null if none is known."""
    return pa.array(hosts, pa.int32(), mask=hosts < 0)
