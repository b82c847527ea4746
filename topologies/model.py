"""The underlay: hosts, and delay, jitter, loss and rate of the network between any two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Raw, Struct

from topologies.jitter import CORRELATION_MS
from topologies.limits import Name
from topologies.link_graph import LinkGraph

Matrix = npt.NDArray[np.float64]

UP, DOWN = 0, 1
"""The rows of arrays about access links: towards the network, and from it."""


class Host(Struct, frozen=True):
    """The host of one peer.

    Position (degrees) and population are None for underlays without a map; ``x`` and ``y`` are the position in the unit
    square. ``site`` groups hosts that share a row of the matrix (several hosts in a city).
    """

    name: Name
    site: Name
    country: Name = ""
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None
    population: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    x: float | None = None
    y: float | None = None


class Underlay(Struct, frozen=True):
    """A latency-matrix underlay of n hosts.

    Attributes:
        kind: the generator or importer that made it.
        hosts: n hosts; the index is the host's number.
        delay_ms: (n, n) one-way delay from row to column; the diagonal is 0. Directions may differ. Delays are measured
            or modelled, never replaced by shortest paths.
        jitter_ms: (n, n) standard deviation of the one-way delay, 0 = none.
        loss_ratio: (n, n) probability that a packet is lost, 0..1.
        rate_mbit: (2, n) rate of each host's access link, ``UP`` and ``DOWN``; 0 = unlimited.
        queue_ms: (2, n) length of its drop-tail queue in each direction, as the time to drain it at the access rate.
        filled: (n, n) 0 = measured or modelled, 1 = taken from the reverse direction, 2 = estimated.
        sources: attributions to print in the report.
        jitter_correlation_ms: time between two random values of a pair's delay, which is linear in between
            (``topologies.jitter``). 0 = none, in documents of versions that drew the delay of every packet.
        graph: the routers and links of which the matrices are the paths; None = there are only the matrices.
        routers: with a graph, the number of the router of every host.

    Matrices are read-only: those of zeros use no memory (``between``).
    """

    kind: str
    hosts: tuple[Host, ...]
    delay_ms: Matrix
    jitter_ms: Matrix
    loss_ratio: Matrix
    rate_mbit: Matrix
    queue_ms: Matrix
    filled: npt.NDArray[np.int8]
    sources: tuple[str, ...] = ()
    jitter_correlation_ms: float = CORRELATION_MS
    graph: LinkGraph | None = None
    routers: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return len(self.hosts)

    @property
    def rtt_ms(self) -> Matrix:
        """(n, n) round-trip time between two hosts: the sum of the delays of both directions."""
        return np.asarray(self.delay_ms + self.delay_ms.T)

    def to_json(self) -> Iterator[bytes]:
        """Yield the parts of ``underlay.json``: matrices are lists of rows with six decimals (1 ns in ms).

        A matrix with the same value between any two hosts is written as that value, since ten thousand hosts have a
        hundred million pairs. Rows are yielded one at a time for the same reason. Access links that have the same
        values up and down are written as one row.
        """
        hosts = [
            {field: value for field in host.__struct_fields__ if (value := getattr(host, field)) is not None}
            for host in self.hosts
        ]
        opening: dict[str, Any] = {"kind": self.kind, "sources": self.sources, "hosts": hosts}
        if self.jitter_ms.any():
            opening["jitter_correlation_ms"] = self.jitter_correlation_ms
        if self.graph is not None:
            opening |= {"graph": self.graph, "routers": self.routers}
        yield msgspec.json.encode(opening).removesuffix(b"}")
        for name in _ARRAYS:
            yield f',"{name}":'.encode()
            yield from (_encode_access if name in _ACCESS else _encode)(getattr(self, name))
        yield b"}\n"

    @staticmethod
    def from_json(content: bytes) -> Underlay:
        """Return the underlay that ``to_json`` wrote.

        Raises:
            ValueError: the content is not an underlay (including ``msgspec.DecodeError``).
        """
        read = msgspec.json.decode(content, type=_Document)
        size = len(read.hosts)
        if read.graph is not None and (len(read.routers) != size or max(read.routers) >= len(read.graph.routers)):
            raise ValueError(f"expected {size} numbers of routers below {len(read.graph.routers)}")
        return Underlay(
            kind=read.kind,
            hosts=read.hosts,
            delay_ms=_decode(read.delay_ms, size),
            jitter_ms=_decode(read.jitter_ms, size),
            loss_ratio=_decode(read.loss_ratio, size),
            rate_mbit=_decode_access(read.rate_mbit, size),
            queue_ms=_decode_access(read.queue_ms, size),
            filled=_decode(read.filled, size, np.int8),
            sources=read.sources,
            jitter_correlation_ms=read.jitter_correlation_ms,
            graph=read.graph,
            routers=read.routers,
        )


def between(size: int, value: float, kind: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return (n, n): the value between any two hosts, 0 from each to itself. Zeros use no memory and are read-only."""
    if not value:
        return np.broadcast_to(np.zeros((), kind), (size, size))
    matrix = np.full((size, size), value, kind)
    np.fill_diagonal(matrix, 0)
    return matrix


