"""What was asked of the network between two nodes at an instant: the only reader of it in the analysis.

``stage_asked`` writes what was asked of all pairs of nodes, which may be 100 million, as matrices that tasks map;
``find_asked`` looks pairs up in them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace
from numpy.lib.format import open_memmap

from metrics.pcap.walk import Bools, Ints
from metrics.rundir import RunDir
from metrics.rundir.files import CHANGES_FILE, FAULTS_FILE
from metrics.storage import Place
from metrics.storage.attempts import whole
from metrics.storage.copies import map_array
from topologies.model import Underlay
from topologies.timeline import Change, decode_changes, encode_changes, instants_of

Column: TypeAlias = "pa.Array | pa.ChunkedArray"

ASKED: Final = ("delay_ms", "jitter_ms", "loss_ratio")
"""What is staged of every directed pair of nodes."""

Floats: TypeAlias = npt.NDArray[np.float64]

_QUEUES: Final = "queue_ms"
"""What is staged of every node: how long a packet may wait at its access link up and down, 0 = the link has no rate."""

_CHANGES: Final = CHANGES_FILE

Which = Literal["any", "cut", "settling", "other"]
"""Which changes ``PairChanges.meet`` looks for."""

MOST_BACKOFF_NS: Final = 120_000_000_000
"""The longest interval between two retransmissions of Linux's TCP."""

GRACE_NS: Final = 1_000_000_000
"""How long packets keep the order of those before a change."""

FOREVER_NS: Final = (1 << 63) - 1

_MS: Final = 1e6


def stage_asked(run: RunDir, pairs: Place) -> None:
    """Write what was asked into a new folder: a matrix for each of ``ASKED``, NaN for numbers that no node has.

    Beside the matrices are the queues of the nodes' access links.
    """
    underlay = run.underlay
    hosts = {place.node: place.host for place in run.plan.placement}
    size, nodes, index = 1 + max(hosts), list(hosts), list(hosts.values())
    pairs.mkdir()
    queue_ms = np.zeros((2, size))
    queue_ms[:, nodes] = _queues_ms(underlay)[:, index]
    with whole(pairs / f"{_QUEUES}.npy") as attempt, attempt.open("wb") as file:
        np.save(file, queue_ms)
    if changes := changes_of_nodes(run):
        with whole(pairs / _CHANGES) as attempt:
            attempt.write_bytes(encode_changes(changes))
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


def find_queues(pairs: Place, source: Column, destination: Column) -> Floats:
    """Return how long (ms) access links may hold a packet between two nodes, (n,).

    A node without a number holds none.

    Args:
        pairs: the folder of ``stage_asked``.
        source: (n,) the nodes that send.
        destination: (n,) the nodes that receive.
    """
    up_ms, down_ms = (np.append(row, 0.0) for row in map_array(pairs / f"{_QUEUES}.npy"))
    return np.asarray(up_ms[_numbers(source)] + down_ms[_numbers(destination)])


@dataclass(frozen=True)
class Access:
    """The access links of all nodes' hosts.

    Attributes:
        byte_ns: time to send a byte ``UP`` and ``DOWN``, (n,) each by node; 0 = no rate.
        queue_ns: longest time that a packet may wait, likewise.
    """

    byte_ns: tuple[tuple[float, ...], ...]
    queue_ns: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, run: RunDir) -> Self:
        """Read them from a run directory."""
        hosts = [place.host for place in sorted(run.plan.placement, key=lambda place: place.node)]
        rates, queues = run.underlay.rate_mbit[:, hosts].tolist(), run.underlay.queue_ms[:, hosts].tolist()
        return cls(
            tuple(tuple(8000 / rate if rate else 0.0 for rate in row) for row in rates),
            tuple(tuple(int(queue * _MS) for queue in row) for row in queues),
        )

    def limits(self, side: int, nodes: Ints) -> Bools:
        """Return whether the access links of nodes have a rate ``UP`` or ``DOWN``, (n,)."""
        return np.asarray(np.array(self.byte_ns[side])[nodes] > 0)

    def link(self, side: int, node: int) -> tuple[float, int]:
        """Return the time to send a byte ``UP`` or ``DOWN``, and the longest time that a packet may wait."""
        return self.byte_ns[side][node], self.queue_ns[side][node]


