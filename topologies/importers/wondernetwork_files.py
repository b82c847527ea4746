"""The files of pings that WonderNetwork published. ``wondernetwork`` makes an underlay of them.

It reads three forms, which differ in their header: the processed pairs (``src,dst,...,rtt_avg_ms,...,mdev_ms,fill``),
the grouped pings (``source,destination,min,avg,max,mdev``, one row per pair) and the raw hourly pings (the same with a
``timestamp``), of which it takes the medians.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from topologies.limits import LARGEST_DELAY_MS
from topologies.model import Matrix
from topologies.reading import InputError, parse_number, quote_cell, stream_rows

_PAIR_FILES = ("wn-pairs*.csv.gz", "wn-pairs*.csv", "pings-grouped.csv", "pings*.csv.gz", "pings*.csv")
_SERVER_FILES = {True: ("wn-servers.csv",), False: ("servers-original-order.csv", "servers*.csv", "wn-servers.csv")}
_COLUMNS = {True: ("src", "dst", "rtt_avg_ms", "mdev_ms", "fill"), False: ("source", "destination", "avg", "mdev")}
"""Form -> whether it is the processed one."""


class Server(Struct, frozen=True):
    """A row of the server list. ``continent`` is WonderNetwork's number (3 = Europe and Asia)."""

    id: str
    title: str
    country: str
    continent: str
    latitude: float
    longitude: float


class Measurements(Struct, frozen=True):
    """The measurements between n servers.

    Attributes:
        servers: the servers with pings, in the order of the server list.
        rtt_ms: (n, n) mean round-trip time measured by the row's server; NaN = not measured.
        mdev_ms: (n, n) its standard deviation (mdev of ping); NaN = not measured.
        unknown_rows: rows left out because an id is not in the server list.
    """

    servers: tuple[Server, ...]
    rtt_ms: Matrix
    mdev_ms: Matrix
    unknown_rows: int = 0


def read_measurements(path: Path) -> Measurements:
    """Read a folder with the published files, or one file of pings whose server list is in the same folder.

    Raises:
        InputError: a file is missing, or a line is malformed; the place is the file and line.
    """
    pings_path, servers_path = published_files(path)
    reader = stream_rows(pings_path)
    header = next(reader, [])
    processed = _is_processed(header)
    columns = _column_numbers(pings_path, header, _COLUMNS[processed])
    servers = _read_servers(servers_path, by_index=processed)
    rows = _Rows(pings_path, servers, columns)
    rows.read(reader)
    if processed and rows.unknown:
        raise InputError(str(pings_path), f"{rows.unknown} rows have servers that are not in the server list")
    return rows.measurements(single="timestamp" not in header)


def published_files(path: Path) -> tuple[Path, Path]:
    """Return the file of pings and the server list that ``read_measurements`` reads.

    Raises:
        InputError: one of them is missing.
    """
    pings_path = _first_file(path, _PAIR_FILES) if path.is_dir() else path
    if not pings_path.exists():
        raise InputError(str(pings_path), "no such file")
    processed = _is_processed(next(stream_rows(pings_path), []))
    return pings_path, _first_file(pings_path.parent, _SERVER_FILES[processed])


def _is_processed(header: list[str]) -> bool:
    """Return whether the file has the processed pairs."""
    return "rtt_avg_ms" in header


