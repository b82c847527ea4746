"""Follows files that a run writes, from their beginnings on, without asking the run for anything."""

import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final, Generic, TypeVar

Value = TypeVar("Value")

MOST_BYTES: Final = 4 << 20
"""That are read of a file at once."""


class Followed(Generic[Value]):
    """A file of lines that grows; a line is read when it is whole.

    Args:
        places: where the file is, or will be. Of several places that have it the first one counts: a run's files are
            collected from the folder in which they were written, and are the same in both.
        decode: returns the value of a line.

    Attributes:
        offset: how many bytes have been read.
    """

    def __init__(self, places: Sequence[Path], decode: Callable[[bytes], Value]) -> None:
        self._places = places
        self._decode = decode
        self._is_inside = False  # whether the next bytes are of a line that is too long
        self.offset = 0

    @property
    def exists(self) -> bool:
        return any(place.exists() for place in self._places)

    def read(self, most_bytes: int = MOST_BYTES) -> list[Value]:
        """Return the values of the lines that were added since the last call; damaged ones are left out.

        Args:
            most_bytes: how much is read at most. A longer line is left out.
        """
        content = self._content(most_bytes)
        end = content.rfind(b"\n") + 1
        lines = content[:end].splitlines()
        if not end and len(content) == most_bytes:
            self._is_inside, end = True, most_bytes
        elif lines and self._is_inside:
            self._is_inside = False
            del lines[0]
        self.offset += end
        return [value for line in lines if (value := self._decode_line(line)) is not None]

    def read_all(self) -> list[Value]:
        """Return the values of all lines that were added since the last call; damaged ones are left out."""
        values: list[Value] = []
        offset = -1
        while offset != self.offset:
            offset = self.offset
            values += self.read()
        return values

    def _decode_line(self, line: bytes) -> Value | None:
        try:
            return self._decode(line)
        except ValueError:
            return None

    def _content(self, most_bytes: int) -> bytes:
        for place in self._places:
            try:
                with open_plain(place) as file:
                    file.seek(self.offset)
                    return file.read(most_bytes)
            except OSError:  # it is not there yet, or not any longer
                continue
        return b""


def open_plain(path: Path) -> IO[bytes]:
    """Open a regular file for reading. Peers may be programs of anybody, which could have made a link or a pipe.

    Raises:
        OSError: it is missing, or no regular file.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is not a regular file")
    return file


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file; also if that cannot be found out, but the file is there."""
    try:
        with open_plain(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def read_tail(path: Path, most_bytes: int) -> bytes:
    """Return the end of a file, from the beginning of a line on if it is longer than ``most_bytes``.

    Raises:
        OSError: it cannot be read.
    """
    with open_plain(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - most_bytes))
        content = file.read(most_bytes)
    return content if size <= most_bytes else content.partition(b"\n")[2]