class PairChanges:
    """When faults change what is asked of the pairs of some hosts, or nodes.

    Args:
        changes: their instants are those of the run's clock.
        size: how many hosts, or nodes, there are.
    """

    def __init__(self, changes: Sequence[Change], size: int) -> None:
        self._changes = [(change, *_members(change, size)) for change in changes]
        self._size = size

    @classmethod
    def of(cls, run: RunDir) -> Self:
        """Read those of the hosts of a run; a run without faults has none."""
        return cls(read_changes(run), run.underlay.size)

    @classmethod
    def staged(cls, pairs: Place) -> Self:
        """Read those of the nodes from the folder of ``stage_asked``."""
        path = pairs / _CHANGES
        if not path.exists():
            return cls((), 0)
        return cls(decode_changes(path.read_bytes()), map_array(pairs / f"{_QUEUES}.npy").shape[1])

    def __bool__(self) -> bool:
        return bool(self._changes)

    def meet(self, source: Ints, destination: Ints, from_ns: Ints, to_ns: Ints, *, which: Which = "any") -> Bools:
        """Return which spans of time a change meets that concerns a pair, in either direction, (n,).

        Args:
            source: (n,) -1 for none.
            destination: (n,) likewise.
            from_ns: (n,) the first instants.
            to_ns: (n,) the last instants.
            which: ``cut``: only cuts. ``settling``: only cuts, and each lasts as long again, at most
                ``MOST_BACKOFF_NS``: TCP retransmits at intervals that double (RFC 6298), so after a cut of a second it
                may wait for another one. ``other``: only changes that cut nothing, and each lasts ``GRACE_NS`` longer.
        """
        met = np.zeros(len(source), np.bool_)
        for change, concerned in self._concerning(source, destination):
            if which == "any" or change.is_cut != (which == "other"):
                met |= concerned & (from_ns < _end_ns(change, which)) & (to_ns >= change.from_ns)
        return met

    def first_cut_ns(self, source: Ints, destination: Ints, from_ns: Ints) -> Ints:
        """Return when the first cut of each pair begins that ends, and has settled, after ``from_ns``.

        ``FOREVER_NS`` if there is none.
        """
        first_ns = np.full(len(source), FOREVER_NS)
        for change, concerned in self._concerning(source, destination):
            if change.is_cut:
                later = concerned & (from_ns < _end_ns(change, "settling"))
                first_ns[later] = np.minimum(first_ns[later], change.from_ns)
        return first_ns

    def _concerning(self, source: Ints, destination: Ints) -> Iterator[tuple[Change, Bools]]:
        """Yield every change with the pairs that it concerns, in either direction, (n,)."""
        known = (np.minimum(source, destination) >= 0) & (np.maximum(source, destination) < self._size)
        src, dst = np.where(known, source, 0), np.where(known, destination, 0)
        for change, sources, destinations, access in self._changes:
            concerned = (sources[src] & destinations[dst]) | (sources[dst] & destinations[src])
            yield change, known & (concerned | access[src] | access[dst])


def _members(change: Change, size: int) -> tuple[Bools, Bools, Bools]:
    """Return which hosts a change has as sources, as destinations, and with an access link, (size,) each."""
    found = np.zeros((3, size), np.bool_)
    for row, hosts in zip(found, (change.sources, change.destinations, (*change.up, *change.down)), strict=True):
        row[list(hosts)] = True
    return found[0], found[1], found[2]


def _end_ns(change: Change, which: Which) -> int:
    if change.to_ns is None:
        return FOREVER_NS
    later_ns = {"settling": min(change.to_ns - change.from_ns, MOST_BACKOFF_NS), "other": GRACE_NS}.get(which, 0)
    return change.to_ns + later_ns


