"""When faults change what is asked of pairs of hosts, or of nodes, and when they pause peers."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from metrics.pcap.walk import Bools, Ints
from metrics.rundir import RunDir
from metrics.rundir.files import CHANGES_FILE, FAULTS_FILE
from metrics.storage import Place
from topologies.disorder import IN_ORDER, Disorder
from topologies.network import Link
from topologies.timeline import Change, decode_changes, instants_of

Floats = npt.NDArray[np.float64]

Which = Literal["links", "cut", "access", "settling", "breaking"]
"""The changes for which ``PairChanges.meet`` looks, and how long they last:

* ``links``: changes of links, and not of peers.
* ``cut``: cuts.
* ``access``: changes of access links; each lasts ``GRACE_NS`` longer, in which the queue drains.
* ``settling``: changes that halt connections, that is cuts, and pauses of the peer at either end. Each lasts twice as
  long, but at most ``MOST_BACKOFF_NS`` longer: TCP retransmits, and asks whether a full receiver has room, at intervals
  that double (RFC 6298, RFC 9293), so after a cut of a second it may wait for another second.
* ``breaking``: the same, but each lasts ``BREAK_NS`` longer: connections may still break because of it.
"""

MOST_BACKOFF_NS: Final = 120_000_000_000
"""The longest interval between two retransmissions of Linux's TCP."""

BREAK_NS: Final = 30_000_000_000
"""How long after a cut or a pause a connection may still break: ``TCP_USER_TIMEOUT``
(``peer.runtime.tcp_connection``)."""

GRACE_NS: Final = 1_000_000_000
"""How long after a change, plus the delay before it, packets are not judged: they keep the order of earlier ones."""

FOREVER_NS: Final = (1 << 63) - 1

_MS: Final = 1e6


