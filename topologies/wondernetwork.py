"""The measured planet: WonderNetwork's pings between 246 cities, as an underlay.

Three published forms are read, told apart by their header: the processed pairs (``src,dst,...,rtt_avg_ms,...,mdev_ms,
fill``), the grouped pings (``source,destination,min,avg,max,mdev``, a row a pair) and the raw hourly pings (the same
with a ``timestamp``), whose medians are taken. Latencies are kept per direction and as measured; pairs without a
measurement are filled, and ``Underlay.filled`` shows which.

Source: WonderNetwork, "A day in the life of the Internet", 19-20 July 2020.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from topologies.faults import UnderlayError
from topologies.model import Host, Matrix, Underlay

ATTRIBUTION = "Latencies: WonderNetwork (https://wondernetwork.com), 19-20 July 2020"

_PAIR_FILES = ("wn-pairs*.csv.gz", "wn-pairs*.csv", "pings-grouped.csv", "pings*.csv.gz", "pings*.csv")
_SERVER_FILES = {True: ("wn-servers.csv",), False: ("servers-original-order.csv", "servers*.csv", "wn-servers.csv")}
_COLUMNS = {
    True: ("src", "dst", "rtt_avg_ms", "mdev_ms", "fill"),
    False: ("source", "destination", "avg", "mdev"),
}


class Server(Struct, frozen=True):
    """A row of the server list. ``continent`` is WonderNetwork's own number (3 = Europe and Asia)."""

    id: str
    title: str
    country: str
    continent: str
    latitude: float
    longitude: float


class Measurements(Struct, frozen=True):
    """What was measured between n servers.

    Attributes:
        servers: in the order of the server list, those without any ping left out.
        rtt_ms: (n, n) mean round-trip time seen from the row, NaN where there is no measurement.
        mdev_ms: (n, n) its standard deviation (what ping calls mdev), NaN where there is none.
        unknown_rows: rows left out because the server list does not have one of their ids.
    """

    servers: tuple[Server, ...]
    rtt_ms: Matrix
    mdev_ms: Matrix
    unknown_rows: int = 0


def read_measurements(path: Path) -> Measurements:
    """Read a folder with the published files, or one file of pings with its server list beside it.

    Raises:
        UnderlayError: a file is missing or a line of it is malformed; the place is the file and line.
    """
    pings_path = _first_file(path, _PAIR_FILES) if path.is_dir() else path
    if not pings_path.is_file():
        raise UnderlayError(str(pings_path), "no such file")
    reader = csv.reader(_lines(pings_path))
    header = next(reader, [])
    processed = "rtt_avg_ms" in header
    columns = _column_numbers(pings_path, header, _COLUMNS[processed])
    servers = _read_servers(_first_file(pings_path.parent, _SERVER_FILES[processed]), by_index=processed)
    rows = _Rows(pings_path, servers, columns)
    rows.read(reader)
    if processed and rows.unknown:
        raise UnderlayError(str(pings_path), f"{rows.unknown} rows name servers that the server list does not have")
    return rows.measurements(single="timestamp" not in header)


def build_underlay(measurements: Measurements) -> Underlay:
    """The underlay of all servers.

    The one-way delay from s to d is half the round-trip time that s measured to d, so the round trip of a pair is the
    mean of its two measurements. Its jitter is the measurement's standard deviation over the square root of two, so
    that the two legs of a round trip, drawn independently, vary together as the measured round trip did.

    Raises:
        UnderlayError: a pair is measured in neither direction nor over any relay.
    """
    rtt_ms, mdev_ms, filled = fill_holes(measurements)
    size = len(measurements.servers)
    return Underlay(
        kind="wondernetwork",
        hosts=tuple(
            Host(
                name=server.title,
                site=server.title,
                country=server.country,
                latitude=server.latitude,
                longitude=server.longitude,
            )
            for server in measurements.servers
        ),
        delay_ms=rtt_ms / 2,
        jitter_ms=mdev_ms / math.sqrt(2),
        loss_ratio=np.zeros((size, size)),
        rate_mbit=np.zeros(size),
        queue_ms=np.zeros(size),
        filled=filled,
        sources=(ATTRIBUTION,),
    )


def fill_holes(measurements: Measurements) -> tuple[Matrix, Matrix, npt.NDArray[np.int8]]:
    """RTT, its deviation, and how each was obtained: 0 measured, 1 the reverse direction, 2 the best measured relay.

    A relay's deviation is that of its two independent legs. No measured value is changed.

    Raises:
        UnderlayError: a pair cannot be filled.
    """
    rtt_ms, mdev_ms = measurements.rtt_ms.copy(), measurements.mdev_ms.copy()
    filled = np.zeros(rtt_ms.shape, dtype=np.int8)
    np.fill_diagonal(rtt_ms, 0)
    np.fill_diagonal(mdev_ms, 0)
    for source, destination in np.argwhere(np.isnan(rtt_ms)):
        if not np.isnan(measurements.rtt_ms[destination, source]):
            filled[source, destination] = 1
            rtt_ms[source, destination] = measurements.rtt_ms[destination, source]
            mdev_ms[source, destination] = measurements.mdev_ms[destination, source]
            continue
        detours_ms = measurements.rtt_ms[source] + measurements.rtt_ms[:, destination]
        if np.isnan(detours_ms).all():
            names = [measurements.servers[end].title for end in (source, destination)]
            raise UnderlayError(" -> ".join(names), "measured in neither direction, nor over any relay")
        relay = np.nanargmin(detours_ms)
        filled[source, destination] = 2
        rtt_ms[source, destination] = detours_ms[relay]
        mdev_ms[source, destination] = math.hypot(
            measurements.mdev_ms[source, relay], measurements.mdev_ms[relay, destination]
        )
    return rtt_ms, mdev_ms, filled


