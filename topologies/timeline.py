"""Changes of a network over time: which links have other values between which instants, and what is asked then.

Faults are changes (``harness.planning.faults`` makes them). The network itself never changes: whoever carries or judges
packets asks a ``Timeline``, which is a network with its changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from topologies.disorder import IN_ORDER, Disorder
from topologies.network import Asked, Link, Network, ask_path, join_jitters, join_losses


class Change(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a fault does to some links, or to some hosts, between two instants. The defaults change nothing.

    Instants are in ns from the workload's zero. Changes that overlap compose: a packet meets all of them.

    Attributes:
        from_ns: the first instant at which it holds.
        to_ns: the first instant at which it does not hold any longer; None = it holds to the end of the run.
        fault: the number of the experiment's entry, from 0.
        sources: hosts; with ``destinations`` they name the links of the pairs from a source to a destination.
        destinations: hosts.
        up: hosts whose access links towards the network it changes.
        down: hosts whose access links from the network it changes.
        paused: hosts whose peers do nothing.
        is_cut: whether no packet enters the links.
        loses_in_flight: whether packets that are on the links at ``from_ns`` are lost.
        delay_factor: how many times longer the delay is.
        jitter_ms: the standard deviation of a further delay of mean 0, independent of the link's own.
        loss_ratio: the probability of a further loss, 0..1, independent of the link's own.
        rate_mbit: the highest rate; 0 = no limit.
        duplicate_ratio: the probability that a packet enters the link twice, 0..1.
        reorder_ratio: the probability that a packet is overtaken, 0..1.
        reorder_ms: the further delay of such a packet.
    """

    from_ns: int
    fault: int
    to_ns: int | None = None
    sources: tuple[int, ...] = ()
    destinations: tuple[int, ...] = ()
    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    paused: tuple[int, ...] = ()
    is_cut: bool = False
    loses_in_flight: bool = False
    delay_factor: float = 1.0
    jitter_ms: float = 0.0
    loss_ratio: float = 0.0
    rate_mbit: float = 0.0
    duplicate_ratio: float = 0.0
    reorder_ratio: float = 0.0
    reorder_ms: float = 0.0

    @property
    def disorder(self) -> Disorder:
        """What it asks of packets besides delay, jitter, loss and rate."""
        return Disorder(self.duplicate_ratio, self.reorder_ratio, self.reorder_ms)

    @property
    def pairs(self) -> int:
        """The number of directed pairs of different hosts whose link it changes."""
        return len(self.sources) * len(self.destinations) - len({*self.sources} & {*self.destinations})

    def after(self, zero_ns: int) -> Change:
        """Return this change on a clock that shows ``zero_ns`` at the workload's zero."""
        to_ns = None if self.to_ns is None else self.to_ns + zero_ns
        return replace(self, from_ns=self.from_ns + zero_ns, to_ns=to_ns)

    def alter(self, link: Link) -> Link:
        """Return a link with this change; its delay, jitter and loss may be arrays."""
        delay_ms, jitter_ms, loss_ratio, rate_mbit, queue_ms, is_cut = link
        return Link(
            delay_ms * self.delay_factor,
            join_jitters(jitter_ms, self.jitter_ms),
            join_losses(loss_ratio, self.loss_ratio),
            min(rate_mbit or self.rate_mbit, self.rate_mbit or rate_mbit),
            queue_ms,
            is_cut or self.is_cut,
        )


def encode_changes(changes: Iterable[Change]) -> bytes:
    """Return the bytes of ``changes.jsonl``: one line per change."""
    return b"".join(msgspec.json.encode(change) + b"\n" for change in changes)


def decode_changes(content: bytes) -> list[Change]:
    """Return the changes of a ``changes.jsonl``, in the order of its lines.

    Raises:
        msgspec.DecodeError: a line is no change.
    """
    return msgspec.json.Decoder(Change).decode_lines(content)


def instants_of(changes: Sequence[Change]) -> tuple[int, ...]:
    """Return the instants at which a change begins or ends, in order and without repetition."""
    ends = (change.to_ns for change in changes if change.to_ns is not None)
    return tuple(sorted({*ends, *(change.from_ns for change in changes)}))


