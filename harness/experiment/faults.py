"""The rules of ``[groups]`` and ``[[faults]]``: which verb takes which keys, and which values fit together."""

from collections.abc import Iterator

from msgspec.structs import asdict

from harness.experiment.form import Experiment
from harness.experiment.sections.faults import DegradeSpec, FaultSpec, GroupSpec
from topologies.limits import SLOWEST_MBIT

VERBS: dict[str, frozenset[str]] = {
    "partition": frozenset({"direction", "in_flight"}),
    "isolate": frozenset({"direction", "in_flight"}),
    "cut": frozenset({"direction", "in_flight"}),
    "sever": frozenset({"in_flight"}),
    "degrade": frozenset({"direction", "between"}),
    "flap": frozenset({"direction", "in_flight", "nodes"}),
    "pause": frozenset(),
}
"""The verbs of an entry, and the keys that each takes besides ``at_s`` and ``for_s``."""

EVERYWHERE, REST = "all", "rest"
"""The names of all nodes, and of those that no other group of an entry has."""

_DEFAULTS = asdict(FaultSpec(at_s=0.0))


def verb_of(fault: FaultSpec) -> str:
    """Return the verb of an entry that follows the rules."""
    return next(verb for verb in VERBS if getattr(fault, verb) is not None)


def fault_rules(experiment: Experiment) -> Iterator[tuple[bool, str, str]]:
    """Yield every rule as (broken, place, problem)."""
    for name, group in experiment.groups.items():
        yield from _group_rules(f"$.groups.{name}", group)
        yield name in (EVERYWHERE, REST), f"$.groups.{name}", "this name has a meaning of its own in every experiment"
    for number, fault in enumerate(experiment.faults):
        place = f"$.faults[{number}]"
        verbs = [verb for verb in VERBS if getattr(fault, verb) is not None]
        got = " and ".join(verbs) or "none"
        yield len(verbs) != 1, place, f"expected one verb of {', '.join(VERBS)}, got {got}"
        yield from _key_rules(place, fault, verbs[0])
        yield from _verb_rules(place, fault)


def _group_rules(place: str, group: GroupSpec) -> Iterator[tuple[bool, str, str]]:
    keys = [name for name, value in asdict(group).items() if value is not None]
    known = ", ".join(GroupSpec.__struct_fields__)
    yield len(keys) != 1, place, f"expected one key of {known}, got {' and '.join(keys) or 'none'}"
    yield group.nodes == (), f"{place}.nodes", "expected at least one node, got []"


def _key_rules(place: str, fault: FaultSpec, verb: str) -> Iterator[tuple[bool, str, str]]:
    """Yield a rule for each key that another verb takes."""
    for key in sorted(frozenset().union(*VERBS.values()) - VERBS[verb]):
        yield getattr(fault, key) != _DEFAULTS[key], f"{place}.{key}", f"{verb} does not use it"


def _verb_rules(place: str, fault: FaultSpec) -> Iterator[tuple[bool, str, str]]:
    if fault.partition is not None:
        groups = len(fault.partition)
        yield groups < 2, f"{place}.partition", f"expected at least 2 groups, got {groups}"
        one_way = groups > 2 and fault.direction != "both"
        yield (
            one_way,
            f"{place}.direction",
            f'expected "both", since there are {groups} groups, got "{fault.direction}"',
        )
    if fault.flap is not None:
        yield fault.nodes is None, f"{place}.nodes", "missing: flap needs it"
        period_s, down_s = fault.flap.period_s, fault.flap.down_s
        yield down_s >= period_s, f"{place}.flap.down_s", f"expected less than period_s = {period_s:g}, got {down_s:g}"
    if fault.degrade is not None:
        rate_mbit, key = fault.degrade.rate_mbit, f"{place}.degrade.rate_mbit"
        yield fault.degrade == DegradeSpec(), f"{place}.degrade", "expected at least one value that changes something"
        slowest = 0 < rate_mbit < SLOWEST_MBIT
        yield slowest, key, f"expected 0 or at least {SLOWEST_MBIT:g}, got {rate_mbit:g}"
        reorder_ratio, reorder_ms = fault.degrade.reorder_ratio, fault.degrade.reorder_ms
        pair = "reorder_ratio and reorder_ms need each other"
        yield reorder_ratio > 0 and not reorder_ms, f"{place}.degrade.reorder_ms", f"{pair}: expected more than 0"
        yield reorder_ms > 0 and not reorder_ratio, f"{place}.degrade.reorder_ratio", f"{pair}: expected more than 0"
        second = EVERYWHERE if fault.between is None else fault.between[1]
        shared = 'an access link is shared by all pairs of a host, so the second group of between must be "all"'
        yield rate_mbit > 0 and second != EVERYWHERE, key, shared