class _Rows:
    """The rows of a file of pings as columns of numbers."""

    def __init__(self, path: Path, servers: list[Server], columns: list[int]) -> None:
        self._path = path
        self._servers = servers
        self._index = {server.id: number for number, server in enumerate(servers)}
        self._columns = columns
        self._pairs = array("q")
        self._rtts_ms = array("d")
        self._mdevs_ms = array("d")
        self.unknown = 0

    def read(self, reader: Iterator[list[str]]) -> None:
        for number, row in enumerate(reader, start=2):
            try:
                source_id, destination_id, rtt, mdev, *fill = (row[column] for column in self._columns)
            except IndexError:
                raise InputError(f"{self._path}:{number}", f"expected more than {len(row)} columns") from None
            if source_id == destination_id or fill not in ([], ["0"]):
                continue  # a server's ping to itself, or a filled value, which fill_holes computes by the same rule
            source, destination = self._index.get(source_id), self._index.get(destination_id)
            if source is None or destination is None:
                self.unknown += 1
                continue
            self._pairs.append(source * len(self._servers) + destination)
            self._rtts_ms.append(self._milliseconds(number, self._columns[2], rtt, positive=True))
            self._mdevs_ms.append(self._milliseconds(number, self._columns[3], mdev, positive=False))

    def _milliseconds(self, line: int, column: int, text: str, *, positive: bool) -> float:
        value = parse_number(text.strip())
        place = f"{self._path}:{line}:{column + 1}"
        if value is None or value < 0 or (positive and value == 0):
            raise InputError(place, f"expected a number {'>' if positive else '>='} 0, got {quote_cell(text)}")
        if value > 2 * LARGEST_DELAY_MS:
            raise InputError(place, f"expected a time in ms, at most {2 * LARGEST_DELAY_MS}, got {text[:40]}")
        return value

    def measurements(self, *, single: bool) -> Measurements:
        """Return the medians over all rows of a pair. ``single``: a pair may have only one row."""
        pairs = np.asarray(self._pairs, dtype=np.int64)
        if not len(pairs):
            raise InputError(str(self._path), "no measurement between two known servers")
        order = np.argsort(pairs, kind="stable")
        found, starts, counts = np.unique(pairs[order], return_index=True, return_counts=True)
        if single and counts.max() > 1:
            pair = self._pair_name(int(found[counts.argmax()]))
            raise InputError(str(self._path), f"more than one row for the pair {pair}")
        rtt_ms = self._medians(found, np.split(np.asarray(self._rtts_ms)[order], starts[1:]))
        mdev_ms = self._medians(found, np.split(np.asarray(self._mdevs_ms)[order], starts[1:]))
        measured = ~np.isnan(rtt_ms)
        used = np.flatnonzero(measured.any(axis=0) | measured.any(axis=1))
        servers = tuple(self._servers[number] for number in used)
        return Measurements(servers, rtt_ms[np.ix_(used, used)], mdev_ms[np.ix_(used, used)], self.unknown)

    def _medians(self, pairs: npt.NDArray[np.int64], samples: list[npt.NDArray[np.float64]]) -> Matrix:
        """Return (n, n) medians of each pair's samples; NaN = no sample."""
        size = len(self._servers)
        matrix = np.full(size * size, np.nan)
        matrix[pairs] = [np.median(values) if len(values) > 1 else values[0] for values in samples]
        return matrix.reshape(size, size)

    def _pair_name(self, pair: int) -> str:
        source, destination = divmod(pair, len(self._servers))
        return f"{self._servers[source].title} -> {self._servers[destination].title}"


def _read_servers(path: Path, *, by_index: bool) -> list[Server]:
    """Read the server list. ``by_index``: pairs name servers by the column ``index``, otherwise by ``id``."""
    key = "index" if by_index else "id"
    servers = []
    rows = stream_rows(path)
    header = next(rows, [])
    for number, cells in enumerate(rows, start=2):
        row = dict.fromkeys(header, "") | dict(zip(header, cells, strict=False))
        try:
            servers.append(
                Server(
                    id=row[key],
                    title=row["title"],
                    country=row["country"],
                    continent=row["continent"],
                    latitude=_degrees(row["latitude"]),
                    longitude=_degrees(row["longitude"]),
                )
            )
        except KeyError as error:
            raise InputError(f"{path}:1", f"no column {error}") from None
        except ValueError:
            raise InputError(f"{path}:{number}", "expected a latitude and a longitude") from None
    if len({server.id for server in servers}) != len(servers):
        raise InputError(str(path), f"two servers have the same {key}")
    return servers


def _degrees(text: str) -> float:
    """Return an angle.

    Raises:
        ValueError: the text is none.
    """
    value = parse_number(text.strip())
    if value is None or abs(value) > 360:
        raise ValueError
    return value


def _column_numbers(path: Path, header: list[str], names: tuple[str, ...]) -> list[int]:
    missing = [name for name in names if name not in header]
    if missing:
        raise InputError(f"{path}:1", f"no column {missing[0]!r}; is this a file of WonderNetwork pings?")
    return [header.index(name) for name in names]


def _first_file(folder: Path, patterns: tuple[str, ...]) -> Path:
    for pattern in patterns:
        found = sorted(folder.glob(pattern))
        if found:
            return found[0]
    raise InputError(str(folder), f"none of {', '.join(patterns)} found here")
