"""The userspace data plane between real network namespaces: what pings, datagrams and captures see of it."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks._namespaces import held_namespaces
from harness.errors import TestbedError
from harness.machine.awake import kept_awake
from harness.machine.netns import entered
from harness.planes.plane import PairChange, PairsChange, Port
from harness.planes.userspace.defects import Defect, UnaskedCopies
from harness.planes.userspace.handle import UserspacePlane
from harness.planes.userspace.process import TICK_NS
from harness.testbeds.emulated.echo import EchoSockets
from metrics.checks import check_run
from metrics.checks.evidence import Transits
from metrics.pcap.tables import Reading, read_tables
from metrics.recorded.stalls import read_stalls
from metrics.rundir import FAILED, INVALID, PASSED, Check
from peer.wire import MSS_BYTES, MTU_BYTES
from tests.property.test_transits import Analysis, Wire
from tests.sound_evidence import SOUND, change
from topologies.bottlenecks import NO_BOTTLENECKS, Bottlenecks
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.network import AskedOfPairs, Network
from topologies.timeline import Change

pytestmark = pytest.mark.root

HOSTS = 3
SEED = 7
NUMBERED = 500
LONG_NS = 10_000_000_000
"""Longer than any packet of these tests is under way, and than a check waits after a change."""
DELAY_MS = np.array([[0.0, 10.0, 25.0], [15.0, 0.0, 5.0], [35.0, 20.0, 0.0]])
PAIRS = [(a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b]
ASKED_RTT_MS = np.array([DELAY_MS[a, b] + DELAY_MS[b, a] for a, b in PAIRS])
SO_RCVBUFFORCE = 33
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
IP_UDP_BYTES = 20 + 8


def network(
    rate_mbit: float = 0.0, queue_ms: float = 0.0, bottlenecks: Bottlenecks = NO_BOTTLENECKS, **matrices: np.ndarray
) -> Network:
    nothing = np.zeros((HOSTS, HOSTS))
    asked = AskedOfPairs(**{"delay_ms": DELAY_MS, "jitter_ms": nothing, "loss_ratio": nothing, **matrices})
    access = {"rate_mbit": [rate_mbit] * 2 * HOSTS, "queue_ms": [queue_ms] * 2 * HOSTS}
    return Network.of_pairs(asked, **access, bottlenecks=bottlenecks)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    with held_namespaces(HOSTS) as paths:
        yield paths


def address(host: int) -> str:
    return f"10.0.0.{host + 1}"


def ports(namespaces: list[str]) -> list[Port]:
    return [Port(host, netns, address(host)) for host, netns in enumerate(namespaces)]


Attach = Callable[..., UserspacePlane]


@pytest.fixture
def attach(namespaces: list[str], tmp_path: Path) -> Iterator[Attach]:
    planes = []

    def attach(
        metrics: tuple[str, int] | None = None, mtu: int = 1500, defect: Defect | None = None, **changes: Any
    ) -> UserspacePlane:
        plane = UserspacePlane(network(**changes), SEED, tmp_path, metrics, defect=defect)
        planes.append(plane)
        plane.attach([msgspec.structs.replace(port, mtu=mtu) for port in ports(namespaces)])
        return plane

    yield attach
    for plane in planes:
        plane.kill()


def ping(namespaces: list[str], rounds: int, pairs: list[tuple[int, int]] = PAIRS) -> np.ndarray:
    """RTT in ms, (rounds, pairs); NaN = no reply. A pair's requests are 100 ms apart."""
    echo = EchoSockets(namespaces, [address(host) for host in range(HOSTS)])
    due_ns = np.arange(rounds * len(pairs)) * (100_000_000 // len(pairs))
    sent, received = echo.exchange(pairs * rounds, due_ns, 300_000_000)
    return np.where(received > 0, (received - sent) / 1e6, np.nan).reshape(rounds, len(pairs))


@dataclass
class Datagrams:
    """UDP between two hosts; ``socket`` calls are made inside their namespaces."""

    source: socket.socket
    destination: socket.socket

    def send(self, count: int, size: int) -> None:
        for _ in range(count):
            self.source.send(bytes(size))

    def take(self) -> list[bytes]:
        """Take what has arrived."""
        found = []
        with suppress(BlockingIOError):
            while True:
                found.append(self.destination.recv(2000))
        return found

    def receive(self) -> int:
        """Take what has arrived, and return how many datagrams that is."""
        return len(self.take())


@contextmanager
def inside(netns: str) -> Iterator[None]:
    descriptor = os.open(netns, os.O_RDONLY)
    try:
        with entered(descriptor):
            yield
    finally:
        os.close(descriptor)


@pytest.fixture
def datagrams(namespaces: list[str]) -> Iterator[Callable[[], Datagrams]]:
    opened: list[socket.socket] = []

    def open_in(host: int) -> socket.socket:
        with inside(namespaces[host]):
            opened.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
        return opened[-1]

    def connect() -> Datagrams:
        pair = Datagrams(open_in(0), open_in(1))
        pair.destination.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        pair.destination.bind((address(1), 9))
        pair.source.connect((address(1), 9))
        return pair

    yield connect
    for each in opened:
        each.close()


def settle(plane: UserspacePlane, frames_in: int) -> None:
    """Until that many frames were read and none is in flight."""
    deadline = time.monotonic() + 300
    while True:
        counters = plane.counters()
        assert counters.unaccounted == 0
        if counters.frames_in >= frames_in and not counters.in_flight:
            return
        assert time.monotonic() < deadline, counters


def test_rtt_is_the_sum_of_both_directions(namespaces: list[str], attach: Attach) -> None:
    """A machine that stands still for a moment delays frames, so the plane has 30 attempts; not one may be early."""
    plane = attach()
    exchanged = 0
    median_ms, first_ms, least_ms = np.inf, np.inf, np.full(len(PAIRS), np.inf)
    with kept_awake():
        for _ in range(30):
            rtt_ms = ping(namespaces, rounds=8)
            exchanged += rtt_ms.size
            error_ms = rtt_ms - ASKED_RTT_MS
            assert (error_ms >= 0).all()
            median_ms = min(median_ms, np.median(error_ms))
            first_ms = min(first_ms, np.median(rtt_ms[0] - np.median(rtt_ms[1:], axis=0)))
            least_ms = np.minimum(least_ms, error_ms[1:].min(axis=0))
            if median_ms <= 0.5 and first_ms <= 1.0 and least_ms.max() <= 0.5:
                break
    assert median_ms <= 0.5
    assert first_ms <= 1.0
    assert least_ms.max() <= 0.5
    final = plane.close()
    assert final.counters.frames_in == final.counters.frames_out == 2 * exchanged
    assert final.overruns == 0


def test_changes_of_pairs_take_effect(namespaces: list[str], attach: Attach) -> None:
    plane = attach()
    plane.apply(PairChange(0, 1, delay_ms=40, jitter_ms=0, loss_ratio=0))
    assert 55 <= np.min(ping(namespaces, 30, [(0, 1)])) <= 57
    nothing = np.zeros((HOSTS, HOSTS))
    plane.apply(PairsChange(network(delay_ms=nothing + 1)))
    assert (ping(namespaces, 30).min(axis=0) <= 3).all()


def test_every_lost_datagram_is_counted(attach: Attach, datagrams: Callable[[], Datagrams]) -> None:
    plane = attach(loss_ratio=np.full((HOSTS, HOSTS), 0.1))
    flow = datagrams()
    flow.send(2000, 100)
    settle(plane, 2000)
    lost = plane.counters().drops["loss"]
    assert flow.receive() == 2000 - lost
    assert 130 < lost < 270


def pass_a_hundred(plane: UserspacePlane, flow: Datagrams, delay_s: float) -> int:
    """Send 100 frames at once through a queue of 20 ms at 8 Mbit/s, and return how many passed."""
    began_s = time.monotonic()
    flow.send(100, 972)
    settle(plane, 100)
    took_s = time.monotonic() - began_s
    received = flow.receive()
    assert plane.counters().drops["queue"] == 100 - received
    assert 21 <= received <= 21 + took_s * 1000
    assert took_s >= delay_s + 0.001 * received
    return received


def test_access_link_limits_the_rate_and_drops_the_rest(attach: Attach, datagrams: Callable[[], Datagrams]) -> None:
    """100 frames of 1000 bytes at once into 8 Mbit/s: a millisecond each, one in service and room for 20."""
    plane = attach(rate_mbit=8.0, queue_ms=20.0)
    pass_a_hundred(plane, datagrams(), 0.010)


def test_a_bottleneck_limits_the_rate_of_its_paths_and_drops_the_rest(
    attach: Attach, datagrams: Callable[[], Datagrams]
) -> None:
    """As the access link above, but on the path to host 1 only, and it stays when all pairs get other delays."""
    links = (GraphLink(0, 1, 10.0, rate_mbit=8.0, queue_ms=20.0), GraphLink(1, 0, 5.0))
    graph = LinkGraph((Router("a"), Router("b")), links)
    plane = attach(bottlenecks=Bottlenecks(graph, (0, 1, 0)))
    plane.apply(PairsChange(network(delay_ms=np.full((HOSTS, HOSTS), 3.0))))
    received = pass_a_hundred(plane, datagrams(), 0.003)
    [found] = plane.close().bottlenecks
    assert (found.link, found.frames, found.frame_bytes, found.drops) == (0, received, 1000 * received, 100 - received)


def captured(
    plane: UserspacePlane, flow: Datagrams, folder: Path, zero_ns: int
) -> tuple[Counter[int], list[int], Wire]:
    """Send numbered datagrams; return how often each arrived, in which order the first copies did, and the packets."""
    plane.start_capture(folder / "capture", 64, 0)
    for number in range(NUMBERED):
        flow.source.send(number.to_bytes(4, "big"))
        time.sleep(0.001)
    settle(plane, NUMBERED)
    arrived = [int.from_bytes(data, "big") for data in flow.take()]
    wire = Wire(delay_ms=float(DELAY_MS[0, 1]), seed=SEED)
    for _, rows in read_tables(plane.stop_capture().files[0], Reading(("crossings",), epoch_offset_ns=zero_ns)):
        wire.crossings += [
            (row["ts_ns"], 0, 1, row["is_tx"], row["identity"], row["wire_bytes"]) for row in rows.to_pylist()
        ]
    return Counter(arrived), list(dict.fromkeys(arrived)), wire


def packets_arrive(transits: Transits | None) -> Check:
    assert transits is not None
    [found] = [each for each in check_run(change(SOUND, transits=transits)) if each.name == "packets_arrive"]
    return found


def test_a_fault_lets_datagrams_arrive_twice_and_out_of_order_and_the_checks_say_so(
    attach: Attach, datagrams: Callable[[], Datagrams], tmp_path: Path
) -> None:
    """No delay is judged here, but that no packet came before it was due: the machine may be slow."""
    asked = Change(-LONG_NS, 0, sources=(0,), destinations=(1,), duplicate_ratio=0.1, reorder_ratio=0.2, reorder_ms=30)
    plane, zero_ns = attach(), time.monotonic_ns() - LONG_NS
    plane.schedule([asked], zero_ns)
    plane.counters()  # the plane has applied what was due when it answers
    copies, order, wire = captured(plane, datagrams(), tmp_path, zero_ns)
    doubled = plane.counters().frames_doubled
    assert set(copies) == set(range(NUMBERED)) and copies.total() == NUMBERED + doubled
    assert set(copies.values()) == {1, 2} and abs(doubled - 0.1 * NUMBERED) < 5 * (0.09 * NUMBERED) ** 0.5
    assert order != sorted(order)
    with Analysis(wire, changes=[asked]) as analysis:
        found = analysis.weigh().degraded
        [packets] = [rows for rows in analysis.rows(degraded=True) if rows.left.any()]
        assert packets.deviation_ms[packets.timed].min() >= 0
        assert abs(packets.overtaken.sum() - 0.2 * copies.total()) < 10 * (0.16 * NUMBERED) ** 0.5
    assert (packets_arrive(found).outcome, packets_arrive(found).tested) == (PASSED, copies.total())
    with Analysis(wire) as analysis:
        unasked = analysis.weigh()
    assert (unasked.invented, packets_arrive(unasked).outcome) == (doubled, FAILED)


def test_datagrams_that_arrive_twice_although_nobody_asked_are_found(
    attach: Attach, datagrams: Callable[[], Datagrams], tmp_path: Path
) -> None:
    plane, zero_ns = attach(defect=UnaskedCopies(50)), time.monotonic_ns() - LONG_NS
    copies, _, wire = captured(plane, datagrams(), tmp_path, zero_ns)
    with Analysis(wire) as analysis:
        found = analysis.weigh()
    assert found.invented == copies.total() - NUMBERED == NUMBERED // 50
    assert (packets_arrive(found).outcome, packets_arrive(found).severity) == (FAILED, INVALID)


@pytest.mark.parametrize("mtu", [576, 9000])
def test_packets_are_as_long_as_the_mtu_and_no_longer(
    mtu: int, namespaces: list[str], attach: Attach, datagrams: Callable[[], Datagrams]
) -> None:
    plane = attach(mtu=mtu)
    flow = datagrams()
    flow.source.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    with pytest.raises(OSError, match="Message too long"):
        flow.send(1, mtu - IP_UDP_BYTES + 1)
    flow.send(1, mtu - IP_UDP_BYTES)
    settle(plane, 1)
    assert (flow.receive(), plane.counters().bytes_out) == (1, mtu)
    with inside(namespaces[1]):
        listener = socket.create_server((address(1), 5000))
    with inside(namespaces[0]):
        sender = socket.create_connection((address(1), 5000))
    with listener, sender:
        assert sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) == MSS_BYTES + mtu - MTU_BYTES


