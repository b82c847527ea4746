"""The running stage: from a planned run directory to ``manifest.json``.

``trellis run`` starts ``python -m harness.stages.execution RUN_DIR``, in a sandbox if the testbed's description says
so. The description names the stage; ``run_planned`` is that of testbeds with machines. A failure that ends the run
raises; any other becomes a problem in the manifest, and so a reason of the verdict.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name

import msgspec

from harness.deployment.agents import DRAIN_S, build_agent_specs, nodes_by_machine
from harness.deployment.fleet import Deployment, make_token
from harness.errors import DeploymentError, TestbedError, TrellisError, last_line
from harness.machine.disk_reserve import Reserve
from harness.planning import read_plan
from harness.planning.plan import Plan
from harness.planning.processes import share_processes
from harness.progress import step
from harness.stages import manifest
from harness.stages.introductions import measure_introductions
from harness.stages.prepared import await_stopped
from harness.stages.prometheus import (
    Prometheus,
    ScrapeWindow,
    count_paused,
    judge_scrapes,
    start_prometheus,
    unexplained_failures,
)
from harness.stages.samples import fetch_samples, step_s, write_samples
from harness.stages.supervision import PartLostError, Supervision
from harness.terminal import printable
from harness.testbeds.base import (
    Accounting,
    Connected,
    Faulting,
    Findings,
    MakeTestbed,
    Probing,
    Recording,
    Setting,
    Testbed,
)
from harness.testbeds.registry import TESTBEDS, find_testbed
from metrics.prometheus import Target
from metrics.rundir import FinalState, Manifest, Record, RunDirError, Timeline, read_clocks, read_lines, write_document
from metrics.rundir.files import DEPLOYMENT_FILE, PHASES_FILE, RESERVE_FILE, SAMPLES_FILE, agent_log, exits_file
from peer.core.schedule import decode_schedule
from peer.files import LOGS_FOLDER, OVERLAY_FILE, SCHEDULE_FILE, log_file
from peer.runtime.clock import Clock

READY_S, READY_S_PER_HOST = 60.0, 0.2
"""How long the peers may take to reach the barrier."""

STOP_S = 30.0
"""How long the peers may take to end after the last instant of the plan."""

SETTLE_S = 1.0
"""Real time between the end of the peers and the probing of the idle network: ending processes occupy the kernel for
milliseconds."""


class Execution:
    """One run in progress: its plan, its testbed, and what goes into its manifest."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        planned = read_plan(run_dir)
        self.plan = planned.plan
        self.changes = planned.changes
        self.script = planned.script
        self.shared = share_processes(planned)
        self.description = find_testbed(self.plan.experiment.testbed, self.plan.experiment.plane)
        self.epoch_offset_ns = manifest.epoch_offset_ns()
        self.clock = Clock(self.plan.experiment.dilation)
        self.phase_log = manifest.PhaseLog(self.clock, run_dir / PHASES_FILE)
        self.problems: list[tuple[str, str]] = []
        self.resources: dict[str, float] = {}
        self.counters: dict[str, int] = {}
        self.zero_ns = 0
        self.reserve = Reserve(run_dir)
        self.lead_s = 0.0
        self.was_cut_short = False
        self.record = Record(make_token(), shared=self.shared)
        self.supervision = Supervision(self.plan.experiment.supervision, self.clock)
        self.testbed = make_testbed(Setting(planned, run_dir, self.epoch_offset_ns, self.clock))

    @property
    def _zero_epoch_ns(self) -> int:
        """The workload's zero in real time since the epoch."""
        return self.clock.monotonic_ns(self.zero_ns) + self.epoch_offset_ns

    def deploy(self, deployment: Deployment) -> None:
        sites, metrics = self.testbed.sites(), self.testbed.metrics()
        specs = build_agent_specs(self.plan.experiment, sites, metrics, self.shared)
        overlay, schedule = ((self.run_dir / name).read_bytes() for name in (OVERLAY_FILE, SCHEDULE_FILE))
        deployment.connect()
        deployment.check_versions()
        deployment.ship()
        deployment.push(specs, overlay, schedule, self.script or None)
        deployment.start_agents()
        deployment.await_ready(READY_S + READY_S_PER_HOST * len(sites))
        self.lead_s = deployment.lead_s

    def perform(self, deployment: Deployment) -> None:
        """Lift the barrier and supervise the run from the warm-up to the end of the last peer."""
        clock = self.clock
        self.supervision.add(self.reserve.lost)  # first: a full disk ends other parts, too
        self.supervision.add(lambda: {f"the agent on {name}": words for name, words in deployment.faults().items()})
        if isinstance(self.testbed, Recording):
            self.supervision.add(self.testbed.lost)
        start_ns = clock.virtual_ns(time.monotonic_ns() + round(self.lead_s * 1e9))
        planned = Timeline.plan(start_ns, self.plan.experiment.workload.spans_s)
        self.zero_ns = planned.zero_ns
        self.phase_log.plan(planned.phases)
        if isinstance(self.testbed, Faulting):
            self.testbed.schedule(self.zero_ns)
        self.judge_leads(deployment.start(self._zero_epoch_ns))
        try:
            self._pass_phases(planned)
        except PartLostError:
            self.was_cut_short = True
            with self.noting("the peers were not told to end"):
                deployment.stop_running()
        self.problems += [("invalid", f"lost during the run: {text}") for text in self.supervision.problems]
        with self.phase_log.phase("stop"), self.noting("the peers did not end", "invalid"):
            if isinstance(self.testbed, Accounting):
                self.resources |= self.testbed.resources()  # not before: reading a process's memory pauses it
            self._hear_agents(deployment.wait(clock.real_s(DRAIN_S + STOP_S)))

    def _pass_phases(self, planned: Timeline) -> None:
        """Wait from warm-up to the end of the cool-down.

        Raises:
            PartLostError: a part of the run was lost, and the experiment says to abort.
        """
        for phase in planned.phases:
            try:
                real_s = self.clock.real_s((phase.end_ns - phase.start_ns) / 1e9)
                with step(phase.name, real_s), self._accounting(phase.name):
                    self.supervision.wait_until(phase.end_ns)
            finally:
                end_ns = min(phase.end_ns, max(phase.start_ns, self.clock.now_ns()))
                self.phase_log.add(phase.name, phase.start_ns, end_ns)

    @contextlib.contextmanager
    def _accounting(self, phase: str) -> Iterator[None]:
        """Measure the processor time of the peers in the workload, on a testbed that knows it."""
        if phase != "workload" or not isinstance(self.testbed, Accounting):
            yield
            return
        before_s = self.testbed.cpu_s()
        yield
        self.resources["peers_cpu_s"] = round(self.testbed.cpu_s() - before_s, 2)

    def judge_leads(self, leads_ns: Mapping[str, int]) -> None:
        """Report the machines whose peers received the start too late: they lost warm-up time or publications.

        Args:
            leads_ns: machine -> how long before the start its peers were told (ns).
        """
        self.counters["start_lead_ns_min"] = min(leads_ns.values())
        warmup_s = self.plan.experiment.workload.warmup_s
        for machine, lead_ns in leads_ns.items():
            if lead_ns < 0:
                severity = "suspect" if -lead_ns / 1e9 < warmup_s else "invalid"
                text = f"the peers on {machine} were told to start {-lead_ns / 1e9:.3f} s too late"
                self.problems.append((severity, f"{text}, of {warmup_s:g} s of warm-up"))

    def _hear_agents(self, statuses: Mapping[str, int]) -> None:
        """Report the reason of each agent that ended before its peers. Failures of peers are in their final states."""
        for machine, status in statuses.items():
            log = self.run_dir / LOGS_FOLDER / agent_log(machine)
            words = [
                line
                for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
                if line.startswith("agent: ")
            ]
            if status and words:
                self.problems.append(("invalid", f"the agent on {machine} ended its peers: {printable(words[-1][7:])}"))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the network in the context, on a testbed that can."""
        if not isinstance(self.testbed, Recording):
            yield
            return
        self.testbed.start_recording(self.longest_s())
        yield
        with self.noting("the recording did not end cleanly", "invalid"):
            self.testbed.stop_recording()

    @contextlib.contextmanager
    def scraping(self) -> Iterator[None]:
        """Run Prometheus in the context, and report scrapes that failed during the workload."""
        experiment = self.plan.experiment
        targets = self.targets()
        if not experiment.prometheus.enabled or not targets:
            yield
            return
        server = start_prometheus(self.run_dir, targets, experiment.prometheus.scrape_interval_s)
        started_s = time.time()
        self.record = msgspec.structs.replace(self.record, prometheus=server.url)
        write_document(self.run_dir / DEPLOYMENT_FILE, self.record)
        self.supervision.add(server.lost)
        try:
            yield
            with self.noting("scraping"):
                self._count_scrapes(server, targets, started_s)
            with self.noting("the samples were not kept"):
                self._keep_samples(server, len(targets), started_s)
        finally:
            with self.noting("scraping"):
                server.stop()

    def targets(self) -> list[Target]:
        """Return every process that serves metrics: without ``peer.metrics``, neither peers nor agents do."""
        parts = self.testbed.metrics()
        targets = [Target("dataplane" if name == "dataplane" else "agent", *place) for name, place in parts.items()]
        if not self.plan.experiment.peer.metrics:
            return [target for target in targets if target.job == "dataplane"]
        served = [(site.node, site.metrics) for site in self.testbed.sites() if site.metrics is not None]
        return [Target("peer", *place, {"node": str(node)}) for node, place in served] + targets

    def _count_scrapes(self, server: Prometheus, targets: Sequence[Target], started_s: float) -> None:
        zero_s = self._zero_epoch_ns / 1e9
        end_s = zero_s + self.clock.real_s(self.plan.experiment.workload.duration_s)
        if (end_s := min(end_s, time.time())) <= zero_s:
            return  # cut short before the workload
        counts = server.count_scrapes(zero_s, end_s)
        self.counters |= {"scrapes": counts.scrapes, "scrapes_failed": counts.failed}
        window = ScrapeWindow(end_s - zero_s, zero_s - started_s, self.plan.experiment.prometheus.scrape_interval_s)
        schedule = decode_schedule((self.run_dir / SCHEDULE_FILE).read_bytes())
        places = {site.node: site.metrics for site in self.testbed.sites() if site.metrics is not None}
        nodes = {place.host: place.node for place in self.plan.placement}
        interval_s = window.interval_s / self.clock.dilation
        unexplained = unexplained_failures(counts, schedule, places, count_paused(self.changes, nodes, interval_s))
        self.problems += [("suspect", text) for text in judge_scrapes(counts, window, targets, unexplained)]

    def _keep_samples(self, server: Prometheus, targets: int, started_s: float) -> None:
        """Write what was scraped into the run directory."""
        spec, span_s = self.plan.experiment.prometheus, (started_s, time.time())
        batches = fetch_samples(server, span_s, step_s(targets, spec.scrape_interval_s), self._virtual_ns)
        self.counters["samples"] = write_samples(self.run_dir / SAMPLES_FILE, batches)

    def _virtual_ns(self, epoch_ns: int) -> int:
        """Return the virtual instant of a real one since the epoch."""
        return self.clock.virtual_ns(epoch_ns - self.epoch_offset_ns)

    def longest_s(self) -> float:
        """Return an upper bound of the recording's length in virtual seconds."""
        return self.lead_s + self.plan.experiment.workload.length_s + DRAIN_S + STOP_S

    @contextlib.contextmanager
    def noting(self, problem: str, severity: str = "suspect") -> Iterator[None]:
        """Record a failed step as a problem of the run, so that the rest of the run can be analysed."""
        try:
            yield
        except (DeploymentError, TestbedError, OSError) as error:  # OSError: usually a full disk
            self.problems.append((severity, f"{problem}: {error}"))

    def collect(self, deployment: Deployment) -> None:
        """Copy traces and logs into the run directory. Free the reserve first, so that there is space for them."""
        if self.reserve.release():
            self.problems.append(("invalid", f"no space left on the disk of {self.run_dir}: the last writes are lost"))
        with self.phase_log.phase("collect"), self.noting("not everything was collected", "invalid"):
            deployment.collect(self.run_dir, nodes_by_machine(self.testbed.sites()))

    def conclude(self, findings: Findings) -> Manifest:
        if self.script:
            self.counters |= self._measure_introductions()
        final_states = (*peer_states(self.plan, self.run_dir), *findings.final_states)
        addresses = {"folder": self.record.folder, "prometheus": self.record.prometheus}
        result = Manifest(
            run_id=manifest.run_id(self.plan.name, self.run_dir),
            testbed=self.description.name,
            can=tuple(sorted(self.description.can)),
            epoch_offset_ns=self.epoch_offset_ns,
            zero_ns=self.zero_ns,
            phases=tuple(self.phase_log.phases),
            final_states=final_states,
            counters={**findings.counters, **self.counters},
            versions=manifest.versions(),
            kernel=manifest.kernel(),
            plugins=manifest.plugins(),
            hashes=self.plan.hashes,
            problems=(*self.problems, *findings.problems, *_complaints(self.plan, self.run_dir)),
            capture_files=findings.capture_files,
            uncaptured=findings.uncaptured,
            resources=self.resources,
            time_dilation=self.clock.dilation,
            per_process=self.plan.experiment.peer.per_process,
            deployment={name: text for name, text in addresses.items() if text},
        )
        manifest.write(self.run_dir, result)
        return result

    def _measure_introductions(self) -> dict[str, int]:
        start_ns = self.zero_ns - round(self.plan.experiment.workload.warmup_s * 1e9)
        nodes = (place.node for place in self.plan.placement)
        return measure_introductions(self.run_dir, nodes, start_ns, self.epoch_offset_ns)


