"""What a machine sends home: a tar stream whose every member was asked for by name.

A machine is not trusted with the run directory: whatever it sends, only files that were asked of it come into being,
none that exists is changed, and no more bytes are written than it may send.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

CHUNK_BYTES = 1 << 18
BLOCK_BYTES = tarfile.BLOCKSIZE


class ArchiveError(Exception):
    """The stream is not an archive of what was asked for; names the member."""


def extract(stream: IO[bytes], expected: Mapping[str, str], destination: Path, budget_bytes: int) -> None:
    """Write the members of a gzipped tar stream below a folder.

    Headers are read one by one. Of the format's extensions, which are members of other types, none is understood, so no
    member can have memory reserved for it.

    Args:
        stream: the archive.
        expected: each member that may come, a regular file, -> its path below ``destination``.
        destination: the folder.
        budget_bytes: how much the stream may have, headers and padding included: packed, and also unpacked.

    Raises:
        ArchiveError: a member is not expected, comes twice, is not a regular file or exceeds the budget, its file
            exists already, or the stream is damaged. What came before it is there.
        OSError: a file cannot be written, or the stream cannot be read.
    """
    source = _Source(stream, budget_bytes)
    while (member := source.next_member()) is not None:
        if member.name not in expected:
            raise ArchiveError(f"sent {member.name!r}, which was not asked for")
        if not member.isreg():
            raise ArchiveError(f"sent {member.name!r} as something else than a regular file")
        _write(source, member, destination / expected[member.name])


def _write(source: _Source, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise ArchiveError(f"sent {member.name!r}, but {path} exists already") from None
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        left = member.size
        while left:
            chunk = source.read(min(left, CHUNK_BYTES), member.name)
            file.write(chunk)
            left -= len(chunk)
    source.read(-member.size % BLOCK_BYTES, member.name)


class _Counted:
    """The packed stream, counted: gzip members without content are read on and on and unpack to nothing."""

    def __init__(self, stream: IO[bytes], budget_bytes: int) -> None:
        self._stream = stream
        self._budget_bytes = self._left_bytes = budget_bytes

    def read(self, count: int) -> bytes:
        """At most so many bytes."""
        piece = self._stream.read(count)
        self._left_bytes -= len(piece)
        if self._left_bytes < 0:
            raise ArchiveError(f"sent more than {self._budget_bytes / 2**20:.0f} MiB, packed")
        return piece


class _Source:
    """The unpacked stream, counted."""

    def __init__(self, stream: IO[bytes], budget_bytes: int) -> None:
        self._stream = gzip.GzipFile(mode="rb", fileobj=cast("IO[bytes]", _Counted(stream, budget_bytes)))
        self._budget_bytes = self._left_bytes = budget_bytes

    def next_member(self) -> tarfile.TarInfo | None:
        """The next header; None at the archive's end, after which the stream is read to its end."""
        header = self.read(BLOCK_BYTES, "a header")
        if not header.strip(b"\0"):
            while self._read(CHUNK_BYTES, "the padding"):
                pass
            return None
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise ArchiveError(f"sent a damaged archive: {error}") from None
        if member.size < 0:
            raise ArchiveError(f"sent {member.name!r} with a negative size")
        return member

    def read(self, count: int, what: str) -> bytes:
        """Exactly so many bytes of a member."""
        content = b""
        while len(content) < count:
            piece = self._read(count - len(content), what)
            if not piece:
                raise ArchiveError(f"sent an archive that ends within {what}")
            content += piece
        return content

    def _read(self, count: int, what: str) -> bytes:
        try:
            piece = self._stream.read(count)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ArchiveError(f"sent a damaged archive: {error}") from None
        self._left_bytes -= len(piece)
        if self._left_bytes < 0:
            raise ArchiveError(f"sent more than {self._budget_bytes / 2**20:.0f} MiB, at {what}")
        return piece
