"""The remote testbed: real machines from an inventory, and whatever network is between them.

Nothing is emulated, so there is nothing to certify and no data plane to capture at: the peers' own words are all there
is, and the findings say so. Delays between machines are known as well as their clocks are; the deployment estimates
the offsets.
"""

from __future__ import annotations

from pathlib import Path

from harness.deployment.agents import Site
from harness.errors import TestbedError
from harness.inventory import MAX_HOSTS_PER_ADDRESS, METRICS_PORT, Machine, saved_inventory
from harness.plan import Plan
from harness.testbeds.base import Findings, Moment
from metrics.rundir import read_clocks

AGENT_METRICS_PORT = METRICS_PORT + MAX_HOSTS_PER_ADDRESS

UNCERTIFIED = "remote testbed: the network between the machines was neither certified nor captured"


class RemoteTestbed:
    """A ``Testbed``; see there for the order of its methods."""

    def __init__(self, plan: Plan, run_dir: Path) -> None:
        self._plan = plan
        self._run_dir = run_dir
        self._inventory = saved_inventory(run_dir)
        self._seats = self._inventory.seats(len(plan.placement))

    def boot(self) -> None:
        """Check that the inventory still gives the places that the plan was made for; the machines run already.

        Raises:
            TestbedError: it does not.
        """
        planned = [(place.machine, place.wan_ip) for place in self._plan.placement]
        offered = [(seat.machine, seat.listen[0]) for seat in self._seats]
        if planned != offered:
            raise TestbedError("place the peers as planned", "the inventory has changed since the plan was made")

    def machines(self) -> tuple[Machine, ...]:
        """The machines that carry a peer."""
        used = {seat.machine for seat in self._seats}
        return tuple(machine for machine in self._inventory.machines if machine.name in used)

    def sites(self) -> tuple[Site, ...]:
        """Node i has the i-th seat of the inventory."""
        return tuple(Site(node, seat.machine, seat.listen, seat.metrics) for node, seat in enumerate(self._seats))

    def metrics(self) -> dict[str, tuple[str, int]]:
        """Each machine's agent, where its peers' metrics are; none of a machine without an address for them."""
        return {seat.machine: (seat.metrics[0], AGENT_METRICS_PORT) for seat in self._seats if seat.metrics}

    def probe(self, moment: Moment) -> None:
        """Nothing: no delay was asked for that could be certified."""

    def start_recording(self, longest_s: float) -> None:
        """Nothing: there is no data plane to record at."""

    def lost(self) -> dict[str, str]:
        """There are no processes of its own."""
        return {}

    def resources(self) -> dict[str, float]:
        """Unknown."""
        return {}

    def stop_recording(self) -> None:
        """Nothing was started."""

    def close(self) -> Findings:
        """How far the clocks are apart, and what this testbed cannot say."""
        counters: dict[str, int] = {}
        for machine, clock in read_clocks(self._run_dir).items():
            counters |= {
                f"clock_realtime_offset_ns_{machine}": clock.realtime_ns,
                f"clock_monotonic_offset_ns_{machine}": clock.monotonic_ns,
                f"clock_error_ns_{machine}": clock.error_ns,
            }
        return Findings(counters=counters, problems=(("suspect", UNCERTIFIED),))
