"""Lists of pairs as text: ``source,destination,rtt_ms[,mdev_ms][,loss_ratio]``, one row per pair.

Commas, tabs, semicolons or spaces separate the cells. A header says which column is which and what the times are;
without one, the columns are source, destination, time, deviation and loss, in this order. Comment lines begin with
``#`` and can state source, date and licence (``topologies.provenance``).
"""

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from topologies.foreign import name_form
from topologies.importers import Options, Times
from topologies.importers.assembly import PairRows, assemble
from topologies.importers.imported import Imported, check_count, left_out, named_hosts, rounded
from topologies.provenance import Provenance, comment_lines, hash_files, stated_in
from topologies.reading import (
    InputError,
    find_separator,
    is_numeric,
    parse_number,
    quote_cell,
    read_beginning,
    stream_rows,
)

_COLUMNS = {
    "source": ("source", "src", "srcid", "from"),
    "destination": ("destination", "dst", "dest", "dstid", "destid", "target", "to"),
    "time": ("rttms", "rtt", "rttavgms", "delayms", "onewayms", "owdms", "latencyms", "avgms", "avg", "ms"),
    "deviation": ("mdevms", "mdev", "jitterms", "deviationms", "stddevms"),
    "loss": ("lossratio", "loss", "packetloss"),
}
"""What headers call the columns, in lower case and without other characters than letters and digits."""

_TIMES: dict[str, Times] = {
    "rttms": "rtt",
    "rtt": "rtt",
    "rttavgms": "rtt",
    "delayms": "one-way",
    "onewayms": "one-way",
    "owdms": "one-way",
}
"""Headers that say what the times are."""


class _Layout(NamedTuple):
    """The numbers of the columns (None = there is no such column), what the times are, and the width of a row."""

    source: int
    destination: int
    time: int
    deviation: int | None
    loss: int | None
    times: Times | None
    width: int


def read_file(path: Path, options: Options) -> Imported:
    """Read a list of pairs.

    Raises:
        InputError: the file is missing or malformed, or pairs are missing; the place is ``FILE:LINE:COLUMN``.
    """
    beginning = read_beginning(path)
    if form := name_form(beginning):
        raise InputError(str(path), f"this is {form}, expected a list of pairs")
    lines = enumerate(stream_rows(path, find_separator(beginning), comments=True), start=1)
    rows = ((line, cells) for line, cells in lines if any(cells))
    line, first = next(rows, (0, []))
    if not first:
        raise InputError(str(path), "no rows")
    layout, has_header = _layout(f"{path}:{line}", first)
    times = options.times or layout.times
    if times is None:
        raise InputError(f"{path}:{line}", 'nothing says what the times are; set times = "rtt" or "one-way"')
    names, found = _read_rows(path, layout, rows if has_header else itertools.chain([(line, first)], rows))
    underlay, kept, notes = assemble("pairs", named_hosts(names), found, replace(options, times=times))
    provenance = Provenance(**stated_in(beginning), sha256=hash_files(path), notes=(f"times: {times}", *notes))
    return Imported(underlay, ("",) * len(kept), provenance)


def write_file(path: Path, imported: Imported) -> list[str]:
    """Write one-way delays of every directed pair, with jitter and loss if there are any."""
    underlay = imported.underlay
    columns = {"delay_ms": underlay.delay_ms, "jitter_ms": underlay.jitter_ms, "loss_ratio": underlay.loss_ratio}
    used = {name: matrix for name, matrix in columns.items() if name == "delay_ms" or matrix.any()}
    names = [host.name for host in underlay.hosts]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(comment_lines(imported.provenance))
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("source", "destination", *used))
        for number, source in enumerate(names):
            values = np.stack([rounded(matrix[number]) for matrix in used.values()], axis=1).tolist()
            writer.writerows(
                (source, destination, *cells)
                for other, (destination, cells) in enumerate(zip(names, values, strict=True))
                if other != number
            )
    return left_out(imported, "pairs", ("jitter", "loss"))


def _layout(place: str, first: Sequence[str]) -> tuple[_Layout, bool]:
    """Return the columns, and whether the first row is a header."""
    if len(first) > 2 and is_numeric(first[2]):
        deviation, loss = (number if number < len(first) else None for number in (3, 4))
        return _Layout(0, 1, 2, deviation, loss, None, len(first)), False
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in first]

    def find(column: str) -> int:
        if (number := _first(plain, column)) is None:
            known = ", ".join(_COLUMNS[column])
            raise InputError(place, f"no column is the {column} ({known}); got {', '.join(first)[:200]}")
        return number

    source, destination, time = find("source"), find("destination"), find("time")
    deviation, loss = _first(plain, "deviation"), _first(plain, "loss")
    return _Layout(source, destination, time, deviation, loss, _TIMES.get(plain[time]), len(first)), True


def _first(header: Sequence[str], column: str) -> int | None:
    """Return the number of the column with one of its names; None = there is none."""
    return next((header.index(name) for name in _COLUMNS[column] if name in header), None)


def _read_rows(path: Path, layout: _Layout, rows: Iterator[tuple[int, list[str]]]) -> tuple[list[str], PairRows]:
    """Return the hosts' names by number, and the rows. A row of a host and itself is left out."""
    numbers: dict[str, int] = {}
    lines: list[int] = []
    found = PairRows(str(path), lambda row: f"{path}:{lines[row]}")
    source, destination, time, deviation, loss, _, width = layout
    for line, cells in rows:
        if len(cells) != width:
            raise InputError(f"{path}:{line}", f"expected {width} cells, got {len(cells)}")
        first, second = cells[source].rstrip(), cells[destination].rstrip()
        if not first or not second:
            raise InputError(f"{path}:{line}", "expected the names of two hosts")
        ends = numbers.setdefault(first, len(numbers)), numbers.setdefault(second, len(numbers))
        if ends[0] == ends[1]:
            continue
        lines.append(line)
        found.add(
            *ends,
            _number(path, line, time, cells[time]),
            0.0 if deviation is None else _number(path, line, deviation, cells[deviation].strip() or "0"),
            0.0 if loss is None else _number(path, line, loss, cells[loss].strip() or "0", below=1.0),
        )
    check_count(str(path), len(numbers))
    return list(numbers), found


def _number(path: Path, line: int, column: int, text: str, *, below: float = 1e9) -> float:
    """Return the number in a cell."""
    text = text.strip()
    value = parse_number(text)
    if value is None or not 0 <= value < below:
        problem = f"expected a number >= 0 and < {below:g}, got {quote_cell(text)}"
        raise InputError(f"{path}:{line}:{column + 1}", problem)
    return value
