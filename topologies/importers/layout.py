"""Decides which cells of a matrix file are names and which are delays.

A header line and a first column of names are both optional, and names may be numbers. The layout follows from words,
which can only be names, and from the number of rows and columns. A file that can be read in two ways is refused.
"""

from collections.abc import Sequence
from typing import NamedTuple

from topologies.reading import InputError, Row, is_numeric, parse_number

BLANKS = ("", "-", "\u2013", "\u2014")
"""What files have on the diagonal instead of a delay: nothing, or a dash."""


class Layout(NamedTuple):
    """The parts of a matrix file.

    Attributes:
        header: the names of the columns; None = there is no header.
        labels: the names of the rows; None = there are none.
        body: the rows of delays, without their names.
        first: the number of a row's first cell that is a delay.
    """

    header: list[str] | None
    labels: list[str] | None
    body: list[Row]
    first: int


def split_names(place: str, rows: Sequence[Row]) -> Layout:
    """Separate the names of a matrix file from its delays.

    Args:
        place: the file, for errors.
        rows: its rows, at least one.

    Raises:
        InputError: names and delays cannot be told apart, or the header has another length than the rows.
    """
    rows = _without_empty_column(rows)
    has_header = _has_header(place, rows)
    body = rows[int(has_header) :]
    if len(body) < 2:
        raise InputError(place, f"expected at least two rows, one per host, got {len(body)}")
    first = int(_has_labels(has_header, body))
    return Layout(
        header=_column_names(place, rows[0], len(body), labelled=bool(first)) if has_header else None,
        labels=[row.cells[0] for row in body] if first else None,
        body=[Row(row.line, row.cells[first:]) for row in body],
        first=first,
    )


def _without_empty_column(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without a last column that is empty in every row; some programs end each row with a comma."""
    width = len(rows[-1].cells)
    wide = [row for row in rows if len(row.cells) == width]
    if len(wide) >= max(2, len(rows) - 1) and not any(row.cells[-1] for row in wide):
        return [row if row.cells[-1] else Row(row.line, row.cells[:-1]) for row in rows]
    first = rows[0]
    if len(first.cells) == width + 1 and not first.cells[-1]:
        return [Row(first.line, first.cells[:-1]), *rows[1:]]
    return list(rows)


def _has_header(place: str, rows: Sequence[Row]) -> bool:
    """Return whether the first row has names: words, the same as the first column, or the numbers of the hosts.

    Raises:
        InputError: it may be both.
    """
    first, column = rows[0].cells, [row.cells[0] for row in rows]
    words = [cell for cell in first[1:] or first if _is_word(cell)]
    if words and not any(parse_number(cell) is not None for cell in first):
        return True
    if len(rows) < 3:
        return False
    if len(first) == len(rows) and first[1:] == column[1:]:
        return bool(words) or _are_numeric_names(place, rows)
    without_corner = len(rows[-1].cells) == len(rows) == len(first) + 1 and first == column[1:]
    return without_corner or (_are_consecutive(first) and has_plain_diagonal(rows[1:]))


def _are_numeric_names(place: str, rows: Sequence[Row]) -> bool:
    """Return whether the first row of a file, which equals its first column and has no words, has names.

    The first row of a symmetric matrix without names equals its first column, too.

    Raises:
        InputError: it can be both.
    """
    corner, *names = rows[0].cells
    if _is_word(corner) and not is_blank(corner):
        return True
    if len(set(names)) < len(names):
        return False
    own = [row.cells[number] if number < len(row.cells) else "missing" for number, row in enumerate(rows)]
    if is_blank(corner) and not any(map(is_blank, own[1:])):
        return True
    ids = _are_consecutive(names) or (is_blank(corner) and all(name.isdigit() for name in names))
    if ids and _is_complete(rows):
        shown = f"the first row and the first column are both {', '.join(names[:3])}{', ...' if names[3:] else ''}"
        advice = "write host into the corner if these are names, or add a header if they are delays"
        raise InputError(place, f"{shown}; {advice}")
    return False


def _is_complete(rows: Sequence[Row]) -> bool:
    """Return whether a square of cells has numbers everywhere except on the diagonal."""
    return all(
        len(row.cells) == len(rows)
        and all(parse_number(cell) is not None for column, cell in enumerate(row.cells) if column != number)
        for number, row in enumerate(rows)
    )


def _has_labels(has_header: bool, body: Sequence[Row]) -> bool:
    """Return whether the first cells of the rows are names."""
    column = [row.cells[0] for row in body]
    one_more = len(body[0].cells) == len(body) + 1
    if one_more and (has_header or _is_word(column[0])):
        return True
    if _is_word(column[0]) and not is_blank(column[0]):
        return True
    return _are_consecutive(column) and has_plain_diagonal([Row(row.line, row.cells[1:]) for row in body])


def has_plain_diagonal(rows: Sequence[Row]) -> bool:
    """Return whether rows are a square whose diagonal is blank or 0."""
    return all(
        len(cells) == len(rows) and (is_blank(cells[number]) or parse_number(cells[number]) == 0)
        for number, (_, cells) in enumerate(rows)
    )


def is_blank(cell: str) -> bool:
    """Return whether a cell of the diagonal has no delay."""
    return cell in BLANKS or cell.lower() == "nan"


def _column_names(place: str, header: Row, size: int, *, labelled: bool) -> list[str]:
    """Return the header without its corner."""
    names = header.cells[1:] if labelled and len(header.cells) == size + 1 else header.cells
    if len(names) != size:
        raise InputError(f"{place}:{header.line}", f"expected {size} names of columns, one per row, got {len(names)}")
    return names


def _are_consecutive(cells: Sequence[str]) -> bool:
    """Return whether cells are whole numbers that rise by one, as the numbers of hosts do."""
    if not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _is_word(cell: str) -> bool:
    return cell not in BLANKS and not is_numeric(cell)
