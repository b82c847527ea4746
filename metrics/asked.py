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
from topologies.network import Link
from topologies.timeline import Change, decode_changes, encode_changes, instants_of

Column: TypeAlias = "pa.Array | pa.ChunkedArray"

ASKED: Final = ("delay_ms", "jitter_ms", "loss_ratio")
"""What is staged of every directed pair of nodes."""

Floats: TypeAlias = npt.NDArray[np.float64]

_QUEUES: Final = "queue_ms"
"""What is staged of every node: how long a packet may wait at its access link, 0 = the link has no rate."""

_CHANGES: Final = CHANGES_FILE

Which = Literal["links", "cut", "access", "halt", "settling", "breaking"]
"""Which changes ``PairChanges.meet`` looks for, and how long they last:

* ``links``: those of links, and not of peers.
* ``cut``: cuts.
* ``access``: those of access links; each lasts ``GRACE_NS`` longer.
* ``halt``: what halts connections: cuts, and pauses of the peer at either end.
* ``settling``: the same, but each lasts as long again, at most ``MOST_BACKOFF_NS``: TCP retransmits, and asks whether a
  full receiver has room, at intervals that double (RFC 6298, RFC 9293), so after a cut of a second it may wait for
  another one.
* ``breaking``: the same, but each lasts ``BREAK_NS`` longer: connections may still break for it.
"""

MOST_BACKOFF_NS: Final = 120_000_000_000
"""The longest interval between two retransmissions of Linux's TCP."""

BREAK_NS: Final = 30_000_000_000
"""How long after a cut or a pause a connection may still break for it: ``TCP_USER_TIMEOUT`` (``peer.runtime.link``)."""

GRACE_NS: Final = 1_000_000_000
"""How long after a change packets are not judged, besides the delay before it: they keep the order of earlier ones."""

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
    queue_ms = np.zeros(size)
    queue_ms[nodes] = _queues_ms(underlay)[index]
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


def find_asked(pairs: Place, name: str, source: Column, destination: Column, at_ns: "Column | None" = None) -> pa.Array:
    """Return what was asked of pairs of nodes; null where one has no number, or one that no node has.

    Args:
        pairs: the folder of ``stage_asked``.
        name: one of ``ASKED``.
        source: (n,) the nodes that send.
        destination: (n,) the nodes that receive.
        at_ns: (n,) the instants, at which faults may have changed it; null, or None for all = without faults.
    """
    matrix = map_array(pairs / f"{name}.npy")
    rows, columns = (_numbers(nodes) for nodes in (source, destination))
    known = (np.minimum(rows, columns) >= 0) & (np.maximum(rows, columns) < len(matrix))
    values = matrix[np.where(known, rows, 0), np.where(known, columns, 0)]
    if at_ns is not None:
        values = PairChanges.staged(pairs).alter(name, values, rows, columns, _numbers(at_ns))
    return pa.array(values, pa.float64(), mask=~known | np.isnan(values))


def find_queues(pairs: Place, nodes: Column) -> Floats:
    """Return how long (ms) a packet may wait at the access links of nodes, (n,); 0 where a node has no number."""
    queue_ms = np.append(map_array(pairs / f"{_QUEUES}.npy"), 0.0)
    return np.asarray(queue_ms[_numbers(nodes)])


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
    def of(cls, run: RunDir) -> Self:
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