def test_capture_holds_every_frame_twice(namespaces: list[str], attach: Attach, tmp_path: Path) -> None:
    plane = attach()
    ping(namespaces, 1)
    offset_ns = time.time_ns() - time.monotonic_ns()
    plane.start_capture(tmp_path / "capture", 64, offset_ns)
    rounds = 30
    ping(namespaces, rounds)
    capture = plane.stop_capture()
    ping(namespaces, 1)
    frames = rounds * len(PAIRS) * 2
    assert (capture.frames_in, capture.frames_out) == (frames, frames)
    assert (capture.records_written, capture.records_dropped) == (2 * frames, 0)
    packets = tshark(capture.files[0])
    assert len(packets) == 2 * frames
    for source, destination in PAIRS:
        flow = [packet for packet in packets if packet[2:] == (address(source), address(destination))]
        tx_s, rx_s = ([stamp for stamp, port, *_ in flow if port == host] for host in (source, destination))
        wire_ms = (np.array(rx_s) - tx_s) * 1000
        assert len(wire_ms) == 2 * rounds
        assert (wire_ms >= DELAY_MS[source, destination] - 0.002).all()
        assert np.min(wire_ms) <= DELAY_MS[source, destination] + 0.5
    assert abs(packets[0][0] - time.time()) < 60


