"""The remote testbed at work.

Nothing is emulated, so nothing is certified or captured: the traces of the peers are the only data, and the findings
say so. Delays between machines are as exact as the offsets of their clocks, which the deployment estimates.
"""

from pathlib import Path

from harness.deployment.agents import Site
from harness.errors import TestbedError
from harness.experiment.inventory import MAX_HOSTS_PER_ADDRESS, METRICS_PORT, Machine, saved_inventory
from harness.planning.plan import Plan
from harness.testbeds.base import Findings, Setting
from metrics.rundir import read_clocks

AGENT_METRICS_PORT = METRICS_PORT + MAX_HOSTS_PER_ADDRESS

UNCERTIFIED = "remote testbed: the network between the machines was neither certified nor captured"


class RemoteTestbed:
    """The remote ``Testbed``."""

    def __init__(self, plan: Plan, run_dir: Path) -> None:
        self._plan = plan
        self._run_dir = run_dir
        self._inventory = saved_inventory(run_dir)
        self._slots = self._inventory.slots(len(plan.placement))

    def boot(self) -> None:
        """Check that the inventory still has the slots of the plan; the machines run already.

        Raises:
            TestbedError: the inventory has changed.
        """
        planned = [(place.machine, place.wan_ip) for place in self._plan.placement]
        offered = [(slot.machine, slot.listen[0]) for slot in self._slots]
        if planned != offered:
            raise TestbedError("place the peers as planned", "the inventory has changed since the plan was made")

    def machines(self) -> tuple[Machine, ...]:
        used = {slot.machine for slot in self._slots}
        return tuple(machine for machine in self._inventory.machines if machine.name in used)

    def sites(self) -> tuple[Site, ...]:
        """Return the sites: node i has the i-th slot of the inventory."""
        return tuple(Site(node, slot.machine, slot.listen, slot.metrics) for node, slot in enumerate(self._slots))

    def metrics(self) -> dict[str, tuple[str, int]]:
        """Return the endpoint of each machine's agent; machines without a ``metrics_address`` have none."""
        return {slot.machine: (slot.metrics[0], AGENT_METRICS_PORT) for slot in self._slots if slot.metrics}

    def close(self) -> Findings:
        """Return the offsets of the clocks, and a note on what was not measured."""
        counters: dict[str, int] = {}
        for machine, clock in read_clocks(self._run_dir).items():
            counters |= {
                f"clock_realtime_offset_ns_{machine}": clock.realtime_ns,
                f"clock_monotonic_offset_ns_{machine}": clock.monotonic_ns,
                f"clock_error_ns_{machine}": clock.error_ns,
            }
        return Findings(counters=counters, problems=(("suspect", UNCERTIFIED),))


def make(setting: Setting) -> RemoteTestbed:
    """Return the testbed of a run."""
    return RemoteTestbed(setting.planned.plan, setting.run_dir)
