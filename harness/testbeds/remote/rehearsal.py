"""Tries what the testbed measures, before there is a run: round trips between all addresses, and captures."""

import tempfile
from pathlib import Path

from harness.deployment.fleet import Deployment
from harness.errors import DeploymentError
from harness.experiment.inventory import PROBE_PORT, Inventory
from harness.testbeds.remote.captures import MachineCaptures
from harness.testbeds.remote.probing import RoundTrips
from metrics.rundir import Placement

PACKETS = 3
SNAPLEN_BYTES = 64


def rehearse(deployment: Deployment, inventory: Inventory) -> str:
    """Probe all pairs of the peers' addresses, and start captures on all machines.

    Args:
        deployment: the connected machines, each with the folder of a run.
        inventory: has the peers' addresses.

    Returns:
        Why nothing would be captured; empty = every machine captures.

    Raises:
        DeploymentError: an address does not answer to the probers.
    """
    slots = [(machine, slot) for machine, own in inventory.endpoints().items() for slot in own]
    placement = [Placement(node, node, machine, slot[0], "") for node, (machine, slot) in enumerate(slots)]
    round_trips = RoundTrips(deployment, placement, seed=0)
    round_trips.start()
    round_trips.sweep("before", PACKETS)
    if silent := round_trips.silent():
        problem = f"no answer at UDP port {PROBE_PORT} of "
        raise DeploymentError("probe", {name: problem + ", ".join(those) for name, those in silent.items()})
    ports = [slot[1] for _, slot in slots]
    with tempfile.TemporaryDirectory() as folder:
        captures = MachineCaptures(deployment, placement, Path(folder))
        obstacle = captures.start(SNAPLEN_BYTES, (min(ports), max(ports)))
        captures.abandon()
    return obstacle
