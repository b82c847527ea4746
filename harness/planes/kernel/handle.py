"""The handle of the kernel data plane: makes devices and queues, reads them back, captures, counts, removes them."""

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.errors import TestbedError
from harness.machine.child import Child
from harness.planes.host_capture.handle import HostCaptures
from harness.planes.kernel import counting, monitor, settings
from harness.planes.kernel.offloads import switch_off
from harness.planes.kernel.settings import port_device
from harness.planes.plane import CaptureCounts, Change, Counters, FinalCounters, Port, check_ports
from metrics.rundir.files import DATAPLANE_FILE
from peer.files import LOGS_FOLDER
from peer.runtime.clock import Clock
from topologies.network import Network

GROUP_HOSTS = 32
"""Hosts that share a capture file, and the process that writes it."""

QUIET_S = 2.0
"""How long the plane waits at the end for counters that account for every frame."""

_OWN_NETNS = "/proc/self/ns/net"


class KernelPlane:
    """The kernel plane, in the network namespace in which it is made: the kernel does the work.

    IPv6 has to be off there: new ports would send frames of their own, which no host has sent.

    ``attach`` makes the bridge, the hosts' devices and the queues, and reads all settings back. ``monitor`` is a
    process that reports the counters. A capture is a process per group of hosts. The network never changes.

    Attributes:
        complaints: one sentence per process that did not end as expected.
    """

    def __init__(
        self,
        network: Network,
        seed: int,
        folder: Path,
        metrics: tuple[str, int] | None,
        time_dilation: float,
        late_ns: int,
    ) -> None:
        """Start nothing yet: the monitor needs the hosts' devices.

        Args:
            network: what is asked of packets: constant delays and losses of pairs.
            seed: not used; netem draws losses from the kernel's random numbers.
            folder: the run directory, for ``dataplane.jsonl`` and, in ``logs``, the processes' standard error.
            metrics: address and port for Prometheus; None = not served.
            time_dilation: factor by which everything runs slower; reported times are virtual.
            late_ns: not used; the kernel does not say how late a frame is.
        """
        self._network, self._folder, self._metrics = network, folder, metrics
        self._clock = Clock(time_dilation)
        self._ports: tuple[Port, ...] = ()
        self._captures: list[HostCaptures] = []
        self._files: tuple[Path, ...] = ()
        self._monitor: Child | None = None
        self._began_s = _kernel_cpu_s()
        self.complaints: list[str] = []

    def attach(self, ports: Sequence[Port]) -> None:
        """Make every host's device, address it, bring it up, and make the queues of all pairs."""
        check_ports(ports, self._network.size)
        self._ports = tuple(ports)
        self._leaves = settings.ask_leaves(self._network, self._clock.dilation, ports[0].mtu)
        _batch(("ip",), settings.bridge_commands(ports))
        _batch(("bridge",), settings.forwarding_commands(ports))
        _batch(("tc",), settings.shaping_commands(ports, self._leaves))
        for port in ports:
            _batch(("nsenter", f"--net={port.netns}", "ip"), settings.host_commands(port, ports))
            switch_off(port.device, port.netns)
            switch_off(port_device(port.host), _OWN_NETNS)
        self.check_settings()
        served = [self._metrics[0], str(self._metrics[1])] if self._metrics else []
        words = [str(self._folder / DATAPLANE_FILE), str(self._clock.dilation), str(len(ports)), *served]
        log = self._folder / LOGS_FOLDER / "dataplane-monitor.log"
        self._monitor = Child("the data plane's monitor", monitor.__name__, words, log)

    def check_settings(self) -> None:
        """Compare the kernel's settings with what was asked for.

        Raises:
            TestbedError: a setting differs.
        """
        filters = {port.host: _show("filter", "dev", port_device(port.host)) for port in self._ports}
        if differences := settings.find_differences(self._leaves, self._ports, _show("qdisc"), filters):
            rest = f" ({len(differences)} settings differ)" if len(differences) > 1 else ""
            raise TestbedError("read the kernel's queues back", differences[0] + rest)

    def apply(self, change: Change) -> None:
        """Refuse: the network does not change."""
        raise TestbedError("change the network", "the kernel data plane does not change its network during a run")

    def start_capture(self, folder: Path, snaplen_bytes: int, epoch_offset_ns: int) -> None:
        """Record every frame at the hosts' devices, one file per group of hosts; times are virtual + the offset."""
        if self._captures:
            raise TestbedError("start a capture", "one is running")
        for first in range(0, len(self._ports), GROUP_HOSTS):
            group = self._ports[first : first + GROUP_HOSTS]
            capture = HostCaptures(
                {port.host: port.netns for port in group},
                self._folder,
                group[0].device,
                self._clock,
                str(folder / f"hosts-{first // GROUP_HOSTS:03d}.pcapng"),
                snaplen_bytes,
            )
            capture.start(snaplen_bytes, epoch_offset_ns)
            self._captures.append(capture)
        self._files = tuple(capture.path for capture in self._captures)

    def stop_capture(self) -> CaptureCounts:
        """Stop the capture; return when the files are complete on disk.

        The kernel does not say in which direction a packet went that it had no room for: it counts as received.
        """
        if not self._captures:
            raise TestbedError("stop the capture", "none is running")
        tallies = [capture.stop() for capture in self._captures]
        self._captures = []
        outbound, inbound, dropped = (
            sum(getattr(tally, name) for tally in tallies) for name in ("outbound", "inbound", "dropped")
        )
        return CaptureCounts(self._files, outbound + inbound, dropped, outbound, inbound + dropped)

    def counters(self) -> Counters:
        """Return the counters; while frames pass, those of different devices may be some frames apart."""
        leaves = counting.count_leaves(_show("qdisc", statistics=True))
        return counting.add_leaves(monitor.read(len(self._ports)), leaves)

    def cpu_s(self) -> float:
        """Return the time (s) that this machine's processors have spent in the kernel: forwarding and all else."""
        return _kernel_cpu_s() - self._began_s

    def lost(self) -> dict[str, str]:
        """Return the plane's processes that ended early -> how they ended."""
        parts = [part for part in (self._monitor, *self._captures) if part]
        return {name: how for part in parts for name, how in part.lost().items()}

    def close(self) -> FinalCounters:
        """Wait until the counters have settled, and remove the devices."""
        try:
            counters = self._settle()
            if self._monitor:
                self.complaints += self._monitor.end()
            _run(["ip", "link", "delete", settings.BRIDGE])
            _batch(("ip",), [f"link delete {device}" for device in self._devices])
        finally:
            self.kill()
        return FinalCounters(counters, lateness_ns={}, overruns=0, realtime=False)

    @property
    def _devices(self) -> list[str]:
        return [settings.SINK, *(port_device(port.host) for port in self._ports)]

    def kill(self) -> None:
        """End the processes. The devices end with their namespace."""
        for capture in self._captures:
            capture.kill()
        if self._monitor:
            self._monitor.kill()

    def _settle(self) -> Counters:
        """Return the counters when they have settled, or after ``QUIET_S``."""
        until_s = time.monotonic() + QUIET_S
        return counting.settle(self.counters, lambda: time.monotonic() >= until_s)


def _kernel_cpu_s() -> float:
    """Return the seconds that the processors have spent in the kernel, by ``/proc/stat``: system, irq and softirq."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").split(maxsplit=8)
    return sum(int(fields[column]) for column in (3, 6, 7)) / 100


def _show(what: str, *words: str, statistics: bool = False) -> list[dict[str, Any]]:
    """Return the objects that ``tc`` shows."""
    options = ["-s"] if statistics else []
    found: list[dict[str, Any]] = json.loads(_run(["tc", *options, "-j", what, "show", *words]) or "[]")
    return found


def _batch(program: Sequence[str], commands: Iterable[str]) -> None:
    """Let ``ip``, ``bridge`` or ``tc`` carry out commands, one per line of its standard input."""
    _run([*program, "-batch", "-"], "".join(f"{command}\n" for command in commands))


def _run(argv: Sequence[str], given: str = "") -> str:
    """Run a program and return its output.

    Raises:
        TestbedError: it failed.
    """
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(" ".join(argv), (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0])
    return done.stdout
