"""Latency matrices as text: one-way delays in ms, from the row's host to the column's host.

Commas, tabs, semicolons or spaces separate the cells. A header line and a first column with the hosts' names are both
optional (``topologies.importers.layout``). Blank lines and lines that start with ``#`` are skipped. The delay of a host
to itself may be blank, a dash or any delay, and is ignored.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.foreign import are_pairs, name_form
from topologies.generated import plain_underlay
from topologies.importers import Options
from topologies.importers.imported import Imported, left_out, named_hosts
from topologies.importers.layout import Layout, has_plain_diagonal, is_blank, split_names
from topologies.limits import LARGEST_DELAY_MS, MOST_HOSTS
from topologies.model import Matrix
from topologies.provenance import Provenance, comment_lines, hash_files, stated_in
from topologies.reading import (
    InputError,
    Row,
    find_separator,
    parse_number,
    quote_cell,
    read_beginning,
    read_text,
    split_rows,
)

_EXPECTED = "expected a matrix with one row and one column per host"
_NOT_FINITE = ("nan", "inf", "+inf", "-inf", "infinity")
"""What programs write for numbers that are none."""


class MatrixFile(NamedTuple):
    """What a file has.

    Attributes:
        names: the hosts' names.
        delay_ms: (n, n) delays, 0 from each host to itself.
        own_ms: (n,) what the file has for the delay of each host to itself, 0 if it has nothing.
    """

    names: list[str]
    delay_ms: Matrix
    own_ms: npt.NDArray[np.float64]


def read_matrix_file(path: Path, largest_ms: float = LARGEST_DELAY_MS) -> MatrixFile:
    """Read a matrix file.

    Args:
        path: the file, which may be gzipped.
        largest_ms: the limit on a delay.

    Raises:
        InputError: the file is missing or not square, or a value is not a delay; the place is ``FILE:LINE:COLUMN``.
    """
    rows = _rows(path)
    pairs = InputError(str(path), f"this is a list of pairs, {_EXPECTED}")
    try:
        layout = split_names(str(path), rows)
    except InputError:
        if are_pairs(rows):
            raise pairs from None
        raise
    if are_pairs(rows) and not has_plain_diagonal(layout.body):
        raise pairs
    read = _read(path, layout, largest_ms)
    _refuse_disorder(path, read)
    return read


def write_matrix(path: Path, names: Sequence[str], delay_ms: Matrix, comments: Sequence[str] = ()) -> None:
    """Write a matrix with a header, the names in the first column, and six decimals (1 ns).

    Args:
        path: the file.
        names: the hosts' names.
        delay_ms: (n, n) delays.
        comments: lines for the beginning of the file.
    """
    with path.open("w", encoding="utf-8", newline="") as lines:
        lines.writelines(comments)
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(("", *names))
        for name, row in zip(names, np.round(delay_ms, 6).tolist(), strict=True):
            writer.writerow((name, *row))


def read_file(path: Path, options: Options) -> Imported:
    """Read a matrix of one-way delays, or of round trips, which are halved.

    Raises:
        InputError: see ``read_matrix_file``.
    """
    halves = 2 if options.times == "rtt" else 1
    read = read_matrix_file(path, halves * LARGEST_DELAY_MS)
    own = int((read.own_ms > 0).sum())
    ignored = f"ignored: the delays of {own} hosts to themselves, at most {read.own_ms.max():g} ms in the file"
    notes = (f"times: {options.times or 'one-way'}", *([ignored] if own else []))
    underlay = plain_underlay("matrix", named_hosts(read.names), read.delay_ms / halves)
    provenance = Provenance(**stated_in(read_beginning(path)), sha256=hash_files(path), notes=notes)
    return Imported(underlay, ("",) * underlay.size, provenance)


def write_file(path: Path, imported: Imported) -> list[str]:
    """Write the delays with a header, the names in the first column, and six decimals (1 ns)."""
    names = [host.name for host in imported.underlay.hosts]
    write_matrix(path, names, imported.underlay.delay_ms, comment_lines(imported.provenance))
    return left_out(imported, "matrix", ())


def _rows(path: Path) -> list[Row]:
    text = read_text(path)
    if form := name_form(text):
        raise InputError(str(path), f"this is {form}, {_EXPECTED}")
    rows = split_rows(path, text, find_separator(text))
    if not rows:
        raise InputError(str(path), "no rows")
    if len(rows) > MOST_HOSTS + 1:
        raise InputError(str(path), f"expected at most {MOST_HOSTS} hosts, got {len(rows)} rows")
    return rows


def _read(path: Path, layout: Layout, largest_ms: float) -> MatrixFile:
    size = len(layout.body)
    matrix = np.empty((size, size))
    for number, (line, cells) in enumerate(layout.body):
        if len(cells) != size:
            raise InputError(f"{path}:{line}", f"expected {size} delays, one per row, got {len(cells)}")
        for column, text in enumerate(cells):
            place = f"{path}:{line}:{column + layout.first + 1}"
            own = number == column
            matrix[number, column] = 0.0 if own and is_blank(text) else _delay(place, text, largest_ms)
    own_ms = matrix.diagonal().copy()
    np.fill_diagonal(matrix, 0)
    return MatrixFile(_names(path, layout.header, layout.labels, size), matrix, own_ms)


def _delay(place: str, text: str, largest_ms: float) -> float:
    value = parse_number(text)
    if (value is not None and value < 0) or text.lower() in _NOT_FINITE:
        raise InputError(place, f"expected a finite delay >= 0, got {text[:40]}")
    if value is None:
        raise InputError(place, f"expected a delay in ms, got {quote_cell(text)}")
    if value > largest_ms:
        raise InputError(place, f"expected a delay in ms, at most {largest_ms:g}, got {text[:40]}")
    return value


def _refuse_disorder(path: Path, read: MatrixFile) -> None:
    """Refuse a file in which most hosts are farther from themselves than from most others.

    Raises:
        InputError: it is one, which means that its rows and columns are not in the same order.
    """
    others = ~np.eye(len(read.names), dtype=bool)
    typical_ms = np.median(read.delay_ms[others].reshape(len(read.names), -1), axis=1)
    if np.count_nonzero(read.own_ms > typical_ms) * 2 > len(read.names):
        problem = "most hosts have a larger delay to themselves than to others; are rows and columns in the same order?"
        raise InputError(str(path), problem)


def _names(path: Path, header: list[str] | None, labels: list[str] | None, size: int) -> list[str]:
    """Return the hosts' names: the rows' labels, otherwise the header, otherwise numbers."""
    names = labels or header or [f"host {number}" for number in range(size)]
    if len(set(names)) != size:
        raise InputError(str(path), f"expected {size} different names, got {len(set(names))}")
    if header is not None and labels is not None and header != labels:
        raise InputError(str(path), "the names of the columns differ from those of the rows")
    return names
