"""Places nodes on hosts and machines, as the testbed's description says."""

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

from harness.experiment.form import Experiment
from harness.experiment.inventory import load_inventory
from harness.testbeds.registry import TESTBEDS
from metrics.rundir import Placement

Place = Callable[[Experiment, Path, int], tuple[Placement, ...]]
"""A function of the experiment, its file and the number of nodes, which places node i on host i."""

SANDBOX = "sandbox"
"""The name of the only machine of a run on this computer."""

WAN_PREFIX = "10.0"
CTL_PREFIX = "172.16"
"""Hosts are numbered from .0.1 in both networks; 10,000 end at .39.16, far from the machine's own addresses."""


def place_nodes(experiment: Experiment, source: Path, nodes: int) -> tuple[Placement, ...]:
    """Place node i on host i, where the experiment's testbed puts it.

    Args:
        experiment: names the testbed.
        source: the experiment file; its paths are relative to its folder.
        nodes: how many there are.

    Raises:
        ExperimentError: there is no place for them.
    """
    place: Place = resolve_name(TESTBEDS[experiment.testbed].place)
    return place(experiment, source, nodes)


def place_in_sandbox(_: Experiment, __: Path, nodes: int) -> tuple[Placement, ...]:
    """Place every node in the sandbox, at addresses that nothing else has."""
    return tuple(
        Placement(node, node, SANDBOX, _address(WAN_PREFIX, node), _address(CTL_PREFIX, node)) for node in range(nodes)
    )


def place_on_inventory(experiment: Experiment, source: Path, nodes: int) -> tuple[Placement, ...]:
    """Place nodes in the slots of the inventory's machines.

    Raises:
        ExperimentError: the inventory is invalid, or has too few slots.
    """
    assert experiment.inventory is not None, "check_rules requires it"
    slots = load_inventory(source.parent / experiment.inventory).slots(nodes)
    return tuple(
        Placement(node, node, slot.machine, slot.listen[0], slot.metrics[0] if slot.metrics else "")
        for node, slot in enumerate(slots)
    )


def _address(prefix: str, host: int) -> str:
    return f"{prefix}.{(host + 1) >> 8}.{(host + 1) & 255}"