def run_planned(run_dir: Path) -> Manifest:
    """Run a planned experiment on its testbed and write the manifest.

    Raises:
        TestbedError: a step of the testbed failed.
        DeploymentError: a step failed on a machine.
    """
    run = Execution(run_dir)
    testbed, phase_log = run.testbed, run.phase_log
    with phase_log.phase("boot", f"boot {len(run.plan.placement)} hosts"):
        testbed.boot()
    write_document(run_dir / DEPLOYMENT_FILE, run.record)
    held = not run.description.sandboxed  # a sandbox ends with the stage
    with Deployment(testbed.machines(), run.record.folder, run_dir / LOGS_FOLDER, held=held) as deployment:
        with phase_log.phase("deploy"):
            run.deploy(deployment)
            if isinstance(testbed, Connected):
                testbed.connect(deployment)
            await_stopped()
        if isinstance(testbed, Probing):
            with phase_log.phase("probe_before"):
                testbed.probe("before")
        with run.recording(), run.scraping():
            run.perform(deployment)
        if isinstance(testbed, Probing) and not run.was_cut_short:
            with phase_log.phase("settle"):
                time.sleep(SETTLE_S)
            with phase_log.phase("probe_after"), run.noting("no probes after the workload", "invalid"):
                testbed.probe("after")
        run.collect(deployment)
    return run.conclude(testbed.close())


