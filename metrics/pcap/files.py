"""Open capture files of any supported format: pcap or pcapng, also compressed with gzip."""

import gzip
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

import numpy as np

from metrics.pcap.classic import MAGIC, is_classic, read_classic
from metrics.pcap.pcapng import SECTION_MAGIC, is_pcapng, read_pcapng
from metrics.pcap.records import EVERYTHING, NO_NAME, HostRule, Records, Selection, join, no_records
from metrics.pcap.walk import Bytes
from metrics.storage import Place
from metrics.storage.copies import map_bytes, map_chunks

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_CHUNK_BYTES: Final = 1 << 20
_MAGIC_BYTES: Final = 4
_UNREADABLE: Final = b"\0"
"""Fills the place of what a damaged gzip file lacks: no record begins with this byte, so it counts as unread."""


class CaptureError(ValueError):
    """A file that was given as a capture is not one."""

    def __init__(self, path: Place, problem: str) -> None:
        super().__init__(f"{path}: not a capture: {problem}")
        self.problem = problem


@dataclass(frozen=True)
class Capture:
    """A capture file that is being read.

    Attributes:
        path: the file.
        name: its name in tables: its path from the folder that was given.
        contested: hosts that another capture claims, too (``metrics.pcap.listing``).
    """

    path: Place
    name: str
    contested: frozenset[int] = frozenset()

    @property
    def rule(self) -> HostRule:
        return HostRule(self.path.name, self.contested)


def open_capture(path: Place, *, foreign: bool = False) -> Bytes:
    """Return the bytes of a capture file, decompressed if it is compressed.

    A file that is empty or ends within its first header is a capture without packets.

    Args:
        path: the file.
        foreign: also return the bytes of a file that is not a capture.

    Raises:
        CaptureError: it is not a regular file, or not a capture.
    """
    data = _open(path)
    if not foreign and not is_capture(data):
        raise CaptureError(path, _describe(data))
    return data


def head_of(path: Place, size: int) -> Bytes:
    """Return at least the first ``size`` bytes of what ``open_capture`` returns, if there are as many.

    Raises:
        CaptureError: it is not a regular file, or not a capture.
    """
    require_regular(path)
    with path.open("rb") as file:
        chunks = _decompress(file) if _is_gzip(file) else iter(lambda: file.read(_CHUNK_BYTES), b"")
        head = b""
        while len(head) < size and (chunk := next(chunks, b"")):
            head += chunk
    data = np.frombuffer(head, np.uint8)
    if not is_capture(data):
        raise CaptureError(path, _describe(data))
    return data


def is_compressed(path: Place) -> bool:
    """Return whether a file is compressed."""
    with path.open("rb") as file:
        return _is_gzip(file)


def require_regular(path: Place) -> None:
    """Refuse files that could be read without an end.

    Raises:
        CaptureError: it is a folder, a named pipe, a socket or a device.
    """
    if isinstance(path, Path):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise CaptureError(
                path, "expected a regular file, found " + _KINDS.get(stat.S_IFMT(mode), "something else")
            )


_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def is_capture(data: Bytes) -> bool:
    """Return whether a file begins as a capture does, up to the end of the file."""
    if len(data) < _MAGIC_BYTES:
        return not len(data) or any(magic.startswith(data.tobytes()) for magic in _MAGICS)
    return is_classic(data) or is_pcapng(data)


_MAGICS: Final = (*MAGIC, SECTION_MAGIC)


def _describe(data: Bytes) -> str:
    return f"expected a pcap or pcapng file, found one that begins with {data[:_MAGIC_BYTES].tobytes()!r}"


def _open(path: Place) -> Bytes:
    require_regular(path)
    with path.open("rb") as file:
        if not _is_gzip(file):
            return map_bytes(path)
        chunks = _decompress(file)
        first = next(chunks, b"")
        if not is_capture(np.frombuffer(first, np.uint8)):
            return np.frombuffer(first, np.uint8)
        return map_chunks([first], chunks)


def _is_gzip(file: IO[bytes]) -> bool:
    """Return whether a file is compressed, and leave it at its beginning."""
    magic = file.read(len(_GZIP_MAGIC))
    file.seek(0)
    return magic == _GZIP_MAGIC


def _decompress(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip file, up to where it is damaged or ends too early."""
    with gzip.open(file) as stream:
        try:
            while chunk := stream.read1(_CHUNK_BYTES):
                yield chunk
        except (EOFError, gzip.BadGzipFile, zlib.error):
            yield _UNREADABLE


def read_bytes(data: Bytes, rule: HostRule = NO_NAME, selection: Selection = EVERYTHING) -> Records:
    """Return the packets in a capture's bytes. Other bytes have no packets, and ``unread_bytes`` counts them.

    Args:
        data: the bytes of the file.
        rule: returns the hosts of its interfaces.
        selection: which packets to return.
    """
    parts = list(_read(data, rule, selection, None))
    if not parts:
        return no_records(data, len(data))
    return replace(join(parts), interfaces=parts[-1].interfaces, unread_bytes=parts[-1].unread_bytes)


def read_windows(
    data: Bytes, rule: HostRule, window_bytes: int, selection: Selection = EVERYTHING
) -> Iterator[Records]:
    """Yield the same packets as ``read_bytes``, with those of about ``window_bytes`` of the file at a time.

    ``interfaces`` is complete at the end, and the last item has the right ``unread_bytes``. If the bytes are not a
    capture, nothing is yielded.

    Args:
        data: the bytes of the file.
        rule: returns the hosts of its interfaces.
        window_bytes: how much of the file is read at a time.
        selection: which packets to yield.
    """
    yield from _read(data, rule, selection, window_bytes)


def _read(data: Bytes, rule: HostRule, selection: Selection, window_bytes: int | None) -> Iterator[Records]:
    for is_it, read in ((is_classic, read_classic), (is_pcapng, read_pcapng)):
        if is_it(data):
            yield from read(data, rule, selection, window_bytes)
            return
