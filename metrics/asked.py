"""What was asked of the network between two nodes at an instant: no other module of the analysis reads it.

``stage_asked`` writes what was asked of all pairs of nodes, which may be 100 million, as matrices that tasks map;
``find_asked`` looks pairs up in them. ``metrics.changes`` has what faults change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib.format import open_memmap

from metrics.changes import GRACE_NS, PairChanges, changes_of_nodes
from metrics.pcap.walk import Bools, Ints
from metrics.rundir import RunDir
from metrics.rundir.files import CHANGES_FILE
from metrics.storage import Place
from metrics.storage.attempts import whole
from metrics.storage.copies import map_array
from topologies.model import DOWN, UP
from topologies.network import Link, Network
from topologies.timeline import encode_changes

Column: TypeAlias = "pa.Array | pa.ChunkedArray"

ASKED: Final = ("delay_ms", "jitter_ms", "loss_ratio")
"""The values that are staged for every directed pair of nodes."""

Floats: TypeAlias = npt.NDArray[np.float64]

_INNER_QUEUES: Final = "inner_queues_ms"
"""A value that is staged for every directed pair of nodes, too, if the network has bottlenecks."""

_ACCESS: Final = "access"
"""The values that are staged for every node: the arrays of ``Access``."""

_SEGMENT: Final = "segment_bytes"
"""A value that is staged once: the payload of a full TCP packet."""

_MS: Final = 1e6


def stage_asked(run: RunDir, pairs: Place) -> None:
    """Write what was asked into a new folder: one matrix for each of ``ASKED``, NaN for numbers that no node has.

    If the network has bottlenecks, there is a matrix of the lengths of their queues, too.

    Beside the matrices are the rates and queues of the nodes' access links, the payload of a full TCP packet, and the
    changes that faults make.
    """
    network = run.network
    hosts = {place.node: place.host for place in run.plan.placement}
    size, nodes, index = 1 + max(hosts), list(hosts), list(hosts.values())
    pairs.mkdir()
    access = np.zeros((2, 2, size + 1))
    for side, links in enumerate(_access_links(network, index)):
        access[0, side, nodes] = [link.rate_mbit for link in links]
        access[1, side, nodes] = [link.queue_ms for link in links]
    with whole(pairs / f"{_ACCESS}.npy") as attempt, attempt.open("wb") as file:
        np.save(file, access)
    with whole(pairs / f"{_SEGMENT}.npy") as attempt, attempt.open("wb") as file:
        np.save(file, np.array([run.segment_bytes]))
    if changes := changes_of_nodes(run):
        with whole(pairs / CHANGES_FILE) as attempt:
            attempt.write_bytes(encode_changes(changes))
    matrices = network.asked_of_pairs()._asdict()
    if network.bottlenecks:
        matrices[_INNER_QUEUES] = network.inner_queues_ms
    for name, matrix in matrices.items():
        with whole(pairs / f"{name}.npy") as attempt:
            asked = open_memmap(attempt, "w+", np.float64, (size, size))
            for node in range(size):
                asked[node] = np.nan
                if node in hosts:
                    asked[node, nodes] = matrix[hosts[node], index]
            asked.flush()


def find_asked(pairs: Place, name: str, source: Column, destination: Column, at_ns: "Column | None" = None) -> pa.Array:
    """Return what was asked of pairs of nodes; null if a node has no number, or a number that no node has.

    Args:
        pairs: the folder of ``stage_asked``.
        name: one of ``ASKED``.
        source: (n,) the nodes that send.
        destination: (n,) the nodes that receive.
        at_ns: (n,) the instants, at which faults may have changed the values; null, or None for all = without faults.
    """
    matrix = map_array(pairs / f"{name}.npy")
    rows, columns = (_numbers(nodes) for nodes in (source, destination))
    known = (np.minimum(rows, columns) >= 0) & (np.maximum(rows, columns) < len(matrix))
    values = matrix[np.where(known, rows, 0), np.where(known, columns, 0)]
    if at_ns is not None:
        values = PairChanges.staged(pairs).alter(name, values, rows, columns, _numbers(at_ns))
    return pa.array(values, pa.float64(), mask=~known | np.isnan(values))


def find_segment_bytes(pairs: Place) -> int:
    """Return the payload of a full TCP packet, from the folder of ``stage_asked``."""
    return int(map_array(pairs / f"{_SEGMENT}.npy")[0])


def find_queues(pairs: Place, source: Column, destination: Column, at_ns: Column) -> Floats:
    """Return how long (ms) access links and bottlenecks may hold a packet between two nodes, (n,).

    A node without a number holds no packet. A link that a fault limits counts from ``GRACE_NS`` before the fault.

    Args:
        pairs: the folder of ``stage_asked``.
        source: (n,) the nodes that send.
        destination: (n,) the nodes that receive.
        at_ns: (n,) the instants at which packets enter the network.
    """
    access, ends, entered_ns = Access.staged(pairs), (_numbers(source), _numbers(destination)), _numbers(at_ns)
    limited = access.changes.meet(*ends, entered_ns, entered_ns + GRACE_NS, which="access")
    inner_ms: Floats = np.zeros(len(entered_ns))
    if (pairs / f"{_INNER_QUEUES}.npy").exists():
        found = find_asked(pairs, _INNER_QUEUES, source, destination)
        inner_ms = found.fill_null(0.0).to_numpy()
    return np.asarray(
        sum(
            (
                np.where(limited | (access.rate_mbit[side][nodes] > 0), access.queue_ms[side][nodes], 0.0)
                for side, nodes in zip((UP, DOWN), ends, strict=True)
            ),
            inner_ms,
        )
    )


@dataclass(frozen=True)
class Access:
    """The access links of all nodes' hosts, and the faults that change their rates.

    Attributes:
        rate_mbit: (2, n + 1) ``UP`` and ``DOWN`` by node, without faults; 0 = no rate. The last column stands for nodes
            without a number.
        queue_ms: (2, n + 1) longest time that a packet may wait, likewise.
        changes: the changes of nodes, at the instants at which they were applied.
    """

    rate_mbit: Floats
    queue_ms: Floats
    changes: PairChanges

    @classmethod
    def staged(cls, pairs: Place) -> Self:
        """Read the access links from the folder of ``stage_asked``."""
        rate_mbit, queue_ms = map_array(pairs / f"{_ACCESS}.npy")
        return cls(rate_mbit, queue_ms, PairChanges.staged(pairs))

    @property
    def nodes(self) -> int:
        """How many nodes may have an access link: one more than the largest number."""
        return int(self.rate_mbit.shape[1]) - 1

    def rates_mbit(self, side: int, nodes: Ints, at_ns: Ints) -> Floats:
        """Return the rates ``UP`` or ``DOWN`` of nodes' access links at some instants, (n,); 0 = no rate.

        Args:
            side: ``UP`` or ``DOWN``.
            nodes: (n,) the nodes.
            at_ns: (n,) the instants.
        """
        return self.changes.limit(side, self.rate_mbit[side][nodes], nodes, at_ns)

    def alters(self, side: int, nodes: Ints, at_ns: Ints) -> Bools:
        """Return whether a fault has changed the rate ``UP`` or ``DOWN`` of nodes' access links at an instant, (n,).

        Args:
            side: ``UP`` or ``DOWN``.
            nodes: (n,) the nodes.
            at_ns: (n,) the instants.
        """
        return np.asarray(self.rates_mbit(side, nodes, at_ns) != self.rate_mbit[side][nodes])

    def queue_ns(self, side: int, node: int) -> int:
        """Return the longest time that a packet may wait at a node's access link ``UP`` or ``DOWN``."""
        return int(self.queue_ms[side][node] * _MS)


