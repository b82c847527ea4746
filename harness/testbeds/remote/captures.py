"""Captures of the machines' packets: started and ended over the deployment, fetched, and converted on this machine."""

import shutil
from collections.abc import Mapping, Sequence
from importlib import resources
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from harness.deployment.fleet import Deployment
from harness.deployment.script import Script
from harness.deployment.session import MachineSession
from harness.errors import DeploymentError, TestbedError
from harness.testbeds.remote.conversion import Source, convert_capture
from metrics.pcap.files import CaptureError
from metrics.rundir import ClockOffset, Placement
from metrics.rundir.files import CAPTURE_FOLDER, MACHINE_CAPTURE_FOLDER

LINK_BYTES = 20
"""The longest header that the kernel's device ``any`` puts before a packet."""

END_S = 60.0

MOST_LETTERS = 500
"""Of what a machine says about a capture that it cannot make."""

_RECORDER = resources.files(__package__).joinpath("recorder.py").read_bytes()
_ON_MACHINE = "capture.pcap"


class Report(Struct, frozen=True):
    """What a machine's recorder says at its end."""

    program: str
    dropped: Annotated[int, Meta(ge=0, le=2**53)]


def find_obstacle(placement: Sequence[Placement]) -> str:
    """Return why packets cannot be attributed to nodes; empty = they can, since each node has an IPv4 address."""
    nodes: dict[str, int] = {}
    for place in placement:
        try:
            IPv4Address(place.wan_ip)
        except ValueError:
            return f"the peers on {place.machine} listen on {place.wan_ip}, which is not an IPv4 address"
        if place.wan_ip in nodes:
            shared = f"nodes {nodes[place.wan_ip]} and {place.node} share {place.wan_ip}"
            return f"{shared}: give each peer on {place.machine} an address of its own (addresses)"
        nodes[place.wan_ip] = place.node
    return ""


def capture_filter(placement: Sequence[Placement], ports: tuple[int, int]) -> str:
    """Return the filter of tcpdump for the peers' connections.

    Args:
        placement: of all nodes.
        ports: the least and the greatest port that a peer listens on.
    """
    hosts = " or ".join(f"host {place.wan_ip}" for place in placement)
    return f"tcp portrange {ports[0]}-{ports[1]} and ({hosts})"


class MachineCaptures:
    """The recorders on all machines, and their files.

    Either all machines capture or none: with half of the packets, frames would seem to be lost.
    """

    def __init__(self, deployment: Deployment, placement: Sequence[Placement], run_dir: Path) -> None:
        self._deployment, self._placement, self._run_dir = deployment, placement, run_dir
        self._scripts: dict[str, Script] = {}
        self._reports: dict[str, Report] = {}
        self._snaplen_bytes = 0

    @property
    def dropped(self) -> int:
        """The packets that the machines' kernels dropped."""
        return sum(report.dropped for report in self._reports.values())

    def start(self, snaplen_bytes: int, ports: tuple[int, int]) -> str:
        """Start all recorders.

        Args:
            snaplen_bytes: bytes kept of each packet.
            ports: see ``capture_filter``.

        Returns:
            Why nothing is captured; empty = every machine captures.
        """
        if obstacle := find_obstacle(self._placement):
            return obstacle
        self._snaplen_bytes = snaplen_bytes
        words = _ON_MACHINE, str(snaplen_bytes + LINK_BYTES), capture_filter(self._placement, ports)

        def start_one(session: MachineSession) -> None:
            script = session.start_script(_RECORDER, *words)
            self._scripts[session.machine.name] = script
            script.read_line()

        try:
            self._deployment.each("start the capture", start_one)
        except DeploymentError as error:
            self.abandon()
            machine, text = min(error.results_by_machine.items())
            return f"{machine} cannot capture: {text[:MOST_LETTERS]}"
        return ""

    def abandon(self) -> None:
        """End the recorders and leave their files to the machines."""
        for script in self._scripts.values():
            script.close()
        self._scripts.clear()

    def lost(self) -> dict[str, str]:
        """Return the recorders that have ended."""
        return {f"the capture on {name}": "ended" for name, each in self._scripts.items() if each.has_ended}

    def stop(self) -> None:
        """End the recorders and fetch their files.

        Raises:
            DeploymentError: a recorder did not end as expected, or a file cannot be fetched.
        """
        decode = msgspec.json.Decoder(Report).decode

        def stop_one(session: MachineSession) -> Report:
            name = session.machine.name
            self._scripts[name].end_input()
            report = decode(self._scripts[name].read_line(END_S))
            budget_bytes = shutil.disk_usage(self._run_dir).free // 2 // len(self._scripts)
            session.fetch({_ON_MACHINE: _raw_file(name)}, self._run_dir, budget_bytes)
            return report

        if self._scripts:
            self._reports = self._deployment.each("end the capture", stop_one)

    def convert(self, clocks: Mapping[str, ClockOffset]) -> tuple[str, ...]:
        """Write the captures in the form of the emulated testbed's, and remove the machines' own files.

        Args:
            clocks: of the machines that have clocks of their own.

        Returns:
            The files, relative to the run directory.

        Raises:
            TestbedError: a file is no capture, or ends in the middle of a packet.
        """
        written = []
        for machine, report in sorted(self._reports.items()):
            raw, path = self._run_dir / _raw_file(machine), f"{CAPTURE_FOLDER}/{machine}.pcapng"
            hosts = {
                int(IPv4Address(place.wan_ip)): place.host for place in self._placement if place.machine == machine
            }
            ahead_ns = clocks[machine].realtime_ns if machine in clocks else 0
            (self._run_dir / path).parent.mkdir(exist_ok=True)
            source = Source(raw, hosts, ahead_ns, self._snaplen_bytes, report.dropped)
            _convert(machine, source, self._run_dir / path)
            raw.unlink()
            written.append(path)
        shutil.rmtree(self._run_dir / MACHINE_CAPTURE_FOLDER, ignore_errors=True)
        return tuple(written)


def _convert(machine: str, source: Source, path: Path) -> None:
    asked = f"read the capture of {machine}"
    try:
        unread = convert_capture(source, path)
    except CaptureError as error:
        raise TestbedError(asked, error.problem) from error
    if unread:
        raise TestbedError(asked, f"its last {unread:,} bytes are no packet")


def _raw_file(machine: str) -> str:
    return f"{MACHINE_CAPTURE_FOLDER}/{machine}.pcap"