class Reach:
    """A change with the links that it reaches, for fast questions."""

    __slots__ = ("_links", "_size", "change")

    def __init__(self, change: Change, size: int) -> None:
        self.change = change
        self._size = size
        self._links = tuple(frozenset(hosts) for hosts in (change.up, change.down, change.sources, change.destinations))

    def reaches_pair(self, source: int, destination: int) -> bool:
        """Return whether it changes the link of a pair."""
        _, _, sources, destinations = self._links
        return source in sources and destination in destinations

    def reaches_path(self, source: int, destination: int) -> bool:
        """Return whether it changes a link of the path of a pair."""
        up, down, _, _ = self._links
        return self.reaches_pair(source, destination) or source in up or destination in down

    def reaches(self, number: int) -> bool:
        """Return whether it changes a link, by its number in the network."""
        kind, host = divmod(number, self._size)
        up, down, sources, destinations = self._links
        if kind < 2:
            return host in (down if kind else up)
        return kind - 2 in sources and host in destinations


def link_with(changes: Sequence[Reach], network: Network, number: int) -> Link:
    """Return a link, by its number in the network, with the changes that reach it."""
    link = network.link(number)
    for each in changes:
        if each.reaches(number):
            link = each.change.alter(link)
    return link


def find_disorder(changes: Iterable[Reach], source: int, destination: int) -> Disorder:
    """Return what changes ask of the packets of a pair besides delay, jitter, loss and rate."""
    found = IN_ORDER
    for each in changes:
        if each.reaches_pair(source, destination):
            found = found.join(each.change.disorder)
    return found


class Timeline:
    """A network and its changes: what is asked of it at any instant.

    Between two of its ``instants`` nothing changes. A timeline without changes asks what the network asks.

    Args:
        network: the network without changes.
        changes: in any order; changes that hold at the same instant compose in this order.
        zero_ns: the instant of the workload's zero on the clock of those who ask.

    Attributes:
        changes: with instants on that clock.
        instants: those at which a change begins or ends, in order and without repetition.
    """

    def __init__(self, network: Network, changes: Iterable[Change] = (), *, zero_ns: int = 0) -> None:
        self.network = network
        self.changes = tuple(change.after(zero_ns) for change in changes)
        self.instants = instants_of(self.changes)
        self._active = self._sweep()

    def _sweep(self) -> list[tuple[Reach, ...]]:
        """Return the changes that hold before each instant, and after the last one."""
        begins: dict[int, list[int]] = {}
        ends: dict[int, list[int]] = {}
        for number, change in enumerate(self.changes):
            if change.to_ns is None or change.from_ns < change.to_ns:
                begins.setdefault(change.from_ns, []).append(number)
                if change.to_ns is not None:
                    ends.setdefault(change.to_ns, []).append(number)
        holding: dict[int, Reach] = {}
        active: list[tuple[Reach, ...]] = [()]
        for at_ns in self.instants:
            for number in ends.get(at_ns, ()):
                del holding[number]
            for number in begins.get(at_ns, ()):
                holding[number] = Reach(self.changes[number], self.network.size)
            active.append(tuple(holding[number] for number in sorted(holding)))
        return active

    def active(self, at_ns: int) -> tuple[Reach, ...]:
        """Return the changes that hold at an instant, in their order."""
        return self._active[bisect_right(self.instants, at_ns)]

    def link(self, number: int, at_ns: int) -> Link:
        """Return a link, by its number in the network, as it is at an instant."""
        return link_with(self.active(at_ns), self.network, number)

    def asked(self, source: int, destination: int, at_ns: int) -> Asked:
        """Return what is asked of the packets that leave a host for another at an instant."""
        changes, network = self.active(at_ns), self.network
        return ask_path([link_with(changes, network, number) for number in network.path(source, destination)])

    def loses(self, source: int, destination: int, leaves_ns: int, arrives_ns: int) -> bool:
        """Return whether a cut takes a packet of a pair, which would leave and arrive at these instants.

        It does if the link is cut when the packet leaves, or if a cut begins that loses what is under way.
        """
        first = bisect_right(self.instants, leaves_ns)
        last = bisect_left(self.instants, arrives_ns)
        if any(each.change.is_cut and each.reaches_path(source, destination) for each in self._active[first]):
            return True
        return any(
            each.change.loses_in_flight and each.change.from_ns == at_ns and each.reaches_path(source, destination)
            for number, at_ns in enumerate(self.instants[first:last], first + 1)
            for each in self._active[number]
        )

    def paused(self, at_ns: int) -> frozenset[int]:
        """Return the hosts whose peers do nothing at an instant."""
        return frozenset(host for each in self.active(at_ns) for host in each.change.paused)
