"""A second capture inside namespaces finds what the data plane does before and after its own record of a frame."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from benchmarks._namespaces import held_namespaces
from harness.errors import TestbedError
from harness.planes.host_capture.handle import HostCaptures as Process
from harness.planes.pcapng import OUTBOUND
from harness.planes.plane import FinalCounters, Port
from harness.planes.userspace.defects import HiddenDefect
from harness.planes.userspace.handle import UserspacePlane
from harness.stages import manifest
from harness.testbeds.emulated.echo import EchoSockets
from metrics.checks.host_captures import RULES
from metrics.pcap.records import RX, TX
from metrics.recorded.host_captures import HostCaptures, Seen, Tally, read_seen
from metrics.rundir.files import HOST_CAPTURE_FILE
from peer.runtime.clock import Clock
from tests.sound_evidence import NO_STALLS, SOUND
from topologies.network import uniform_network

pytestmark = pytest.mark.root

HOSTS, SAMPLED = 3, (0, 2)
PAIRS = [(a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b]
ROUNDS = 40
LATE_MS = 50.0
"""By so much that no load of this machine hides it."""

EVERY = 7
LIMIT_NS = 500_000
ALWAYS = (0, 1 << 62)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    with held_namespaces(HOSTS) as paths:
        yield paths


def address(host: int) -> str:
    return f"10.0.0.{host + 1}"


class Recorded:
    """What both captures say of some echo requests and replies over a data plane with a defect."""

    def __init__(self, namespaces: list[str], folder: Path, defect: HiddenDefect | None, dilation: float = 1.0) -> None:
        plane = UserspacePlane(uniform_network(HOSTS, 5.0), 1, folder, time_dilation=dilation, defect=defect)
        second = Process({host: namespaces[host] for host in SAMPLED}, folder, clock=Clock(dilation))
        try:
            plane.attach([Port(host, netns, address(host)) for host, netns in enumerate(namespaces)])
            offset_ns = manifest.epoch_offset_ns()
            second.start(96, offset_ns)
            plane.start_capture(folder / "capture", 96, offset_ns)
            echo = EchoSockets(namespaces, [address(host) for host in range(HOSTS)])
            due_ns = np.arange(ROUNDS * len(PAIRS)) * 1_000_000
            echo.exchange(PAIRS * ROUNDS, due_ns, 500_000_000)
            files = plane.stop_capture().files
            assert second.lost() == {}
            second.stop()
            self.final: FinalCounters = plane.close()
        finally:
            plane.kill()
        self.kernel = [self._read((folder / HOST_CAPTURE_FILE,), host, offset_ns) for host in SAMPLED]
        self.plane = [self._read(files, host, offset_ns) for host in SAMPLED]

    def compare(self, limit_ns: int = LIMIT_NS) -> HostCaptures:
        tally = Tally(ALWAYS, limit_ns, NO_STALLS)
        for number, host, plane in zip(SAMPLED, self.kernel, self.plane, strict=True):
            tally.add(number, host, plane)
        return tally.result(len(SAMPLED))

    @staticmethod
    def _read(files: tuple[Path, ...], host: int, offset_ns: int) -> Seen:
        seen = read_seen(files, host, offset_ns)
        assert seen is not None
        return seen


Record = Callable[[HiddenDefect | None], Recorded]


@pytest.fixture
def record(namespaces: list[str], tmp_path: Path) -> Record:
    return lambda defect: Recorded(namespaces, tmp_path, defect)


def failures(found: HostCaptures) -> set[str]:
    """The checks of the captures in hosts that fail."""
    evidence = structs.replace(SOUND, host_captures=found)
    checks = [rule.check(evidence) for rule in RULES]
    assert len(checks) == 3
    return {check.name for check in checks if check.failed}


def test_the_captures_of_a_sound_data_plane_are_the_same(record: Record) -> None:
    recorded = record(None)
    found = recorded.compare(limit_ns=100_000_000)
    each_way = ROUNDS * 8  # requests and replies, each at both of its hosts that are sampled
    assert (len(found.counts), found.total("pairs"), found.total("unmatched")) == (2, 2 * each_way, 0)
    assert found.outbound.samples == found.inbound.samples == each_way
    assert found.total("kernel_dropped") == found.total("plane_dropped") == 0
    assert failures(found) == set()
    assert recorded.compare(limit_ns=20_000).outbound.reversed == 0, "a frame was read before it was sent"


def test_both_captures_have_virtual_instants(namespaces: list[str], tmp_path: Path) -> None:
    """Else they would be apart by more than half of the time for which the machine has been up."""
    found = Recorded(namespaces, tmp_path, None, dilation=4.0).compare()
    assert found.total("unmatched") == 0
    assert max(found.outbound.p50_ms, found.inbound.p50_ms) < 1000


def test_a_delay_before_the_record_of_a_read_is_found(record: Record) -> None:
    recorded = record(HiddenDefect("read", late_ms=LATE_MS))
    found = recorded.compare()
    assert failures(found) == {"host_capture_outbound"}
    assert found.outbound.late.samples == found.outbound.samples
    assert LATE_MS <= found.outbound.p50_ms <= found.outbound.p99_ms
    assert recorded.final.lateness_ns["p50"] < LATE_MS * 1e6, "the data plane's own record shows it"


def test_a_delay_after_the_record_of_a_write_is_found(record: Record) -> None:
    recorded = record(HiddenDefect("write", late_ms=LATE_MS))
    found = recorded.compare()
    assert failures(found) - {"host_capture_outbound"} == {"host_capture_inbound"}
    assert found.inbound.late.samples == found.inbound.samples
    assert found.inbound.p50_ms >= LATE_MS
    assert recorded.final.lateness_ns["p50"] < LATE_MS * 1e6, "the data plane's own record shows it"


def test_frames_that_vanish_before_they_are_recorded_are_found(record: Record) -> None:
    recorded = record(HiddenDefect("read", drop_every=EVERY))
    found = recorded.compare()
    sent = [int((seen.tap == TX).sum()) for seen in recorded.kernel]
    assert found.total("unread") == found.total("unmatched") == sum(frames // EVERY for frames in sent) > 0
    assert "host_capture_packets" in failures(found)
    assert recorded.final.counters.unaccounted == sum(recorded.final.counters.drops.values()) == 0


def test_frames_that_vanish_after_they_are_recorded_are_found(record: Record) -> None:
    recorded = record(HiddenDefect("write", drop_every=EVERY))
    found = recorded.compare()
    written = [int((seen.tap == RX).sum()) for seen in recorded.plane]
    assert found.total("undelivered") == found.total("unmatched") == sum(frames // EVERY for frames in written) > 0
    assert "host_capture_packets" in failures(found)
    assert recorded.final.counters.unaccounted == sum(recorded.final.counters.drops.values()) == 0


def test_the_file_is_a_capture_that_others_read(record: Record, tmp_path: Path) -> None:
    recorded = record(None)
    fields = ["frame.interface_name", "frame.packet_flags_direction", "ip.src", "frame.len"]
    words = [part for name in fields for part in ("-e", name)]
    command = ["tshark", "-n", "-r", str(tmp_path / HOST_CAPTURE_FILE), "-T", "fields", *words]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in said.splitlines()]
    assert len(rows) == sum(map(len, recorded.kernel))
    assert {name for name, *_ in rows} == {str(host) for host in SAMPLED}
    for name, direction, source, length in rows:
        assert (int(direction, 0) == OUTBOUND, length) == (source == address(int(name)), "84")


def test_a_host_without_the_device_is_an_error(namespaces: list[str], tmp_path: Path) -> None:
    second = Process({1: namespaces[1]}, tmp_path)
    with pytest.raises(
        TestbedError, match=r"start the capture in hosts: capture the packets of wan0 in .*: No such dev"
    ):
        second.start(96, 0)
    assert second.lost() == {}
    second.stop()


def test_a_namespace_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"start the capture in hosts: .*No such file"):
        Process({1: "/proc/self/ns/none"}, tmp_path).start(96, 0)


def test_a_process_that_ends_early_is_named(tmp_path: Path) -> None:
    with held_namespaces(1) as [netns]:
        second = Process({0: netns}, tmp_path, device="lo")
        second.start(96, manifest.epoch_offset_ns())
        assert second.pid is not None
        os.kill(second.pid, signal.SIGKILL)
        os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
        [(name, how)] = second.lost().items()
        assert (name, how.partition(";")[0]) == ("the capture in hosts", "ended by SIGKILL")
        with pytest.raises(TestbedError, match="the capture in hosts ended by SIGKILL"):
            second.stop()
        assert second.lost() == {}


def test_no_sampled_hosts_need_no_process(tmp_path: Path) -> None:
    second = Process({}, tmp_path)
    second.start(96, 0)
    second.stop()
    assert list(tmp_path.iterdir()) == []