def tshark(path: Path) -> list[tuple[float, int, str, str]]:
    """Time, interface name, source and destination of every packet, as tshark reads them."""
    fields = ["frame.time_epoch", "frame.interface_name", "ip.src", "ip.dst"]
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", *(part for name in fields for part in ("-e", name))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    return [(float(stamp), int(name), source, destination) for stamp, name, source, destination in rows]


def test_a_stopped_plane_shows_in_the_lateness(namespaces: list[str], attach: Attach, tmp_path: Path) -> None:
    plane = attach()
    ping(namespaces, 1)
    os.kill(plane.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, plane.pid, os.WSTOPPED | os.WNOWAIT)
    stopped_s = time.monotonic()
    signal.sigtimedwait([], 1.0)
    stood_ns = int((time.monotonic() - stopped_s) * 1e9) - TICK_NS
    os.kill(plane.pid, signal.SIGCONT)
    plane.counters()
    assert plane.close().lateness_ns["max"] >= stood_ns
    lines = [json.loads(line) for line in (tmp_path / "dataplane.jsonl").read_text().splitlines()]
    assert max(line["lateness_ns"]["max"] for line in lines) >= stood_ns
    assert np.diff(read_stalls(tmp_path).plane).max() >= stood_ns


def test_every_frame_that_waited_for_a_stopped_plane_is_counted(
    attach: Attach, datagrams: Callable[[], Datagrams], tmp_path: Path
) -> None:
    plane = attach()
    sockets = datagrams()
    os.kill(plane.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, plane.pid, os.WSTOPPED | os.WNOWAIT)
    sockets.send(40, 100)
    sent_s = time.monotonic()
    signal.sigtimedwait([], 0.2)
    stood_ns = int((time.monotonic() - sent_s) * 1e9)  # before the signal: the plane may run before this process does
    os.kill(plane.pid, signal.SIGCONT)
    settle(plane, 40)
    plane.close()
    lines = [json.loads(line) for line in (tmp_path / "dataplane.jsonl").read_text().splitlines()]
    counts = [pair for line in lines for pair in line["intake_counts"]]
    assert sum(frames for _, frames in counts) == lines[-1]["frames_in"]
    assert sum(frames for bound_ns, frames in counts if bound_ns >= stood_ns) >= 40
    waits = [burst for line in lines for burst in line["waits"]]
    assert sum(frames for empty_ns, read_ns, frames in waits if read_ns - empty_ns >= stood_ns) >= 40
    assert sum(frames for *_, frames in waits) == lines[-1]["frames_waited"]
    assert sum(frames for *_, frames in (burst for line in lines for burst in line["late"])) == lines[-1]["frames_late"]