class PairChanges:
    """When faults change what is asked of the pairs of some hosts, or nodes, or pause their peers.

    Args:
        changes: their instants are those of the run's clock.
        size: how many hosts, or nodes, there are.
    """

    def __init__(self, changes: Sequence[Change], size: int) -> None:
        self._changes = [(change, _Hosts.of(change, size)) for change in changes]
        self._size = size

    @classmethod
    def of(cls, run: RunDir) -> Self:
        """Read those of the hosts of a run; a run without faults has none."""
        return cls(read_changes(run), run.underlay.size)

    @classmethod
    def of_nodes(cls, run: RunDir) -> Self:
        """Read those of the nodes of a run."""
        return cls(changes_of_nodes(run), 1 + max((place.node for place in run.plan.placement), default=-1))

    @classmethod
    def staged(cls, pairs: Place) -> Self:
        """Read those of the nodes from the folder of ``stage_asked``."""
        path = pairs / _CHANGES
        if not path.exists():
            return cls((), 0)
        return cls(decode_changes(path.read_bytes()), len(map_array(pairs / f"{_QUEUES}.npy")))

    def __bool__(self) -> bool:
        return bool(self._changes)

    @property
    def degrade(self) -> bool:
        """Whether some of them change the links of pairs, and cut nothing."""
        return any(_degrades(change) for change, _ in self._changes)

    def meet(self, source: Ints, destination: Ints, from_ns: Ints, to_ns: Ints, *, which: Which) -> Bools:
        """Return which spans of time a change meets that concerns a pair, in either direction, (n,).

        Args:
            source: (n,) -1 for none.
            destination: (n,) likewise.
            from_ns: (n,) the first instants.
            to_ns: (n,) the last instants.
            which: see there.
        """
        met = np.zeros(len(source), np.bool_)
        for change, concerned in self._concerning(source, destination, which):
            met |= concerned & (from_ns < _end_ns(change, which)) & (to_ns >= change.from_ns)
        return met

    def paused(self, nodes: Ints, from_ns: Ints, to_ns: Ints) -> Bools:
        """Return which spans of time meet a pause of their node's peer, or ``GRACE_NS`` after it, (n,).

        In that time the peer handles what has come meanwhile.

        Args:
            nodes: (n,) -1 for none.
            from_ns: (n,) the first instants.
            to_ns: (n,) the last instants.
        """
        met = np.zeros(len(nodes), np.bool_)
        known, node, _ = self._find(nodes, nodes)
        for change, hosts in self._changes:
            if change.paused:
                met |= known & hosts.ends[node] & (from_ns < _end_ns(change, "access")) & (to_ns >= change.from_ns)
        return met

    def first_halt_ns(self, source: Ints, destination: Ints, from_ns: Ints) -> Ints:
        """Return when the first cut or pause of each pair begins that ends, and has settled, after ``from_ns``.

        ``FOREVER_NS`` if there is none.
        """
        first_ns = np.full(len(source), FOREVER_NS)
        for change, concerned in self._concerning(source, destination, "settling"):
            later = concerned & (from_ns < _end_ns(change, "settling"))
            first_ns[later] = np.minimum(first_ns[later], change.from_ns)
        return first_ns

    def alter(self, name: str, values: Floats, source: Ints, destination: Ints, at_ns: Ints) -> Floats:
        """Return what is asked of directed pairs at some instants, (n,).

        Args:
            name: one of ``ASKED``.
            values: (n,) what is asked without faults.
            source: (n,) -1 for none.
            destination: (n,) likewise.
            at_ns: (n,) the instants.
        """
        for change, concerned in self._reaching(source, destination):
            holds = concerned & (change.from_ns <= at_ns) & (at_ns < _end_ns(change, "links"))
            values = np.where(holds, getattr(change.alter(Link(**{name: values})), name), values)  # type: ignore[arg-type]
        return values

    def alters(self, source: Ints, destination: Ints, at_ns: Ints) -> Bools:
        """Return whether a fault, which is no cut, has changed the link of each directed pair at an instant, (n,)."""
        found = np.zeros(len(source), np.bool_)
        for change, concerned in self._reaching(source, destination):
            found |= concerned & (change.from_ns <= at_ns) & (at_ns < _end_ns(change, "links"))
        return found

    def unsettled(self, source: Ints, destination: Ints, from_ns: Ints, to_ns: Ints, delay_ms: Floats) -> Bools:
        """Return which spans of time meet the begin or the end of such a change, or the time after it, (n,).

        That time is ``GRACE_NS`` and the delay asked for before: packets keep the order of those sent until then.

        Args:
            source: (n,) -1 for none.
            destination: (n,) likewise.
            from_ns: (n,) the first instants.
            to_ns: (n,) the last instants.
            delay_ms: (n,) what is asked without faults.
        """
        met = np.zeros(len(source), np.bool_)
        for change, concerned in self._reaching(source, destination):
            for at_ns in (change.from_ns, _end_ns(change, "links")):
                if at_ns < FOREVER_NS:
                    before = np.full(len(source), at_ns - 1)
                    before_ms = np.nan_to_num(self.alter("delay_ms", delay_ms, source, destination, before))
                    settled_ns = at_ns + GRACE_NS + (before_ms * _MS).astype(np.int64)
                    met |= concerned & (from_ns < settled_ns) & (to_ns >= at_ns)
        return met

    def _reaching(self, source: Ints, destination: Ints) -> Iterator[tuple[Change, Bools]]:
        """Yield every change of pairs that cuts nothing, with the directed pairs whose link it changes, (n,)."""
        known, src, dst = self._find(source, destination)
        for change, hosts in self._changes:
            if _degrades(change):
                yield change, known & hosts.sources[src] & hosts.destinations[dst]

    def _concerning(self, source: Ints, destination: Ints, which: Which) -> Iterator[tuple[Change, Bools]]:
        """Yield every change that is looked for with the pairs that it concerns, in either direction, (n,)."""
        known, src, dst = self._find(source, destination)
        for change, hosts in self._changes:
            if _is_among(change, which):
                concerned = (hosts.sources[src] & hosts.destinations[dst]) | (
                    hosts.sources[dst] & hosts.destinations[src]
                )
                yield change, known & (concerned | hosts.ends[src] | hosts.ends[dst])

    def _find(self, source: Ints, destination: Ints) -> tuple[Bools, Ints, Ints]:
        """Return which pairs have numbers, and the pairs with 0 for the others."""
        known = (np.minimum(source, destination) >= 0) & (np.maximum(source, destination) < self._size)
        return known, np.where(known, source, 0), np.where(known, destination, 0)


