"""Brings a run's files home: from a tar stream in which every member was requested by name, or by renaming them.

A machine is not trusted with the run directory. Whatever it sends, only requested files are created, no existing file
changes, and no more bytes are written than it may send.
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
    """The stream is not an archive of the requested files; the message names the member."""


def extract(stream: IO[bytes], expected: Mapping[str, str], destination: Path, budget_bytes: int) -> None:
    """Write the members of a gzipped tar stream below a folder.

    Headers are read one by one. The format's extensions, which are members of other types, are refused, so no member
    can make this process reserve memory.

    Args:
        stream: the archive.
        expected: name of each allowed member, a regular file -> its path below ``destination``.
        destination: the folder.
        budget_bytes: limit on the stream's length, packed and unpacked, including headers and padding.

    Raises:
        ArchiveError: a member is not expected, comes twice, is not a regular file or exceeds the budget, its file
            exists already, or the stream is damaged. Members before it have been written.
        OSError: a file cannot be written, or the stream cannot be read.
    """
    source = _Source(stream, budget_bytes)
    while (member := source.next_member()) is not None:
        if member.name not in expected:
            raise ArchiveError(f"sent {member.name!r}, which was not requested")
        if not member.isreg():
            raise ArchiveError(f"sent {member.name!r}, which is not a regular file")
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
    """The packed stream, with a limit: an endless stream of empty gzip members unpacks to nothing."""

    def __init__(self, stream: IO[bytes], budget_bytes: int) -> None:
        self._stream = stream
        self._budget_bytes = self._left_bytes = budget_bytes

    def read(self, count: int) -> bytes:
        """Return at most ``count`` bytes."""
        piece = self._stream.read(count)
        self._left_bytes -= len(piece)
        if self._left_bytes < 0:
            raise ArchiveError(f"sent more than {self._budget_bytes / 2**20:.0f} MiB, packed")
        return piece


class _Source:
    """The unpacked stream, with a limit."""

    def __init__(self, stream: IO[bytes], budget_bytes: int) -> None:
        self._stream = gzip.GzipFile(mode="rb", fileobj=cast("IO[bytes]", _Counted(stream, budget_bytes)))
        self._budget_bytes = self._left_bytes = budget_bytes

    def next_member(self) -> tarfile.TarInfo | None:
        """Return the next header; None at the end of the archive, after reading the stream to its end."""
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
        """Return exactly ``count`` bytes of a member."""
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


def move_files(folder: Path, names: Mapping[str, str], destination: Path) -> None:
    """Move the files that exist from a work folder on this computer's disk, by renaming them, however large they are.

    It moves only regular files in real folders: peers write the folder, and a link could lead readers elsewhere.

    Args:
        folder: the folder of the files, on the file system of ``destination``.
        names: path in ``folder`` -> path in ``destination``.
        destination: the new folder; files with the same names are replaced.

    Raises:
        OSError: a file could not be moved.
    """
    for name, new_name in names.items():
        source, target = folder / name, destination / new_name
        within = [source, *(folder / parent for parent in Path(name).parents if parent.name)]
        if source.is_file() and not any(path.is_symlink() for path in within):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
