"""The remote testbed at work.

Nothing is emulated: the run shows what the network was, not whether it was what somebody asked for. Round trips are
measured before, during and after the workload, and the machines capture their peers' packets if they may. Delays in
one direction are as exact as the offsets of the machines' clocks, which the deployment estimates.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness.deployment.agents import Site
from harness.deployment.fleet import Deployment
from harness.errors import DeploymentError, TestbedError
from harness.experiment.inventory import MAX_HOSTS_PER_ADDRESS, METRICS_PORT, Machine, saved_inventory
from harness.planning.plan import Plan
from harness.testbeds.base import Findings, Moment, Setting
from harness.testbeds.remote.captures import MachineCaptures
from harness.testbeds.remote.pausing import Pauses
from harness.testbeds.remote.probing import RoundTrips
from metrics.rundir import ClockOffset, read_clocks, write_file
from metrics.rundir.files import FAULTS_FILE, ROUND_TRIPS_FILE
from topologies.timeline import Change

AGENT_METRICS_PORT = METRICS_PORT + MAX_HOSTS_PER_ADDRESS


class RemoteTestbed:
    """The remote ``Testbed``, which is ``Connected``, ``Probing``, ``Recording`` and ``Faulting``, too."""

    def __init__(self, plan: Plan, run_dir: Path, epoch_offset_ns: int = 0, changes: Sequence[Change] = ()) -> None:
        self._plan = plan
        self._changes = changes
        self._run_dir = run_dir
        self._epoch_offset_ns = epoch_offset_ns
        self._inventory = saved_inventory(run_dir)
        self._slots = self._inventory.slots(len(plan.placement))
        self._problems: list[tuple[str, str]] = []
        self._uncaptured = ""

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

    def connect(self, deployment: Deployment) -> None:
        """Start the probers, on all machines, and if the plan pauses peers the pausers.

        Raises:
            DeploymentError: a prober cannot listen on its address, or a script does not start.
        """
        self._pauses = Pauses(deployment, self._plan.placement, self._changes)
        self._pauses.start()
        self._captures = MachineCaptures(deployment, self._plan.placement, self._run_dir)
        self._round_trips = RoundTrips(deployment, self._plan.placement, self._plan.seed)
        self._round_trips.start()

    def probe(self, moment: Moment) -> None:
        """Probe every pair of addresses.

        Raises:
            DeploymentError: a prober gave no answer.
        """
        self._round_trips.sweep(moment, self._plan.experiment.probes.packets_per_pair)

    def start_recording(self, longest_s: float) -> None:
        """Start the captures, where the rights on all machines allow it, and the probes of random pairs."""
        capture = self._plan.experiment.capture
        if capture.enabled:
            ports = [slot.listen[1] for slot in self._slots]
            self._uncaptured = self._captures.start(capture.snaplen_bytes, (min(ports), max(ports)))
        self._round_trips.start_sampling(self._plan.experiment.probes.during_per_s, longest_s)

    def schedule(self, zero_ns: int) -> None:
        """Tell the machines when to pause which peers.

        Raises:
            DeploymentError: a pauser has ended.
        """
        self._pauses.schedule(zero_ns)

    def lost(self) -> dict[str, str]:
        """Return the recorders, probers and pausers that have ended."""
        return self._captures.lost() | self._round_trips.lost() | self._pauses.lost()

    def stop_recording(self) -> None:
        """Stop the pausers, the probes and the captures, and fetch the captures."""
        with self._noting():
            self._pauses.end()
        with self._noting():
            self._round_trips.stop_sampling("during")
        with self._noting():
            self._captures.stop()

    def close(self) -> Findings:
        """Convert what was recorded to our clock, and return the offsets of the clocks."""
        clocks = read_clocks(self._run_dir)
        files: tuple[str, ...] = ()
        if applied := self._pauses.applied(clocks):
            write_file(self._run_dir / FAULTS_FILE, msgspec.json.Encoder().encode_lines(applied))
        with self._noting():
            self._round_trips.write(self._run_dir / ROUND_TRIPS_FILE, clocks, self._epoch_offset_ns)
        with self._noting():
            files = self._captures.convert(clocks)
        return Findings(
            counters=_clock_counters(clocks) | {"records_dropped": self._captures.dropped},
            problems=tuple(self._problems),
            capture_files=files,
            uncaptured=self._uncaptured,
        )

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Make an error a problem of the run, so that the rest of it can be analysed."""
        try:
            yield
        except (DeploymentError, TestbedError, OSError) as error:
            self._problems.append(("invalid", str(error)))


def _clock_counters(clocks: dict[str, ClockOffset]) -> dict[str, int]:
    counters: dict[str, int] = {}
    for machine, clock in clocks.items():
        counters |= {
            f"clock_realtime_offset_ns_{machine}": clock.realtime_ns,
            f"clock_monotonic_offset_ns_{machine}": clock.monotonic_ns,
            f"clock_error_ns_{machine}": clock.error_ns,
        }
    return counters


def make(setting: Setting) -> RemoteTestbed:
    """Return the testbed of a run."""
    planned = setting.planned
    return RemoteTestbed(planned.plan, setting.run_dir, setting.epoch_offset_ns, planned.changes)
