"""A capture file's records: where each packet's bytes are, when it was seen, at which interface, in which direction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics.pcap.walk import Bytes, Ints

UNKNOWN_HOST = -1
MID, TX, RX = 0, 1, 2
TAPS = ("mid", "tx", "rx")
"""Names of the direction codes: not said by the capture; left the host that recorded it; arrived there."""


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
    tap: npt.NDArray[np.int8]  # MID, TX or RX
    interfaces: list[Interface] = field(default_factory=list)
    unread_bytes: int = 0  # what follows the last whole record
    unknown_blocks: int = 0  # pcapng blocks of no known type, or at an interface that was never described

    def __len__(self) -> int:
        return len(self.at)

    def select(self, rows: npt.NDArray[np.generic] | slice) -> Records:
        """The same capture with these packets only."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})


_COLUMNS = ("at", "start", "cap_bytes", "wire_bytes", "ts_ns", "interface", "tap")


def join(parts: Sequence[Records]) -> Records:
    """The packets of one or more parts of a file in a row; the rest is the first one's."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
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


def host_of(if_name: str, file_name: str) -> int:
    """The host index: the interface's name where that is a number, else the first number in the file's name."""
    if if_name.isdecimal():
        return int(if_name[:9])
    number = re.search(r"\d{1,9}", file_name.split(".")[0])
    return int(number.group()) if number else UNKNOWN_HOST