class PairChanges:
    """When faults change what is asked of the pairs of some hosts, or nodes, or pause their peers.

    Args:
        changes: the changes, at instants of the run's clock.
        size: how many hosts, or nodes, there are.
    """

    def __init__(self, changes: Sequence[Change], size: int) -> None:
        self._changes = [(change, _Hosts.of(change, size)) for change in changes]
        self._size = size

    @classmethod
    def of(cls, run: RunDir) -> Self:
        """Read the changes of the hosts of a run; a run without faults has none."""
        return cls(read_changes(run), run.network.size)

    @classmethod
    def of_nodes(cls, run: RunDir) -> Self:
        """Read the changes of the nodes of a run."""
        return cls(changes_of_nodes(run), 1 + max((place.node for place in run.plan.placement), default=-1))

    @classmethod
    def staged(cls, pairs: Place) -> Self:
        """Read the changes of the nodes from the folder of ``metrics.asked.stage_asked``."""
        path = pairs / CHANGES_FILE
        if not path.exists():
            return cls((), 0)
        changes = decode_changes(path.read_bytes())
        return cls(changes, 1 + max((node for change in changes for node in _hosts(change)), default=-1))

    def __bool__(self) -> bool:
        return bool(self._changes)

    @property
    def degrades(self) -> bool:
        """Whether some of them change the links of pairs, or the rates of access links, and cut nothing."""
        return any(_degrades(change) or change.rate_mbit for change, _ in self._changes)

    @property
    def disorders(self) -> bool:
        """Whether some of them let packets arrive twice, or be overtaken."""
        return any(change.disorder != IN_ORDER for change, _ in self._changes)

    def meet(self, source: Ints, destination: Ints, from_ns: Ints, to_ns: Ints, *, which: Which) -> Bools:
        """Return which spans of time meet a change that concerns a pair, in either direction, (n,).

        Args:
            source: (n,) -1 for none.
            destination: (n,) likewise.
            from_ns: (n,) the first instants.
            to_ns: (n,) the last instants.
            which: the changes to look for.
        """
        met = np.zeros(len(source), np.bool_)
        for change, concerned in self._concerning(source, destination, which):
            met |= concerned & (from_ns < _end_ns(change, which)) & (to_ns >= change.from_ns)
        return met

    def paused(self, nodes: Ints, from_ns: Ints, to_ns: Ints) -> Bools:
        """Return which spans of time meet a pause of their node's peer, or ``GRACE_NS`` after it, (n,).

        In the time after it, the peer handles what came during the pause.

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

        Args:
            source: (n,) -1 for none.
            destination: (n,) likewise.
            from_ns: (n,) the instants.
        """
        first_ns = np.full(len(source), FOREVER_NS)
        for change, concerned in self._concerning(source, destination, "settling"):
            later = concerned & (from_ns < _end_ns(change, "settling"))
            first_ns[later] = np.minimum(first_ns[later], change.from_ns)
        return first_ns

    def alter(self, name: str, values: Floats, source: Ints, destination: Ints, at_ns: Ints) -> Floats:
        """Return what is asked of directed pairs at some instants, (n,).

        Args:
            name: one of ``metrics.asked.ASKED``.
            values: (n,) what is asked without faults.
            source: (n,) -1 for none.
            destination: (n,) likewise.
            at_ns: (n,) the instants.
        """
        for change, concerned in self._reaching(source, destination):
            holds = concerned & _holds(change, at_ns)
            values = np.where(holds, getattr(change.alter(Link(**{name: values})), name), values)  # type: ignore[arg-type]
        return values

    def disorder(self, source: Ints, destination: Ints, at_ns: Ints) -> Disorder:
        """Return which disorder is asked of directed pairs at some instants, in arrays of (n,).

        Args:
            source: (n,) -1 for none.
            destination: (n,) likewise.
            at_ns: (n,) the instants.
        """
        found = Disorder(*np.zeros((3, len(source))))
        for change, concerned in self._reaching(source, destination):
            if change.disorder != IN_ORDER:
                holds = concerned & _holds(change, at_ns)
                both = zip(found.join(change.disorder), found, strict=True)
                found = Disorder(*(np.where(holds, joined, before) for joined, before in both))
        return found

    def limit(self, side: int, rates_mbit: Floats, nodes: Ints, at_ns: Ints) -> Floats:
        """Return the rates of access links at some instants, (n,) in Mbit/s; 0 = no rate.

        Args:
            side: ``UP`` or ``DOWN``.
            rates_mbit: (n,) the rates without faults; 0 = no rate.
            nodes: (n,) whose access links; -1 for none.
            at_ns: (n,) the instants.
        """
        known, node, _ = self._find(nodes, nodes)
        for change, hosts in self._changes:
            if change.rate_mbit and (change.up or change.down):
                lower = change.rate_mbit < np.where(rates_mbit > 0, rates_mbit, np.inf)
                holds = known & hosts.access[side][node] & _holds(change, at_ns)
                rates_mbit = np.where(holds & lower, change.rate_mbit, rates_mbit)
        return rates_mbit

    def alters(self, source: Ints, destination: Ints, at_ns: Ints) -> Bools:
        """Return whether a fault other than a cut has changed the link of each directed pair at an instant, (n,).

        Args:
            source: (n,) -1 for none.
            destination: (n,) likewise.
            at_ns: (n,) the instants.
        """
        found = np.zeros(len(source), np.bool_)
        for change, concerned in self._reaching(source, destination):
            found |= concerned & _holds(change, at_ns)
        return found

    def unsettled(self, source: Ints, destination: Ints, from_ns: Ints, to_ns: Ints, delay_ms: Floats) -> Bools:
        """Return which spans of time meet the begin or the end of such a change, or the time after it, (n,).

        That time is ``GRACE_NS`` plus the delay asked for before: packets keep the order of packets sent until then.

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
        """Yield every change that ``which`` includes with the pairs that it concerns, in either direction, (n,)."""
        known, src, dst = self._find(source, destination)
        for change, hosts in self._changes:
            if _is_among(change, which):
                concerned = (hosts.sources[src] & hosts.destinations[dst]) | (
                    hosts.sources[dst] & hosts.destinations[src]
                )
                yield change, known & (concerned | hosts.ends[src] | hosts.ends[dst])

    def _find(self, source: Ints, destination: Ints) -> tuple[Bools, Ints, Ints]:
        """Return which pairs have numbers, and the pairs with 0 for missing numbers."""
        known = (np.minimum(source, destination) >= 0) & (np.maximum(source, destination) < self._size)
        return known, np.where(known, source, 0), np.where(known, destination, 0)


class _Hosts(NamedTuple):
    """The hosts of a change, (size,) each: sources, destinations, and ends of pairs that it concerns as a whole.

    ``access``: (2, size) the hosts whose access links it changes, ``UP`` and ``DOWN``.
    """

    sources: Bools
    destinations: Bools
    ends: Bools
    access: Bools

    @classmethod
    def of(cls, change: Change, size: int) -> Self:
        found = np.zeros((5, size), np.bool_)
        ends = (*change.up, *change.down, *change.paused)
        for row, hosts in zip(found, (change.sources, change.destinations, ends, change.up, change.down), strict=True):
            row[list(hosts)] = True
        sources, destinations, concerned = found[:3]
        return cls(sources, destinations, concerned, found[3:])


def _hosts(change: Change) -> Iterator[int]:
    for hosts in (change.sources, change.destinations, change.up, change.down, change.paused):
        yield from hosts


def _degrades(change: Change) -> bool:
    return bool(change.sources) and not change.is_cut


def _holds(change: Change, at_ns: Ints) -> Bools:
    """Return at which instants a change holds, (n,)."""
    return np.asarray((change.from_ns <= at_ns) & (at_ns < _end_ns(change, "links")))


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

    If nothing was recorded for an instant, it is the instant that was asked for.
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
