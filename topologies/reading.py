"""Opens the files that a user names: experiments, inventories, matrices, pings, traces, interests, graphs.

Every reader of such files uses this module. It opens regular files only, since a pipe or a device may never end, and
reads at most a limit, so that no file can use up the memory. A file compressed with gzip is unpacked; its limit counts
what comes out.
"""

import csv
import errno
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

LARGEST_BYTES = 1 << 30
"""Limit on the size of a data file (1 GiB), unpacked."""

_GZIP = b"\x1f\x8b"
_KINDS = {
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ\x00": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"PAR1": "a Parquet file",
}
"""How files begin that are no plain text."""

_SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}

_SEPARATORS = (",", "\t", ";", " ")

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+(\.[0-9]{3})*,[0-9]+([eE][+-]?[0-9]{1,4})?")
_MOST_DIGITS = 400
"""Longer texts are no numbers; the largest float has 309 digits."""


class InputError(ValueError):
    """A user's file is missing or invalid.

    ``place`` is the file, with line and column where there are any (``latency.csv:3:7``).
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem


class Row(NamedTuple):
    """A row of a file of separated values: the number of its last line, and its cells without space around them."""

    line: int
    cells: list[str]


def read_text(path: Path, most_bytes: int = LARGEST_BYTES) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        InputError: the file is not regular, too large, not UTF-8 text, or cannot be read.
    """
    with _problems_of(path), _open(path, most_bytes) as file:
        return _decode(path, file.read())


def read_beginning(path: Path, most_bytes: int = 65_536) -> str:
    """Return the first whole lines of a text file; the whole text if it is short.

    Raises:
        InputError: as for ``read_text``.
    """
    with _problems_of(path), _open(path, LARGEST_BYTES) as file:
        content = io.BufferedReader(file).read(most_bytes)
        if len(content) == most_bytes:
            content = content[: content.rfind(b"\n") + 1] or content
        return _decode(path, content)


def find_separator(text: str) -> str:
    """Return the separator that finds most numbers in the last line of a text, which is no header.

    Between tabs or semicolons, numbers with a decimal comma count, so that readers can refuse them in their cells.
    """
    last = next((line for line in reversed(text[-1_000_000:].splitlines()) if line.strip(", \t;")), "")

    def count_numbers(separator: str) -> tuple[int, int]:
        cells = [cell.strip(' "') for cell in (last.split() if separator == " " else last.split(separator))]
        numbers = sum(parse_number(cell) is not None for cell in cells)
        commas = sum(map(_has_decimal_comma, cells)) if separator in ("\t", ";") else 0
        return numbers + commas, commas

    return max(_SEPARATORS, key=count_numbers)


def stream_rows(path: Path, separator: str = ",", *, comments: bool = False) -> Iterator[list[str]]:
    """Yield the cells of the rows of a CSV file, without holding all of it in memory.

    Args:
        path: the file.
        separator: the character between two cells; a space stands for any number of spaces and tabs.
        comments: whether lines that begin with ``#`` are comments; they are yielded as rows without cells.

    Raises:
        InputError: as for ``read_text``, or a quoted cell does not end.
    """
    with _problems_of(path), _open(path, LARGEST_BYTES) as file:
        lines: Iterable[str] = io.TextIOWrapper(io.BufferedReader(file), encoding="utf-8-sig", newline="")
        if comments:
            lines = ("\n" if line.startswith("#") else line for line in lines)
        reader = csv.reader(_spaced(lines) if separator == " " else lines, delimiter=separator, skipinitialspace=True)
        try:
            yield from reader
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}", str(error)) from None


def split_rows(path: Path, text: str, separator: str = ",") -> list[Row]:
    """Return the rows of a text in which one character separates the cells. Blank rows and comments are left out.

    A cell may be quoted. A comment is a row that begins with ``#``. A space as the separator stands for any number of
    spaces and tabs.

    Args:
        path: the file of the text, for errors.
        text: its content.
        separator: the character between two cells.

    Raises:
        InputError: a quoted cell does not end.
    """
    source = io.StringIO(text, newline="")
    reader = csv.reader(_spaced(source) if separator == " " else source, delimiter=separator, skipinitialspace=True)
    try:
        rows = [Row(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}", str(error)) from None
    return [row for row in rows if any(row.cells) and not row.cells[0].startswith("#")]


def parse_number(text: str) -> float | None:
    """Return the number that a cell holds in decimal notation with ASCII digits; None if it holds anything else.

    ``nan`` and ``inf`` are no numbers, nor is ``1_000``.
    """
    return float(text) if len(text) <= _MOST_DIGITS and _NUMBER.fullmatch(text) else None


def is_numeric(text: str) -> bool:
    """Return whether a cell is meant as a number: it is one, or would be one without its decimal comma."""
    return parse_number(text) is not None or _has_decimal_comma(text)


def quote_cell(text: str) -> str:
    """Return a cell that is refused, for an error: its beginning in quotes, with a hint if it has a decimal comma."""
    return f"{text[:40]!r}{hint_at_comma(text)}"


def hint_at_comma(text: str) -> str:
    """Return what to add to an error about a text that is a number with a decimal comma; otherwise nothing."""
    return "; write numbers with a decimal point" if _has_decimal_comma(text) else ""


def _has_decimal_comma(text: str) -> bool:
    return len(text) <= _MOST_DIGITS and _DECIMAL_COMMA.fullmatch(text) is not None


def parse_count(text: str) -> int | None:
    """Return the whole number >= 0 that a cell holds; None if it holds anything else."""
    return int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit() else None


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = next((kind for magic, kind in _KINDS.items() if content.startswith(magic)), None)
        problem = f"expected UTF-8 text, got {kind}" if kind else f"not UTF-8 text at byte {error.start}"
        raise InputError(str(path), problem) from None


def _spaced(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with one space for any number of spaces and tabs."""
    return (" ".join(line.split()) + "\n" for line in lines)


class _Bounded(io.RawIOBase):
    """A binary file that refuses to be read beyond a limit."""

    def __init__(self, path: Path, file: IO[bytes], most_bytes: int) -> None:
        self._path = path
        self._file = file
        self._most_bytes = most_bytes
        self._left = most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # any writable buffer
        content = self._file.read(len(buffer))
        if content is None:  # some files of /proc wait for data
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._left -= len(content)
        if self._left < 0:
            raise InputError(str(self._path), f"expected at most {self._most_bytes:,} bytes, got more")
        buffer[: len(content)] = content
        return len(content)


@contextmanager
def _open(path: Path, most_bytes: int) -> Iterator[_Bounded]:
    """Open a regular file without waiting for a writer, and unpack it if it is compressed with gzip."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        _refuse_special(path, os.fstat(descriptor).st_mode)
        packed = path.suffix == ".gz" or file.peek(2).startswith(_GZIP)
        with gzip.open(file) if packed else file as content:
            yield _Bounded(path, content, most_bytes)  # type: ignore[arg-type] # GzipFile reads bytes, too


def _refuse_special(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise InputError(str(path), os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise InputError(str(path), f"expected a regular file, got {_SPECIAL.get(stat.S_IFMT(mode), 'another kind')}")


@contextmanager
def _problems_of(path: Path) -> Iterator[None]:
    """Turn whatever can go wrong while a file is read into an ``InputError``."""
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError:
        raise InputError(str(path), "not UTF-8 text") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(str(path), f"cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except ValueError as error:  # a path with a null character
        raise InputError(repr(str(path)), str(error)) from None
