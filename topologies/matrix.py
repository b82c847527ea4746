"""Latency matrices as CSV: one-way delays in ms, from the row's host to the column's host.

A header line and a first column with the hosts' names are both optional. Blank lines and lines that start with ``#``
are skipped.
"""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from topologies.generated import plain_underlay
from topologies.model import Host, Matrix, Underlay, UnderlayError

_Lines = list[tuple[int, list[str]]]


def read_matrix(path: Path) -> tuple[list[str], Matrix]:
    """Return the hosts' names and the (n, n) matrix of a CSV file.

    Raises:
        UnderlayError: the file is missing or not square, or a value is not a delay; the place is ``FILE:LINE:COLUMN``.
    """
    lines = _lines(path)
    header = None if any(_is_number(cell) for cell in lines[0][1]) else lines.pop(0)[1]
    if len(lines) < 2:
        raise UnderlayError(str(path), f"expected at least two rows, one per host, got {len(lines)}")
    labelled = not _is_number(lines[0][1][0])
    first = int(labelled)
    size = len(lines)
    matrix = np.empty((size, size))
    for row, (line, cells) in enumerate(lines):
        if len(cells) - first != size:
            raise UnderlayError(f"{path}:{line}", f"expected {size} delays, one per row, got {len(cells) - first}")
        for column in range(size):
            place = f"{path}:{line}:{column + first + 1}"
            matrix[row, column] = _delay(place, cells[column + first], own=row == column)
    return _names(path, header, [cells[0] for _, cells in lines] if labelled else None, size), matrix


def write_matrix(path: Path, names: Sequence[str], delay_ms: Matrix) -> None:
    """Write a matrix with a header, the names in the first column, and six decimals (1 ns)."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(("", *names))
        for name, row in zip(names, np.round(delay_ms, 6).tolist(), strict=True):
            writer.writerow((name, *row))


def matrix_underlay(path: Path) -> Underlay:
    """Return the underlay of a matrix file, with unchanged delays per direction.

    Raises:
        UnderlayError: see ``read_matrix``.
    """
    names, delay_ms = read_matrix(path)
    return plain_underlay("matrix", tuple(Host(name=name, site=name) for name in names), delay_ms)


def _lines(path: Path) -> _Lines:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UnderlayError(str(path), str(reason)) from None
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise UnderlayError(f"{path}:{reader.line_num}", str(error)) from None
    lines = [(line, cells) for line, cells in lines if any(cells) and not cells[0].startswith("#")]
    if not lines:
        raise UnderlayError(str(path), "no rows")
    return lines


def _delay(place: str, text: str, *, own: bool) -> float:
    if not _is_number(text):
        raise UnderlayError(place, f"expected a delay in ms, got {text!r}")
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise UnderlayError(place, f"expected a finite delay >= 0, got {text}")
    if own and value != 0:
        raise UnderlayError(place, f"expected 0, a host's delay to itself, got {text}")
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _names(path: Path, header: list[str] | None, labels: list[str] | None, size: int) -> list[str]:
    """Return the hosts' names: the rows' labels, otherwise the header, otherwise numbers."""
    names = labels or (header or [f"host {number}" for number in range(size)])[-size:]
    if len(names) != size or len(set(names)) != size:
        raise UnderlayError(str(path), f"expected {size} different names, got {len(set(names))}")
    if header is not None and labels is not None and header[-size:] != labels:
        raise UnderlayError(str(path), "the names of the columns differ from those of the rows")
    return names