def read_changes(run: RunDir) -> tuple[Change, ...]:
    """Return the changes of a run between hosts, on its clock, at the instants at which they were applied.

    An instant for which nothing was recorded is that asked for.
    """
    applied_ns = {line["asked_ns"]: line["applied_ns"] for line in run.lines(FAULTS_FILE)} if run.changes else {}
    asked = (change.after(run.manifest.zero_ns) for change in run.changes)
    return tuple(
        replace(
            change,
            from_ns=applied_ns.get(change.from_ns, change.from_ns),
            to_ns=None if change.to_ns is None else applied_ns.get(change.to_ns, change.to_ns),
        )
        for change in asked
    )


def changes_of_nodes(run: RunDir) -> tuple[Change, ...]:
    """Return the same changes with nodes instead of hosts."""
    nodes: dict[int, list[int]] = {}
    for place in run.plan.placement:
        nodes.setdefault(place.host, []).append(place.node)
    return tuple(
        replace(
            change,
            **{
                name: tuple(node for host in getattr(change, name) for node in nodes.get(host, ()))
                for name in ("sources", "destinations", "up", "down", "paused")
            },
        )
        for change in read_changes(run)
    )


def asked_instants(run: RunDir) -> list[int]:
    """Return when the network of a run was to change, in order, on the run's clock."""
    return [run.manifest.zero_ns + at_ns for at_ns in instants_of(run.changes)]


def read_cuts(run: RunDir) -> tuple[Change, ...]:
    """Return the cuts among the changes between nodes."""
    return tuple(change for change in changes_of_nodes(run) if change.is_cut)


class RoundTrips(NamedTuple):
    """What is asked of the round trips between hosts besides their delays, as (n, n) matrices.

    Attributes:
        loss_ratio: the probability that a round trip loses a packet, 0..1.
        queue_ms: the longest that access links with a rate may add; 0 where they add nothing.
    """

    loss_ratio: Floats
    queue_ms: Floats

    @classmethod
    def of(cls, underlay: Underlay, *, idle: bool) -> Self:
        """Read it from an underlay; the queues of an idle network are empty."""
        loss_ratio = 1 - (1 - underlay.loss_ratio) * (1 - underlay.loss_ratio.T)
        queue_ms = np.zeros(underlay.size) if idle else _queues_ms(underlay).sum(axis=0)
        return cls(loss_ratio, queue_ms[:, None] + queue_ms[None, :])

    def of_pairs(self, probes: pa.Table) -> tuple[Floats, Floats]:
        """Return (m,) values of each matrix for the pairs of probes; 0 for hosts that it does not have."""
        loss_ratio, queue_ms = (of_pairs(probes, matrix, 0.0) for matrix in self)
        return loss_ratio, queue_ms


NOTHING_ASKED: Final = RoundTrips(np.zeros((0, 0)), np.zeros((0, 0)))


def of_pairs(probes: pa.Table, matrix: npt.NDArray[Any], absent: float) -> npt.NDArray[Any]:
    """Return the (m,) values of a matrix for the pairs of probes; ``absent`` for hosts that it does not have."""
    src, dst = (probes[end].to_numpy() for end in ("src", "dst"))
    known = (np.minimum(src, dst) >= 0) & (np.maximum(src, dst) < len(matrix))
    found = np.full(len(probes), absent, matrix.dtype)
    found[known] = matrix[src[known], dst[known]]
    return found


def direct_delays_ms(run: RunDir, most_hosts: int) -> Floats | None:
    """Return the (n, n) one-way delays between hosts; None if there are more than ``most_hosts``, or one is unknown."""
    underlay = run.underlay
    if underlay.size > most_hosts or np.isnan(underlay.delay_ms).any():
        return None
    return underlay.delay_ms


def _queues_ms(underlay: Underlay) -> Floats:
    """Return how long a packet may wait at each host's access link, (2, n)."""
    return np.where(underlay.rate_mbit > 0, underlay.queue_ms, 0.0)


def _numbers(nodes: Column) -> Ints:
    """Return the numbers of nodes, (n,); -1 where there is none."""
    values: Ints = nodes.cast(pa.int64()).fill_null(-1).to_numpy()
    return values
