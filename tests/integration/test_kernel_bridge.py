"""The kernel plane without its delays, on any kernel: the bridge forwards, offloads are off, frames are counted."""

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from benchmarks._namespaces import held_namespaces
from harness.errors import TestbedError
from harness.machine.netns import entered
from harness.planes.host_capture.ring import PacketRing
from harness.planes.kernel import counting, settings
from harness.planes.kernel.offloads import switch_off
from harness.planes.plane import Counters, Port
from harness.testbeds.emulated.echo import PACKET_BYTES, EchoSockets
from tests.rings import read_stopped

pytestmark = pytest.mark.root

HOSTS = 3
PAIRS = [(source, destination) for source in range(HOSTS) for destination in range(HOSTS) if source != destination]


class Bridged:
    """Hosts behind a bridge in a namespace of its own."""

    def __init__(self, switch: str, hosts: Sequence[str], mtu: int = 1500) -> None:
        self.switch, self.hosts = switch, hosts
        self.ports = [Port(host, netns, f"10.0.0.{host + 1}", mtu=mtu) for host, netns in enumerate(hosts)]
        batch(switch, "ip", settings.bridge_commands(self.ports))
        batch(switch, "bridge", settings.forwarding_commands(self.ports))
        for port in self.ports:
            batch(port.netns, "ip", settings.host_commands(port, self.ports))
        for _ in range(3000):  # the kernel takes a moment to see that a device is up
            if self.forwards():
                return
            time.sleep(0.01)
        pytest.fail(f"the ports of the bridge do not forward: {run(self.switch, 'bridge', 'link')}")

    def forwards(self) -> bool:
        ports = json.loads(run(self.switch, "bridge", "-json", "link"))
        return len(ports) > HOSTS and all(port["state"] == "forwarding" for port in ports)  # with the one for the rest

    def switch_off_offloads(self) -> None:
        for port in self.ports:
            switch_off(port.device, port.netns)
            switch_off(settings.port_device(port.host), self.switch)

    def count(self) -> Counters:
        table = run(self.switch, "cat", "/proc/self/net/dev")
        return counting.count_frames(counting.read_devices(table), HOSTS)


def run(netns: str, *argv: str, given: str = "") -> str:
    done = subprocess.run(
        ["nsenter", f"--net={netns}", *argv], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def batch(netns: str, program: str, commands: Sequence[str]) -> None:
    run(netns, program, "-batch", "-", given="".join(f"{command}\n" for command in commands))


@pytest.fixture
def bridged() -> Iterator[Bridged]:
    with held_namespaces(1 + HOSTS) as (switch, *hosts):
        yield Bridged(switch, hosts)


def test_hosts_reach_each_other_and_every_frame_is_counted(bridged: Bridged) -> None:
    addresses = [port.address for port in bridged.ports]
    _, received = EchoSockets(bridged.hosts, addresses).exchange(
        PAIRS, np.arange(len(PAIRS)) * 1_000_000, 2_000_000_000
    )
    assert (received > 0).all()
    counters = bridged.count()
    frames = 2 * len(PAIRS)
    assert (counters.frames_in, counters.frames_out, counters.unaccounted) == (frames, frames, 0)
    assert counters.bytes_in == counters.bytes_out == frames * PACKET_BYTES


def test_frames_to_no_host_are_counted(bridged: Bridged) -> None:
    with inside(bridged.hosts[0]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for _ in range(3):
            sender.sendto(b"anyone", ("10.0.255.255", 9))
    counters = bridged.count()
    assert counters.drops["unknown_destination"] == counters.frames_in == 3
    assert (counters.frames_out, counters.unaccounted) == (0, 0)


def test_offloads_are_off_afterwards(bridged: Bridged) -> None:
    """TCP hands the device segments larger than a packet of the wire while offloads are on, and none afterwards."""
    first = bridged.ports[0]
    assert largest_frame(bridged.hosts, first) > first.mtu, "veth devices have offloads at first"
    bridged.switch_off_offloads()
    assert largest_frame(bridged.hosts, first) <= first.mtu


@pytest.mark.parametrize("mtu", [1280, 9000])
def test_full_packets_are_as_long_as_the_mtu(mtu: int) -> None:
    with held_namespaces(1 + HOSTS) as (switch, *hosts):
        bridged = Bridged(switch, hosts, mtu)
        bridged.switch_off_offloads()
        assert largest_frame(bridged.hosts, bridged.ports[0]) == mtu


def largest_frame(hosts: Sequence[str], port: Port) -> int:
    """Send a megabyte over TCP from the host of the port to the next one; return the largest captured packet."""
    address, number = "10.0.0.2", 5000
    with inside(hosts[1]):
        listener = socket.create_server((address, number))
    ring = PacketRing(hosts[port.host], port.device, 96)
    ring.start()
    with inside(hosts[port.host]):
        sender = socket.create_connection((address, number))
    receiver, _ = listener.accept()
    with listener, sender, receiver:
        sending = threading.Thread(target=sender.sendall, args=(bytes(1 << 20),))
        sending.start()
        left = 1 << 20
        while left:
            left -= len(receiver.recv(1 << 16))
        sending.join()
    ring.stop()
    return max(length for _, _, _, length in read_stopped(ring))


@contextmanager
def inside(netns: str) -> Iterator[None]:
    namespace = os.open(netns, os.O_RDONLY)
    try:
        with entered(namespace):
            yield
    finally:
        os.close(namespace)


def test_a_device_that_is_missing_is_refused(bridged: Bridged, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="switch off the offloads of wan9"):
        switch_off("wan9", bridged.hosts[0])
    with pytest.raises(TestbedError, match="No such file"):
        switch_off("wan0", str(tmp_path / "missing"))
