"""A capture file's records: where each packet's bytes are, when it was seen, at which interface, in which direction."""

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
"""Names of the direction codes: not said by the capture; left the host that recorded it; arrived there.

``OTHER_HOST`` is only in records and headers: by the capture, neither the sender nor the receiver recorded it. Such
packets become ``MID``, and no direction is inferred for them.
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
    wire_bytes: Ints  # of how many
    ts_ns: Ints  # nanoseconds since the epoch. A pcapng simple packet has no time and takes its predecessor's
    interface: npt.NDArray[np.int32]  # index into ``interfaces``
    tap: npt.NDArray[np.int8]  # MID, TX, RX or OTHER_HOST
    interfaces: list[Interface] = field(default_factory=list)
    unread_bytes: int = 0  # what follows the last whole record
    unknown_blocks: int = 0  # pcapng blocks of no known type, or at an interface that was never described

    def __len__(self) -> int:
        return len(self.at)

    def select(self, rows: npt.NDArray[np.generic] | slice) -> Records:
        """The same capture with these packets only."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})


COLUMNS = ("at", "start", "cap_bytes", "wire_bytes", "ts_ns", "interface", "tap")
"""The fields of ``Records`` that have a value per packet."""


def join(parts: Sequence[Records]) -> Records:
    """The packets of one or more parts of a file in a row; the rest is the first one's."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    return replace(parts[0], **joined, unknown_blocks=sum(part.unknown_blocks for part in parts))


@dataclass(frozen=True)
class Selection:
    """Which packets of a file are wanted: the ``part``-th of ``parts``, by host (index modulo parts) or by place."""

    part: int = 0
    parts: int = 1
    by_host: bool = False

    def wants(self, host: int) -> bool:
        """Whether a host's packets are among those wanted by host."""
        return not self.by_host or host % self.parts == self.part

    def range_of(self, count: int) -> slice:
        """Which of ``count`` records in a row are wanted by place."""
        if self.by_host:
            return slice(0, count)
        return slice(count * self.part // self.parts, count * (self.part + 1) // self.parts)


EVERYTHING = Selection()


def no_records(data: Bytes, unread_bytes: int) -> Records:
    """A file in which nothing could be read."""
    none = np.empty(0, np.int64)
    return Records(
        data, none, none, none, none, none, none.astype(np.int32), none.astype(np.int8), unread_bytes=unread_bytes
    )


_INTERFACE_OF_HOST = re.compile(r"[0-9]{1,9}")
_FILE_OF_HOST = re.compile(r"(?:host|node|peer|h|n)[-_]?([0-9]{1,9})(?:-eth[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class HostRule:
    """How the host of an interface is known.

    The data plane names an interface by its host's number. Otherwise, the name of the file says the number, if it is
    that of one host: ``host-12.pcap``, ``node3.pcapng``, ``h1-eth0.pcap``. Any other number in a name is none of a
    host (a date, a part of the recording).

    Args:
        file_name: the file's name without folders.
        contested: hosts that other files claim, too; which of them is meant is not known.
    """

    file_name: str = ""
    contested: frozenset[int] = frozenset()

    def host_of(self, if_name: str) -> int:
        """The host's number; below zero if none is known.

        Contested hosts have different numbers below zero, so that they are not taken for one within their file.
        """
        if _INTERFACE_OF_HOST.fullmatch(if_name):
            host = int(if_name)
        else:
            found = _FILE_OF_HOST.fullmatch(self.file_name.partition(".")[0])
            host = int(found.group(1)) if found else UNKNOWN_HOST
        return UNKNOWN_HOST - 1 - host if host in self.contested else host


NO_NAME = HostRule()


def host_column(hosts: npt.NDArray[np.int32]) -> pa.Array:
    """Hosts as a column; null where none is known."""
    return pa.array(hosts, pa.int32(), mask=hosts < 0)
