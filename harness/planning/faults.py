"""Compiles ``[[faults]]`` to changes of the network's timeline: groups become hosts, and seconds instants.

A verb is a function in ``_VERBS``, and a line in ``harness.experiment.faults.VERBS``.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from msgspec.structs import asdict

from harness.errors import ExperimentError
from harness.experiment.faults import EVERYWHERE, verb_of
from harness.experiment.form import Experiment
from harness.experiment.sections.faults import FaultSpec
from harness.experiment.sections.values import Group
from harness.planning.groups import Groups, Nodes
from peer.core.randomness import NETWORK, substream
from topologies.model import Underlay
from topologies.timeline import Change

MOST_CHANGES = 10_000
"""Of all entries of an experiment together; a connection that flaps has two or more per period."""

Block = tuple[Nodes, Nodes]
"""The directed pairs from the nodes of one set to those of another."""


def compile_faults(experiment: Experiment, underlay: Underlay) -> tuple[Change, ...]:
    """Return the changes that the faults of an experiment make, entry by entry, each in order of time.

    Raises:
        ExperimentError: a group is unknown or does not fit, a fault begins outside the run, or there are too many
            changes.
    """
    if not experiment.faults:
        return ()
    groups = Groups(experiment, underlay.hosts)
    changes: list[Change] = []
    for number, fault in enumerate(experiment.faults):
        entry = Entry(experiment, number, groups)
        for change in _VERBS[verb_of(fault)](entry):
            changes.append(change)
            if len(changes) > MOST_CHANGES:
                raise ExperimentError(entry.place, f"the faults make more than {MOST_CHANGES:,} changes")
    return tuple(changes)


class Entry:
    """An entry of the experiment's faults, with its groups resolved and its time in ns.

    Attributes:
        fault: the entry.
        place: its path in the file.
        from_ns: its first instant, from the workload's zero.
        to_ns: the first instant after it, at the latest the end of the cool-down, since the network is probed then.
    """

    def __init__(self, experiment: Experiment, number: int, groups: Groups) -> None:
        self.fault: FaultSpec = experiment.faults[number]
        self.place = f"$.faults[{number}]"
        self._number = number
        self._groups = groups
        self._seed = experiment.seed
        workload, at_s, for_s = experiment.workload, self.fault.at_s, self.fault.for_s
        first_s, last_s = -workload.warmup_s, workload.duration_s + workload.cooldown_s
        if not first_s <= at_s < last_s:
            raise ExperimentError(
                f"{self.place}.at_s", f"expected an instant of the run, {first_s:g} to {last_s:g} s, got {at_s:g}"
            )
        self.from_ns = round(at_s * 1e9)
        stop_ns = round(last_s * 1e9)
        self.to_ns = stop_ns if for_s is None else min(round((at_s + for_s) * 1e9), stop_ns)

    def change(self, **values: Any) -> Change:  # noqa: ANN401 - the fields of a change
        """Return a change of this entry. Sets of nodes become tuples in order."""
        given: dict[str, Any] = {"from_ns": self.from_ns, "to_ns": self.to_ns, "fault": self._number}
        for name, value in values.items():
            given[name] = tuple(sorted(value)) if isinstance(value, frozenset) else value
        return Change(**given)

    def cuts(self, blocks: list[Block], **times: int) -> Iterator[Change]:
        """Yield a cut of each block."""
        lost = self.fault.in_flight == "lost"
        for sources, destinations in blocks:
            yield self.change(sources=sources, destinations=destinations, is_cut=True, loses_in_flight=lost, **times)

    def nodes(self, key: str, group: Group) -> Nodes:
        """Return the nodes of a group that a key of the entry names."""
        return self._groups.find(group, f"{self.place}.{key}")

    def several(self, key: str, groups: tuple[Group, ...]) -> list[Nodes]:
        """Return the nodes of groups that a key of the entry names in a list; the rest is what no other one has."""
        return self._groups.several(groups, f"{self.place}.{key}")

    def draw_pairs(self, share: float) -> list[tuple[int, int]]:
        """Return a share of all pairs of different nodes, at least one, drawn from the seed; the lower node is first.

        Raises:
            ExperimentError: there is no pair.
        """
        if not (pairs := list(combinations(sorted(self.everyone), 2))):
            raise ExperimentError(self.place, "expected at least 2 hosts, got 1")
        draws = substream(self._seed, NETWORK, f"pairs {self.place}")
        return draws.sample(pairs, max(1, round(share * len(pairs))))

    def others(self, key: str, nodes: Nodes) -> Nodes:
        """Return all other nodes."""
        if not (others := self.everyone - nodes):
            raise ExperimentError(f"{self.place}.{key}", "expected at least one node outside the group, got none")
        return others

    @property
    def everyone(self) -> Nodes:
        return self._groups.everyone

    def blocks(self, one: Nodes, other: Nodes) -> list[Block]:
        """Return the pairs between two groups in the entry's direction, each pair in one block."""
        if self.fault.direction == "from":
            return [(one, other)]
        if self.fault.direction == "to":
            return [(other, one)]
        return [block for block in ((one, other), (other - one, one), (one & other, one - other)) if all(block)]