class _Hosts(NamedTuple):
    """The hosts of a change, (size,) each: sources, destinations, and ends of pairs that it concerns as a whole."""

    sources: Bools
    destinations: Bools
    ends: Bools

    @classmethod
    def of(cls, change: Change, size: int) -> Self:
        found = np.zeros((3, size), np.bool_)
        ends = (*change.up, *change.down, *change.paused)
        for row, hosts in zip(found, (change.sources, change.destinations, ends), strict=True):
            row[list(hosts)] = True
        return cls(*found)


def _degrades(change: Change) -> bool:
    return bool(change.sources) and not change.is_cut


def _is_among(change: Change, which: Which) -> bool:
    if which == "links":
        return not change.paused
    if which == "access":
        return bool(change.up or change.down)
    return change.is_cut or (which != "cut" and bool(change.paused))


def _end_ns(change: Change, which: Which) -> int:
    if change.to_ns is None:
        return FOREVER_NS
    backoff_ns = min(change.to_ns - change.from_ns, MOST_BACKOFF_NS)
    return change.to_ns + {"settling": backoff_ns, "breaking": BREAK_NS, "access": GRACE_NS}.get(which, 0)


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
        queue_ms = np.zeros(underlay.size) if idle else _queues_ms(underlay)
        return cls(loss_ratio, 2 * (queue_ms[:, None] + queue_ms[None, :]))

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
    """Return how long a packet may wait at each host's access link, (n,)."""
    return np.where(underlay.rate_mbit > 0, underlay.queue_ms, 0.0)


def _numbers(nodes: Column) -> Ints:
    """Return the numbers of nodes, (n,); -1 where there is none."""
    values: Ints = nodes.cast(pa.int64()).fill_null(-1).to_numpy()
    return values
