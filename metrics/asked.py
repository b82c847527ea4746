"""What was asked of the network between two nodes at an instant: the only reader of it in the analysis.

``stage_asked`` writes what was asked of all pairs of nodes, which may be 100 million, as matrices that tasks map;
``find_asked`` looks pairs up in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib.format import open_memmap

from metrics.pcap.walk import Bools, Ints
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.storage.attempts import whole
from metrics.storage.copies import map_array

Column: TypeAlias = "pa.Array | pa.ChunkedArray"

ASKED: Final = ("delay_ms", "jitter_ms", "loss_ratio")
"""What is staged of every directed pair of nodes."""

_MS: Final = 1e6


def stage_asked(run: RunDir, pairs: Place) -> None:
    """Write what was asked into a new folder: a matrix for each of ``ASKED``, a row and a column per node."""
    underlay = run.underlay
    hosts = {place.node: place.host for place in run.plan.placement}
    size, nodes, index = 1 + max(hosts), list(hosts), list(hosts.values())
    pairs.mkdir()
    for name in ASKED:
        matrix = getattr(underlay, name)
        with whole(pairs / f"{name}.npy") as attempt:
            asked = open_memmap(attempt, "w+", np.float64, (size, size))
            for node in range(size):
                asked[node] = np.nan
                if node in hosts:
                    asked[node, nodes] = matrix[hosts[node], index]
            asked.flush()


def find_asked(pairs: Place, name: str, source: Column, destination: Column) -> pa.Array:
    """Return what was asked of pairs of nodes; null where one has no number, or one that no node has.

    Args:
        pairs: the folder of ``stage_asked``.
        name: one of ``ASKED``.
        source: (n,) the nodes that send.
        destination: (n,) the nodes that receive.
    """
    matrix = map_array(pairs / f"{name}.npy")
    rows, columns = (_numbers(nodes) for nodes in (source, destination))
    known = (np.minimum(rows, columns) >= 0) & (np.maximum(rows, columns) < len(matrix))
    values = matrix[np.where(known, rows, 0), np.where(known, columns, 0)]
    return pa.array(values, pa.float64(), mask=~known | np.isnan(values))


@dataclass(frozen=True)
class Access:
    """The access links of all nodes' hosts.

    Attributes:
        byte_ns: (n,) time to send a byte, by node; 0 = no rate.
        queue_ns: (n,) longest time that a packet may wait.
    """

    byte_ns: tuple[float, ...]
    queue_ns: tuple[int, ...]

    @classmethod
    def of(cls, run: RunDir) -> "Access":
        """Read them from a run directory."""
        hosts = [place.host for place in sorted(run.plan.placement, key=lambda place: place.node)]
        rates, queues = run.underlay.rate_mbit[hosts].tolist(), run.underlay.queue_ms[hosts].tolist()
        return cls(tuple(8000 / rate if rate else 0.0 for rate in rates), tuple(int(queue * _MS) for queue in queues))

    def limits(self, nodes: Ints) -> Bools:
        """Return whether the access links of nodes have a rate, (n,)."""
        return np.asarray(np.array(self.byte_ns)[nodes] > 0)

    def link(self, node: int) -> tuple[float, int]:
        """Return the time to send a byte, and the longest time that a packet may wait."""
        return self.byte_ns[node], self.queue_ns[node]


def most_round_trip_loss(run: RunDir) -> float:
    """Return the largest loss that was asked of a round trip, 0..1."""
    loss_ratio = run.underlay.loss_ratio
    return float((1 - (1 - loss_ratio) * (1 - loss_ratio.T)).max())


def direct_delays_ms(run: RunDir, most_hosts: int) -> npt.NDArray[np.float64] | None:
    """Return the (n, n) one-way delays between hosts; None if there are more than ``most_hosts``."""
    return run.underlay.delay_ms if run.underlay.size <= most_hosts else None


def _numbers(nodes: Column | Sequence[int]) -> Ints:
    """Return the numbers of nodes; -1 where there is none."""
    column = nodes if isinstance(nodes, pa.Array | pa.ChunkedArray) else pa.array(nodes)
    values: Ints = column.cast(pa.int64()).fill_null(-1).to_numpy()
    return values
