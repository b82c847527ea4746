"""The underlay: hosts on a network, and what the network does to a packet between any two of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Matrix = npt.NDArray[np.float64]


class Host(Struct, frozen=True):
    """A place where one peer runs.

    Position (degrees) and population are None for underlays without a map; ``x`` and ``y`` are the position on the
    unit square. ``site`` groups hosts that share a row of the matrix (several hosts in a city).
    """

    name: str
    site: str
    country: str = ""
    latitude: float | None = None
    longitude: float | None = None
    population: int | None = None
    x: float | None = None
    y: float | None = None


class Underlay(Struct, frozen=True):
    """A latency-matrix underlay of n hosts.

    Attributes:
        kind: the generator or importer that made it.
        hosts: n hosts; the index is the host's number everywhere.
        delay_ms: (n, n) one-way delay from row to column; the diagonal is 0. Directions may differ. It is what was
            measured or modelled, never rewritten by shortest paths.
        jitter_ms: (n, n) standard deviation of the one-way delay, 0 = none.
        loss_ratio: (n, n) probability that a packet is lost, 0..1.
        rate_mbit: (n,) access rate of each host, up and down separately; 0 = unlimited.
        queue_ms: (n,) length of the access link's drop-tail queue, as the time to drain it at the access rate.
        filled: (n, n) 0 = measured or modelled as asked, 1 = taken from the reverse direction, 2 = estimated.
        sources: attributions to print in the report.
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

    @property
    def size(self) -> int:
        """The number of hosts."""
        return len(self.hosts)

    @property
    def rtt_ms(self) -> Matrix:
        """(n, n) round-trip time between two hosts: out on one direction's delay, back on the other's."""
        return np.asarray(self.delay_ms + self.delay_ms.T)

    def to_builtins(self) -> dict[str, Any]:
        """The JSON form that ``underlay.json`` holds; matrices become lists of rows, six decimals (1 ns in ms)."""
        return {
            "kind": self.kind,
            "sources": list(self.sources),
            "hosts": [
                {field: value for field in host.__struct_fields__ if (value := getattr(host, field)) is not None}
                for host in self.hosts
            ],
            **{name: np.round(getattr(self, name), 6).tolist() for name in _ARRAYS},
        }

    @staticmethod
    def from_builtins(document: dict[str, Any]) -> Underlay:
        """The inverse of ``to_builtins``.

        Raises:
            KeyError, TypeError, ValueError: the document is not an underlay.
        """
        arrays: dict[str, Any] = {
            name: np.array(document[name], dtype=np.int8 if name == "filled" else np.float64) for name in _ARRAYS
        }
        return Underlay(
            kind=document["kind"],
            sources=tuple(document["sources"]),
            hosts=tuple(Host(**host) for host in document["hosts"]),
            **arrays,
        )


_ARRAYS = ("delay_ms", "jitter_ms", "loss_ratio", "rate_mbit", "queue_ms", "filled")