class RoundTrips(NamedTuple):
    """What is asked of the round trips between hosts besides their delays, as (n, n) matrices.

    Attributes:
        loss_ratio: the probability that a round trip loses a packet, 0..1.
        queue_ms: the longest time that links with a rate may add; 0 if they add nothing.
    """

    loss_ratio: Floats
    queue_ms: Floats

    @classmethod
    def of(cls, network: Network, *, idle: bool) -> Self:
        """Read the values from a network; the queues of an idle network are empty."""
        there = network.asked_of_pairs().loss_ratio
        loss_ratio = 1 - (1 - there) * (1 - there.T)
        if idle:
            return cls(loss_ratio, np.zeros((network.size, network.size)))
        inner_ms, queue_ms = network.inner_queues_ms, _queues_ms(network).sum(axis=0)
        return cls(loss_ratio, queue_ms[:, None] + queue_ms[None, :] + inner_ms + inner_ms.T)

    def of_pairs(self, probes: pa.Table) -> tuple[Floats, Floats]:
        """Return (m,) values of each matrix for the pairs of probes; 0 for hosts that it does not have."""
        loss_ratio, queue_ms = (of_pairs(probes, matrix, 0.0) for matrix in self)
        return loss_ratio, queue_ms


NOTHING_ASKED: Final = RoundTrips(np.zeros((0, 0)), np.zeros((0, 0)))


def of_pairs(probes: pa.Table, matrix: npt.NDArray[Any], absent: float) -> npt.NDArray[Any]:
    """Return the (m,) values of a matrix for the pairs of probes; ``absent`` for hosts that it does not have.

    Args:
        probes: (m,) rows with ``src`` and ``dst``, numbers of hosts.
        matrix: (n, n) a value for each pair of hosts.
        absent: the value for other hosts.
    """
    src, dst = (probes[end].to_numpy() for end in ("src", "dst"))
    known = (np.minimum(src, dst) >= 0) & (np.maximum(src, dst) < len(matrix))
    found = np.full(len(probes), absent, matrix.dtype)
    found[known] = matrix[src[known], dst[known]]
    return found


def direct_delays_ms(run: RunDir, most_hosts: int) -> Floats | None:
    """Return the (n, n) one-way delays between hosts; None if there are more than ``most_hosts``, or one is unknown."""
    if run.network.size > most_hosts:
        return None
    delay_ms = run.network.asked_of_pairs().delay_ms
    return None if np.isnan(delay_ms).any() else delay_ms


def _queues_ms(network: Network) -> Floats:
    """Return how long a packet may wait at each host's access link, (2, n)."""
    sides = _access_links(network, range(network.size))
    return np.array([[link.queue_ms if link.rate_mbit else 0.0 for link in side] for side in sides])


def _access_links(network: Network, hosts: Iterable[int]) -> tuple[list[Link], list[Link]]:
    """Return the access links of hosts ``UP`` and ``DOWN``."""
    numbers = [network.access(host) for host in hosts]
    return [network.link(up) for up, _ in numbers], [network.link(down) for _, down in numbers]


def _numbers(nodes: Column) -> Ints:
    """Return the numbers of nodes, (n,); -1 for a node without a number."""
    values: Ints = nodes.cast(pa.int64()).fill_null(-1).to_numpy()
    return values
