"""The emulated testbed, inside a sandbox: a Mininet network, a data plane, and one machine with its own sshd."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from pkgutil import resolve_name

import msgspec

from harness.deployment.agents import Site, emulated_sites
from harness.errors import TestbedError
from harness.experiment.inventory import Machine
from harness.machine import sandbox
from harness.machine.awake import make_keep_awake
from harness.machine.pressure import PressureLog
from harness.machine.watchdog import Watchdog
from harness.planes.host_capture.handle import HostCaptures
from harness.planes.plane import (
    CaptureCounts,
    Capturing,
    FinalCounters,
    PairsChange,
    Plane,
    PlaneMaker,
    Port,
    Scheduling,
)
from harness.planes.registry import PLANES
from harness.planning.plan import PlannedRun
from harness.testbeds.base import Findings, Moment, Setting
from harness.testbeds.emulated import hosts
from harness.testbeds.emulated.certifier import Certifier
from harness.testbeds.emulated.mininet_net import EmulatedNet, make_net
from harness.testbeds.emulated.pace import Pace
from harness.testbeds.emulated.pauser import Pauser
from harness.testbeds.emulated.probes import Prober
from harness.testbeds.emulated.sshd import SshServer, start_sshd
from harness.testbeds.emulated.work_folder import remove_work_folder
from harness.testbeds.registry import find_testbed
from metrics.processors import find_groups, read_throttling
from metrics.recorded.host_captures import choose_hosts
from metrics.rundir import AppliedChange, write_file
from metrics.rundir.files import ACHIEVED_FILE, CAPTURE_FOLDER, FAULTS_FILE, PRESSURE_FILE, WORK_FOLDER
from peer.runtime.agent_metrics import read_cpu_s, read_pss_bytes
from peer.runtime.clock import Clock
from topologies.timeline import Change, instants_of

LOOPBACK = "127.0.0.1"
"""The sandbox's own loopback. Hosts have others, so they cannot reach what listens here."""
SSH_PORT = 2222
PLANE_METRICS = (LOOPBACK, 9101)
AGENT_METRICS = (LOOPBACK, 9102)
WORK = Path("/run/trellis")


