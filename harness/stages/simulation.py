"""The running stage on the simulated testbed: from a planned run directory to traces and manifest, in one process.

Nothing is deployed or measured, so this is no ``Testbed``: ``Simulation`` replaces processes, SSH and data plane.
"""

import hashlib
import resource
from pathlib import Path

from harness.deployment.agents import DRAIN_S
from harness.planning import read_plan
from harness.progress import step
from harness.simulator.changes import simulate_network
from harness.simulator.enactment import START_NS, Enactment
from harness.simulator.simulation import Simulation
from harness.stages import manifest
from harness.testbeds.registry import TESTBEDS
from metrics.rundir import FinalState, Manifest, Timeline
from peer.core.contract import Message, NodeId
from peer.core.randomness import NETWORK, substream
from peer.files import TRACE_FOLDER, trace_file
from peer.instances.spec import NodeSpec
from peer.runtime.tracefile import TraceFile
from peer.trace import TraceEvent

LAST_S = 30.0
"""Virtual time after the links close, in which the last bytes arrive."""


class TraceFiles:
    """The observer of a run: it writes one trace file per node, as peers do on other testbeds."""

    frames = True

    def __init__(self, run_dir: Path, specs: tuple[NodeSpec, ...]) -> None:
        (run_dir / TRACE_FOLDER).mkdir()
        self._paths = [run_dir / trace_file(spec.node) for spec in specs]
        self._files = {
            spec.node: TraceFile(path, spec.node, spec.topics, START_NS)
            for spec, path in zip(specs, self._paths, strict=True)
        }

    def trace(self, event: TraceEvent) -> None:
        self._files[event.node].write(event)

    def deliver(self, now_ns: int, node: NodeId, message: Message) -> None:
        """Do nothing: the node traces the delivery itself."""

    def close(self, now_ns: int) -> str:
        """End every file; return the SHA-256 of all files in order of their nodes."""
        for file in self._files.values():
            file.close(now_ns)
        digest = hashlib.sha256()
        for path in self._paths:
            digest.update(path.read_bytes())
        return digest.hexdigest()


class SimulatedRun:
    """One run in progress."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._planned = read_plan(run_dir)
        experiment = self._planned.plan.experiment
        seed = self._planned.plan.seed
        most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        self._traces = TraceFiles(run_dir, self._planned.overlay.nodes)
        addresses = {place.node: place.wan_ip for place in self._planned.plan.placement}
        cost_ns = round(experiment.simulator.processing_ms * 1e6)
        self._timeline = Timeline.plan(START_NS, experiment.workload.spans_s | {"stop": DRAIN_S + LAST_S})
        network = simulate_network(
            self._planned.network,
            self._planned.changes,
            substream(seed, NETWORK, "network"),
            seed=seed,
            zero_ns=self._timeline.zero_ns,
        )
        self._simulation = Simulation(
            network,
            self._traces,
            seed=seed,
            run_number=self._planned.overlay.run,
            processing_ns=(lambda node: cost_ns) if cost_ns else None,
            encode=experiment.simulator.encode_frames,
            address=addresses.__getitem__,
        )
        self._close_ns = self._timeline.stop_ns + round(DRAIN_S * 1e9)

    def perform(self) -> Manifest:
        """Start the nodes, enact the schedule, stop, and write the manifest."""
        offset_ns = manifest.epoch_offset_ns()
        simulation, timeline = self._simulation, self._timeline
        Enactment(
            simulation,
            self._planned.overlay,
            self._planned.schedule,
            start_ns=START_NS,
            zero_ns=timeline.zero_ns,
            stop_ns=timeline.stop_ns,
        )
        simulation.at(timeline.stop_ns, simulation.quiesce)
        simulation.at(self._close_ns, simulation.close)
        with step("simulate"):
            simulation.run(timeline.end_ns)
        return self._conclude(offset_ns, self._traces.close(timeline.end_ns))

    def _conclude(self, offset_ns: int, digest: str) -> Manifest:
        planned, simulation = self._planned, self._simulation
        plan = planned.plan
        result = Manifest(
            run_id=manifest.run_id(plan.name, self._run_dir),
            testbed=plan.experiment.testbed,
            can=tuple(sorted(TESTBEDS[plan.experiment.testbed].can)),
            epoch_offset_ns=offset_ns,
            zero_ns=self._timeline.zero_ns,
            phases=self._timeline.phases,
            final_states=tuple(
                FinalState(f"peer-{spec.node}", "exited", "exited", 0, self._close_ns) for spec in planned.overlay.nodes
            ),
            counters={"events_handled": simulation.handled, "frames_sent": sum(simulation.sent_frames)},
            versions=manifest.versions(),
            kernel=manifest.kernel(),
            plugins=manifest.plugins(),
            hashes={**plan.hashes, "trace": digest},
        )
        manifest.write(self._run_dir, result)
        return result


def simulate_planned(run_dir: Path) -> Manifest:
    """Simulate a planned experiment. Write the traces, and ``manifest.json`` with their digest among its hashes.

    Equal plans give equal digests on any machine, with any PYTHONHASHSEED.
    """
    return SimulatedRun(run_dir).perform()