_ARRAYS = ("delay_ms", "jitter_ms", "loss_ratio", "rate_mbit", "queue_ms", "filled")
_ACCESS = frozenset({"rate_mbit", "queue_ms"})


class _Document(Struct):
    """``underlay.json`` with the rows of its matrices not decoded."""

    kind: str
    sources: tuple[str, ...]
    hosts: tuple[Host, ...]
    delay_ms: float | list[Raw]
    jitter_ms: float | list[Raw]
    loss_ratio: float | list[Raw]
    rate_mbit: list[float | list[float]]
    queue_ms: list[float | list[float]]
    filled: float | list[Raw]
    jitter_correlation_ms: Annotated[float, Meta(ge=0)] = 0.0
    graph: LinkGraph | None = None
    routers: tuple[Annotated[int, Meta(ge=0)], ...] = ()


def _encode(array: npt.NDArray[Any]) -> Iterator[bytes]:
    if _is_even(array):
        yield msgspec.json.encode(np.round(array[0, -1], 6).item())
    else:
        yield b"["
        for number, row in enumerate(array):
            yield b"," * (number > 0) + _encode_row(row)
        yield b"]"


def _encode_access(array: npt.NDArray[Any]) -> Iterator[bytes]:
    up, down = array
    yield _encode_row(up if (up == down).all() else array)


def _encode_row(row: npt.NDArray[Any]) -> bytes:
    return msgspec.json.encode(np.round(row, 6).tolist())


def _is_even(matrix: npt.NDArray[Any]) -> bool:
    """Return whether the matrix is ``between`` of one value."""
    value = matrix[0, -1]
    others = np.count_nonzero(matrix != value)
    return bool(others == (len(matrix) if value else 0) and not np.diagonal(matrix).any())


def _decode(rows: float | Sequence[Raw], size: int, kind: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    if isinstance(rows, float):
        return between(size, float(_checked(np.array([rows]), 1)[0]), kind)
    if len(rows) != size:
        raise ValueError(f"expected {size} rows, got {len(rows)}")
    matrix = np.empty((size, size), kind)
    read = msgspec.json.Decoder(list[float]).decode
    for number, row in enumerate(rows):
        matrix[number] = _checked(np.array(read(row)), size)
    return matrix


def _decode_access(values: Sequence[Any], size: int) -> Matrix:
    read = np.array(values, np.float64)
    if read.ndim == 1:
        return np.stack([_checked(read, size)] * 2)
    if len(read) != 2:
        raise ValueError(f"expected one row, or one up and one down, got {len(read)}")
    return np.stack([_checked(row, size) for row in read])


def _checked(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    if len(values) != size:
        raise ValueError(f"expected {size} values, got {len(values)}")
    if (values < 0).any():
        raise ValueError(f"expected values from 0, got {values.min():g}")
    return values