class EmulatedTestbed:
    """The emulated ``Testbed``.

    Attributes:
        net: the hosts, routers and links, from ``boot`` on.
    """

    net: EmulatedNet

    def __init__(self, planned: PlannedRun, run_dir: Path, epoch_offset_ns: int, clock: Clock) -> None:
        self._plan = plan = planned.plan
        self._network = planned.network
        self._underlay = planned.underlay
        self._changes = planned.changes
        self._zero_ns = 0
        self._run_dir = run_dir
        self._disk = run_dir / WORK_FOLDER
        self._epoch_offset_ns = epoch_offset_ns
        self._clock = clock
        self._machine = plan.placement[0].machine
        self._problems: list[tuple[str, str]] = []
        self._captured: CaptureCounts | None = None
        self._pauser: Pauser | None = None
        self._keep_awake = make_keep_awake()
        self._watchdog = Watchdog(run_dir, clock)
        self._throttling = read_throttling(find_groups())
        self._pressure = PressureLog(run_dir / PRESSURE_FILE, clock, psi=self._keep_awake is None)

    def boot(self) -> None:
        """Start hosts, data plane, prober, sshd and watchdog, and keep virtual processors awake."""
        if self._keep_awake is not None:
            self._keep_awake.start()
        self._watchdog.start()
        self.net = make_net(self._underlay, self._plan.placement)
        netns, wan_ips = [host.netns for host in self.net.hosts], [host.wan_ip for host in self.net.hosts]
        self._plane = self._make_plane()
        mtu = self._plan.experiment.underlay.mtu_bytes
        self._plane.attach([Port(number, netns[number], address, mtu=mtu) for number, address in enumerate(wan_ips)])
        sampled = choose_hosts(self._plan.seed, len(netns), self._plan.experiment.capture.checked_hosts)
        self._host_captures = HostCaptures({host: netns[host] for host in sampled}, self._run_dir, clock=self._clock)
        self._pace = Pace(self._plane)
        self._prober = Prober(self._network, netns, wan_ips, self._epoch_offset_ns, self._plan.seed, self._clock)
        self._certifier = Certifier(self._prober, self._network, self._run_dir, self._plan.seed, self._clock)
        self._sshd = self._start_sshd()
        self._pressure.start()
        if any(change.paused for change in self._changes):
            shells = [host.pid for host in self.net.hosts]
            self._pauser = Pauser(self._changes, shells, self._run_dir, self._clock.dilation)

    def _make_plane(self) -> Plane:
        """Start the data plane that the experiment names."""
        name = find_testbed(self._plan.experiment.testbed, self._plan.experiment.plane).plane
        assert name is not None, "every emulated testbed names a data plane"
        make: PlaneMaker = resolve_name(PLANES[name].make)
        late_ns = round(self._plan.experiment.verdict.lateness_p99_ms * 1e6)
        return make(self._network, self._plan.seed, self._run_dir, PLANE_METRICS, self._clock.dilation, late_ns)

    def _start_sshd(self) -> SshServer:
        """Start sshd with a work folder on the run directory's disk: long runs could fill the memory.

        Peers are programs that an experiment file names, and may be anyone's. They cannot reach the server, read its
        key, see the run directory, or write elsewhere than into private folders.
        """
        self._disk.mkdir(exist_ok=True)
        work = WORK / "work"
        work.mkdir(parents=True, exist_ok=True)
        sandbox.mount(str(self._disk), str(work), None, sandbox.MS_BIND)
        name, here, hidden = self._machine, self._disk, [self._run_dir]
        server = start_sshd(WORK / "sshd", LOOPBACK, SSH_PORT, name=name, work=work, work_here=here, hidden=hidden)
        return server.with_key_in_memory()

    def machines(self) -> tuple[Machine, ...]:
        """Return the sandbox, the only machine."""
        return (self._sshd.machine,)

    def sites(self) -> tuple[Site, ...]:
        """Return one site per host, in the host's namespace."""
        places = tuple(host.name for host in self._underlay.hosts)
        return emulated_sites(self._plan, places, {host.number: host.netns for host in self.net.hosts})

    def metrics(self) -> dict[str, tuple[str, int]]:
        """Return the endpoints of agent and data plane, on the sandbox's loopback."""
        return {self._machine: AGENT_METRICS, "dataplane": PLANE_METRICS}

    def probe(self, moment: Moment) -> None:
        """Introduce hosts to each other, then sweep all pairs without jitter, to measure the data plane's own error."""
        network = self._network
        jittered = network.jitter_ms is not None
        if jittered:
            self._plane.apply(PairsChange(network.without_jitter()))
        experiment = self._plan.experiment
        if moment == "before":
            self._certifier.introduce(self._pace())
        limits = msgspec.to_builtins(experiment.verdict)
        rows = self._certifier.sweep(moment, experiment.probes.packets_per_pair, self._pace, limits)
        if jittered:
            self._plane.apply(PairsChange(network))
        unanswered = rows.num_rows - rows["rtt_ms"].drop_null().length()
        if unanswered and network.loss_ratio is None:
            self._problems.append(
                ("suspect", f"{unanswered} of {rows.num_rows} pairs gave no answer to probes {moment} the workload")
            )

    def start_recording(self, longest_s: float) -> None:
        """Start the captures, in hosts first so that they have all of the data plane's, and the probes to random pairs.

        A capture in hosts that cannot start leaves the data plane's unchecked: a problem of the run.
        """
        snaplen_bytes = self._plan.experiment.capture.snaplen_bytes
        if plane := self._capturing:
            with self._noting():
                self._host_captures.start(snaplen_bytes, self._epoch_offset_ns)
            plane.start_capture(self._run_dir / CAPTURE_FOLDER, snaplen_bytes, self._epoch_offset_ns)
        self._prober.start_sampling(self._plan.experiment.probes.during_per_s, longest_s)

    @property
    def _capturing(self) -> Capturing | None:
        """The data plane, if it can capture and the experiment asks for captures."""
        asked = self._plan.experiment.capture.enabled
        return self._plane if asked and isinstance(self._plane, Capturing) else None

    def lost(self) -> dict[str, str]:
        """Return the processes and threads of the testbed that have ended, and how."""
        parts = (self._plane, self._host_captures, self._prober, self._watchdog, self._pressure, self._pauser)
        return {name: how for part in parts if part is not None for name, how in part.lost().items()}

    def schedule(self, zero_ns: int) -> None:
        """Tell the data plane the workload's zero, and it and the pauser the plan's changes, which they apply."""
        self._zero_ns = zero_ns
        if isinstance(self._plane, Scheduling):
            self._plane.schedule(self._link_changes, zero_ns)
        if self._pauser is not None:
            self._pauser.schedule(zero_ns)

    @property
    def _link_changes(self) -> list[Change]:
        return [change for change in self._changes if not change.paused]

    def cpu_s(self) -> float:
        """Return the processor time (real s) of all processes in the hosts except Mininet's shells."""
        return read_cpu_s(hosts.processes(self.net.hosts))

    def resources(self) -> dict[str, float]:
        """Return the memory of all processes in the hosts except Mininet's shells, in about 1 ms per process."""
        peers = hosts.processes(self.net.hosts)
        return {"peer_processes": float(len(peers)), "peers_pss_mib": read_pss_bytes(peers) / 2**20}

    def stop_recording(self) -> None:
        """Stop the probes before the capture, so that the capture has every reply."""
        with self._noting():
            self._prober.stop_sampling("during")
        if plane := self._capturing:
            with self._noting():
                self._captured = plane.stop_capture()
            with self._noting():
                self._host_captures.stop()

    def close(self) -> Findings:
        """Write the certificate, stop the data plane, and return the findings."""
        with self._noting():
            self._prober.write(self._run_dir / ACHIEVED_FILE)
            self._prober.close()
        self._pressure.stop()
        awake = self._keep_awake.stop() if self._keep_awake is not None else 0
        self._sshd.stop()
        throttling = read_throttling(find_groups()).since(self._throttling)
        counters = {
            "processors_kept_awake": awake,
            "processors_watched": self._watchdog.stop(),
            "throttled_periods": throttling.periods,
            "throttled_us": throttling.time_us,
        }
        pauses_ns = self._end_pauses()
        with self._noting():
            final = self._plane.close()
            self._write_applied(final.applied_ns, pauses_ns)
            counters |= _plane_counters(final)
            self._problems += _plane_problems(final)
        self._problems += [("invalid", complaint) for complaint in self._plane.complaints]
        self.net.stop()
        remove_work_folder(self._run_dir)
        files: tuple[str, ...] = ()
        if self._captured:
            counters |= _capture_counters(self._captured)
            files = tuple(str(path.relative_to(self._run_dir)) for path in self._captured.files)
            self._problems += _capture_problems(self._captured)
        return Findings(counters=counters, problems=tuple(self._problems), capture_files=files)

    def _end_pauses(self) -> list[int]:
        """Let all peers go on, and return when each instant of a pause was applied."""
        if self._pauser is None:
            return []
        applied_ns, complaints = self._pauser.end()
        self._problems += [("invalid", complaint) for complaint in complaints]
        return applied_ns

    def _write_applied(self, links_ns: Sequence[int], pauses_ns: Sequence[int]) -> None:
        """Record when each instant of the plan's changes was applied, to links and to peers."""
        if self._changes:
            pauses = [change for change in self._changes if change.paused]
            lines = merge_applied(((self._link_changes, links_ns), (pauses, pauses_ns)), self._zero_ns)
            write_file(self._run_dir / FAULTS_FILE, msgspec.json.Encoder().encode_lines(lines))

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Record a failed step as a problem of the run, so that the rest of the run can be analysed."""
        try:
            yield
        except TestbedError as error:
            self._problems.append(("invalid", str(error)))


def merge_applied(parts: Iterable[tuple[Sequence[Change], Sequence[int]]], zero_ns: int) -> list[AppliedChange]:
    """Return the instants that all parts of the testbed have applied, in order.

    Args:
        parts: of each part its changes, and when it applied their instants, in order; it may lack the last ones.
        zero_ns: the zero of the changes, on the run's clock.
    """
    found: dict[int, list[int | None]] = {}
    for changes, applied_ns in parts:
        for asked_ns, at_ns in zip_longest(instants_of(changes), applied_ns):
            found.setdefault(asked_ns, []).append(at_ns)
    known = ((asked_ns, [at for at in found[asked_ns] if at is not None]) for asked_ns in sorted(found))
    return [
        AppliedChange(zero_ns + asked_ns, max(at_ns)) for asked_ns, at_ns in known if len(at_ns) == len(found[asked_ns])
    ]


def make(setting: Setting) -> EmulatedTestbed:
    """Return the testbed of a run."""
    planned, run_dir, epoch_offset_ns, clock = setting
    return EmulatedTestbed(planned, run_dir, epoch_offset_ns, clock)


def _plane_counters(final: FinalCounters) -> dict[str, int]:
    """Return the counters from the data plane's start to its end, which include the capture's time."""
    counters = final.counters
    return {
        "plane_frames_in": counters.frames_in,
        "plane_frames_out": counters.frames_out,
        "plane_in_flight": counters.in_flight,
        "plane_overruns": final.overruns,
        "plane_realtime": int(final.realtime),
        **{f"plane_drops_{cause}": frames for cause, frames in counters.drops.items()},
        **{f"plane_lateness_ns_{name}": value for name, value in final.lateness_ns.items()},
        **{
            f"plane_link_{each.link}_{name}": getattr(each, name)
            for each in final.bottlenecks
            for name in ("frames", "frame_bytes", "drops")
        },
    }


def _plane_problems(final: FinalCounters) -> list[tuple[str, str]]:
    problems = []
    if final.overruns:
        problems.append(("suspect", f"data plane: hosts dropped {final.overruns} frames before it read them"))
    if final.counters.unaccounted:
        problems.append(("invalid", f"data plane: its counters miss {final.counters.unaccounted} frames"))
    return problems


def _capture_counters(counts: CaptureCounts) -> dict[str, int]:
    """Return the counters that must add up, all of the capture's time."""
    return {
        "frames_in": counts.frames_in,
        "frames_out": counts.frames_out,
        "records_written": counts.records_written,
        "records_dropped": counts.records_dropped,
    }


def _capture_problems(counts: CaptureCounts) -> list[tuple[str, str]]:
    problems = []
    if counts.records_dropped:
        total = counts.frames_in + counts.frames_out
        problems.append(("suspect", f"capture: {counts.records_dropped} of {total} records were dropped"))
    if counts.records_written + counts.records_dropped != counts.frames_in + counts.frames_out:
        problems.append(("invalid", "capture: records do not add up to the frames that the data plane counted"))
    return problems