def test_serves_metrics_and_logs_lines(namespaces: list[str], attach: Attach, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()
    plane = attach(metrics=free)
    ping(namespaces, 1)
    assert "trellis_dataplane_frames_total" in scrape(free)
    counters = plane.close().counters
    last = json.loads((tmp_path / "dataplane.jsonl").read_text().splitlines()[-1])
    assert (last["frames_in"], last["frames_out"]) == (counters.frames_in, counters.frames_out) == (12, 12)


def scrape(place: tuple[str, int]) -> str:
    """What the reporter serves, once it listens."""
    deadline = time.monotonic() + 300
    while True:
        try:
            with urllib.request.urlopen(f"http://{place[0]}:{place[1]}/metrics") as response:
                return response.read().decode()
        except urllib.error.URLError:
            assert time.monotonic() < deadline


def test_a_dead_plane_is_an_error(attach: Attach) -> None:
    plane = attach()
    os.kill(plane.pid, signal.SIGKILL)
    with pytest.raises(TestbedError, match="the forwarding process has ended"):
        plane.counters()


def test_a_dead_namespace_is_refused(attach: Attach, namespaces: list[str], tmp_path: Path) -> None:
    plane = UserspacePlane(network(), 1, tmp_path)
    try:
        gone = [msgspec.structs.replace(port, netns="/proc/self/ns/none") for port in ports(namespaces)]
        with pytest.raises(TestbedError, match="make wan0 for host 0: /proc/self/ns/none: No such file"):
            plane.attach(gone)
    finally:
        plane.kill()