class _Rows:
    """The rows of a file of pings, as columns of numbers."""

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
                raise UnderlayError(f"{self._path}:{number}", f"expected more than {len(row)} columns") from None
            if source_id == destination_id or fill not in ([], ["0"]):
                continue  # a server's ping to itself; a hole that we fill again by the same rule
            source, destination = self._index.get(source_id), self._index.get(destination_id)
            if source is None or destination is None:
                self.unknown += 1
                continue
            self._pairs.append(source * len(self._servers) + destination)
            self._rtts_ms.append(self._milliseconds(number, self._columns[2], rtt, positive=True))
            self._mdevs_ms.append(self._milliseconds(number, self._columns[3], mdev, positive=False))

    def _milliseconds(self, line: int, column: int, text: str, *, positive: bool) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (positive and value == 0):
            wanted = "a positive number" if positive else "a number, 0 or above"
            raise UnderlayError(f"{self._path}:{line}:{column + 1}", f"expected {wanted}, got {text!r}")
        return value

    def measurements(self, *, single: bool) -> Measurements:
        """The medians over all rows of a pair; ``single``: a pair may have one row only."""
        size = len(self._servers)
        pairs = np.asarray(self._pairs, dtype=np.int64)
        order = np.argsort(pairs, kind="stable")
        found, starts = np.unique(pairs[order], return_index=True)
        if not len(found):
            raise UnderlayError(str(self._path), "no measurement between two known servers")
        if single and len(found) != len(pairs):
            twice = self._pair_name(int(found[np.argmax(np.diff(np.append(starts, len(pairs))) > 1)]))
            raise UnderlayError(str(self._path), f"more than one row for the pair {twice}")
        matrices = []
        for column in (self._rtts_ms, self._mdevs_ms):
            matrix = np.full(size * size, np.nan)
            groups = np.split(np.asarray(column)[order], starts[1:])
            matrix[found] = [np.median(group) if len(group) > 1 else group[0] for group in groups]
            matrices.append(matrix.reshape(size, size))
        rtt_ms, mdev_ms = matrices
        used = np.flatnonzero((~np.isnan(rtt_ms)).any(axis=0) | (~np.isnan(rtt_ms)).any(axis=1))
        servers = tuple(self._servers[number] for number in used)
        return Measurements(servers, rtt_ms[np.ix_(used, used)], mdev_ms[np.ix_(used, used)], self.unknown)

    def _pair_name(self, pair: int) -> str:
        source, destination = divmod(pair, len(self._servers))
        return f"{self._servers[source].title} -> {self._servers[destination].title}"


def _read_servers(path: Path, *, by_index: bool) -> list[Server]:
    """The server list; ``by_index``: pairs name servers by the column ``index``, else by ``id``."""
    key = "index" if by_index else "id"
    servers = []
    for number, row in enumerate(csv.DictReader(_lines(path)), start=2):
        try:
            servers.append(
                Server(
                    id=row[key],
                    title=row["title"],
                    country=row["country"],
                    continent=row["continent"],
                    latitude=float(row["latitude"]),
                    longitude=float(row["longitude"]),
                )
            )
        except KeyError as error:
            raise UnderlayError(f"{path}:1", f"no column {error}") from None
        except (TypeError, ValueError):
            raise UnderlayError(f"{path}:{number}", "expected a latitude and a longitude") from None
    if len({server.id for server in servers}) != len(servers):
        raise UnderlayError(str(path), f"two servers have the same {key}")
    return servers


def _column_numbers(path: Path, header: list[str], names: tuple[str, ...]) -> list[int]:
    missing = [name for name in names if name not in header]
    if missing:
        raise UnderlayError(f"{path}:1", f"no column {missing[0]!r}; is this a file of WonderNetwork pings?")
    return [header.index(name) for name in names]


def _first_file(folder: Path, patterns: tuple[str, ...]) -> Path:
    for pattern in patterns:
        found = sorted(folder.glob(pattern))
        if found:
            return found[0]
    raise UnderlayError(str(folder), f"none of {', '.join(patterns)} found here")


def _lines(path: Path) -> Iterator[str]:
    """The file's lines, unpacked where it is packed."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as lines:
            yield from lines
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UnderlayError(str(path), f"cannot be read: {error}") from None