def main() -> int:
    """Run the planned run whose directory is the only argument."""
    run_dir = Path(sys.argv[1])
    try:
        stage_of(run_dir)(run_dir)
    except (TrellisError, RunDirError) as error:
        print(f"trellis run: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    finally:
        (run_dir / RESERVE_FILE).unlink(missing_ok=True)  # if the run failed before it was freed
    return 0


def stage_of(run_dir: Path) -> Callable[[Path], Manifest]:
    """Return the function that runs the plan on its testbed."""
    stage: Callable[[Path], Manifest] = resolve_name(TESTBEDS[read_plan(run_dir).plan.experiment.testbed].stage)
    return stage


def make_testbed(setting: Setting) -> Testbed:
    """Return the testbed that the plan names."""
    name = setting.planned.plan.experiment.testbed
    testbed = TESTBEDS[name].testbed
    assert testbed is not None, f"testbed {name} has another running stage"
    make: MakeTestbed = resolve_name(testbed)
    return make(setting)


def peer_states(plan: Plan, run_dir: Path) -> list[FinalState]:
    """Return how every peer ended, from the reports of the agents. A peer without a report is ``missing``.

    The agents' instants are converted to this machine's clock.
    """
    expected = plan.experiment.peer.expected_final_state
    clocks = read_clocks(run_dir)
    told: dict[tuple[str, str], FinalState] = {}
    for machine in {place.machine for place in plan.placement}:
        ahead_ns = clocks[machine].monotonic_ns if machine in clocks else 0
        for state in read_lines(run_dir / exits_file(machine), msgspec.json.Decoder(FinalState).decode):
            at_ns = None if state.at_ns is None else state.at_ns - ahead_ns
            words = {"state": printable(state.state), "detail": printable(state.detail)}
            told[machine, state.process] = msgspec.structs.replace(state, expected=expected, at_ns=at_ns, **words)
    names = [(place.machine, f"peer-{place.node}") for place in plan.placement]
    return [told.get(name, FinalState(name[1], expected, "missing")) for name in names]


def _complaints(plan: Plan, run_dir: Path) -> list[tuple[str, str]]:
    """Report Python peers that wrote to standard error: they do so only if something is wrong."""
    if plan.experiment.peer.command:
        return []
    said = {place.node: run_dir / log_file(place.node) for place in plan.placement}
    said = {node: path for node, path in said.items() if path.exists() and path.stat().st_size}
    if not said:
        return []
    node, path = next(iter(said.items()))
    last = printable(last_line(path))
    return [("suspect", f"{len(said)} peers wrote to standard error; the first is peer-{node}: {last}")]


if __name__ == "__main__":
    sys.exit(main())