def _partition(entry: Entry) -> Iterator[Change]:
    assert entry.fault.partition is not None, "the entry has this verb"
    groups = entry.several("partition", entry.fault.partition)
    for number, group in enumerate(groups):
        if shared := group.intersection(frozenset().union(*groups[:number])):
            place = f"{entry.place}.partition[{number}]"
            raise ExperimentError(place, f"expected no node of an earlier group, got node {min(shared)}")
    if len(groups) == 2:
        yield from entry.cuts(entry.blocks(*groups))
    else:
        members = frozenset().union(*groups)
        yield from entry.cuts([(group, members - group) for group in groups])


def _isolate(entry: Entry) -> Iterator[Change]:
    assert entry.fault.isolate is not None, "the entry has this verb"
    nodes = entry.nodes("isolate", entry.fault.isolate)
    return entry.cuts(entry.blocks(nodes, entry.others("isolate", nodes)))


def _cut(entry: Entry) -> Iterator[Change]:
    assert entry.fault.cut is not None, "the entry has this verb"
    return entry.cuts(entry.blocks(*entry.several("cut", entry.fault.cut)))


def _sever(entry: Entry) -> Iterator[Change]:
    assert entry.fault.sever is not None, "the entry has this verb"
    pairs = entry.draw_pairs(entry.fault.sever)
    for node in sorted({one for one, _ in pairs}):
        others = frozenset(other for one, other in pairs if one == node)
        yield from entry.cuts([(frozenset({node}), others), (others, frozenset({node}))])


def _degrade(entry: Entry) -> Iterator[Change]:
    fault = entry.fault
    assert fault.degrade is not None, "the entry has this verb"
    one, other = entry.several("between", fault.between or (EVERYWHERE, EVERYWHERE))
    values = {name: value for name, value in asdict(fault.degrade).items() if name != "rate_mbit"}
    for sources, destinations in entry.blocks(one, other):
        change = entry.change(sources=sources, destinations=destinations, **values)
        if change != entry.change(sources=sources, destinations=destinations):
            yield change
    if rate_mbit := fault.degrade.rate_mbit:
        sides = {"both": ("up", "down"), "from": ("up",), "to": ("down",)}[fault.direction]
        yield entry.change(rate_mbit=rate_mbit, **dict.fromkeys(sides, one))


def _flap(entry: Entry) -> Iterator[Change]:
    flap, group = entry.fault.flap, entry.fault.nodes
    assert flap is not None and group is not None, "the entry has this verb"
    nodes = entry.nodes("nodes", group)
    blocks = entry.blocks(nodes, entry.others("nodes", nodes))
    period_ns, down_ns = round(flap.period_s * 1e9), round(flap.down_s * 1e9)
    for from_ns in range(entry.from_ns, entry.to_ns, period_ns):
        yield from entry.cuts(blocks, from_ns=from_ns, to_ns=min(from_ns + down_ns, entry.to_ns))


def _pause(entry: Entry) -> Iterator[Change]:
    assert entry.fault.pause is not None, "the entry has this verb"
    yield entry.change(paused=entry.nodes("pause", entry.fault.pause))


_VERBS: dict[str, Callable[[Entry], Iterator[Change]]] = {
    "partition": _partition,
    "isolate": _isolate,
    "cut": _cut,
    "sever": _sever,
    "degrade": _degrade,
    "flap": _flap,
    "pause": _pause,
}
"""How each verb becomes changes."""


def describe_faults(experiment: Experiment, changes: tuple[Change, ...]) -> Iterator[str]:
    """Yield a line per entry: its verb, its time, and what it changes at its first instant."""
    hosts = experiment.underlay.hosts or 0
    for number, fault in enumerate(experiment.faults):
        first = [change for change in changes if change.fault == number and change.from_ns == round(fault.at_s * 1e9)]
        counts = (
            (sum(change.pairs for change in first), f"of {hosts * (hosts - 1):,} directed pairs"),
            (sum(len(change.up) + len(change.down) for change in first), f"of {2 * hosts:,} access links"),
            (sum(len(change.paused) for change in first), f"of {hosts:,} peers"),
        )
        reached = ", ".join(f"{count:,} {whole}" for count, whole in counts if count)
        until = "the end" if fault.for_s is None else f"{fault.at_s + fault.for_s:g} s"
        yield f"{verb_of(fault)} from {fault.at_s:g} s to {until}: {reached}"
