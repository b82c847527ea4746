"""Mininet's own dumbbell: TCP flows over one link of Mininet's, as a reference for links that several flows share.

``TRELLIS_DUMBBELL_S`` is how long flows are counted. After the seconds of a test, their parts say little.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mininet.link import TCLink
from mininet.net import Mininet
from mininet.node import OVSBridge
from mininet.topo import Topo

from benchmarks._flows import LISTENS, SERVER, client, describe_queueing, describe_shares, read_rates
from harness.planes.kernel.offloads import switch_off

RATE_MBIT = 10.0
PACKET_BYTES = 1514
QUEUE_PACKETS = 41
"""50 ms of packets of full size at this rate."""

FULL_MS = QUEUE_PACKETS * PACKET_BYTES * 8 / RATE_MBIT / 1e3
GOODPUT_MBIT = RATE_MBIT * 1448 / PACKET_BYTES
"""TCP's payload in packets of full size."""

ACCESS_MS = 5
COUNTED_S = int(os.environ.get("TRELLIS_DUMBBELL_S", "20"))
IGNORED_S = 6
"""The beginning of each flow, in which TCP looks for its part."""

OVS = "/usr/share/openvswitch/scripts/ovs-ctl"


class Dumbbell(Topo):  # type: ignore[misc]
    """Senders at one switch, receivers at the other, and one pair that measures round trips."""

    def build(self, flows: int) -> None:
        left, right = (self.addSwitch(name, cls=OVSBridge) for name in ("s1", "s2"))
        self.addLink(left, right, cls=TCLink, bw=RATE_MBIT, max_queue_size=QUEUE_PACKETS)
        for number in range(flows + 1):
            for side, switch in (("a", left), ("b", right)):
                host = self.addHost(f"{side}{number}")
                self.addLink(host, switch, cls=TCLink, delay=f"{ACCESS_MS}ms")


@pytest.fixture(scope="module", autouse=True)
def switches() -> Iterator[None]:
    subprocess.run([OVS, "start", "--system-id=guest", "--no-monitor"], check=True, stdout=subprocess.DEVNULL)
    yield
    subprocess.run([OVS, "stop"], check=True, stdout=subprocess.DEVNULL)


def measure(flows: int, offloads: bool) -> dict[str, float]:
    """Let the flows run; return their shares, and round trips of the idle and the busy link."""
    network = Mininet(topo=Dumbbell(flows=flows), controller=None, autoStaticArp=True)
    network.start()
    try:
        if not offloads:
            _switch_offloads_off(network)
        pinger, far = network["a0"], network["b0"].IP()
        idle_ms = round_trips_ms(pinger.cmd(f"ping -c 10 -i 0.2 {far}"))
        receivers = [network[f"b{number}"].popen(*SERVER) for number in numbers(flows)]
        for receiver in receivers:
            assert any(LISTENS in line.decode() for line in receiver.stdout)
        senders = [_start_flow(network, number) for number in numbers(flows)]
        pinger.cmd(f"sleep {IGNORED_S}")
        busy_ms = round_trips_ms(pinger.cmd(f"ping -c {5 * (COUNTED_S - 2)} -i 0.2 {far}"))
        for sender in senders:
            sender.communicate()
        rates_mbit = np.array([read_rates(receiver.communicate()[0].decode(), COUNTED_S) for receiver in receivers])
    finally:
        network.stop()
    return {
        "flows": flows,
        "offloads": offloads,
        **describe_shares(rates_mbit),
        "idle_ms": float(np.median(idle_ms)),
        **describe_queueing(busy_ms, float(np.median(idle_ms)), FULL_MS),
    }


def _start_flow(network: Mininet, number: int) -> "subprocess.Popen[bytes]":
    words = client(network[f"b{number}"].IP(), COUNTED_S, IGNORED_S)
    flow: subprocess.Popen[bytes] = network[f"a{number}"].popen(*words)
    return flow


def _switch_offloads_off(network: Mininet) -> None:
    for node in (*network.hosts, *network.switches):
        for device in node.intfNames():
            if device != "lo":
                switch_off(device, f"/proc/{node.pid}/ns/net")


def numbers(flows: int) -> range:
    """The pairs of hosts with a flow; pair 0 measures round trips."""
    return range(1, flows + 1)


def round_trips_ms(said: str) -> list[float]:
    return [float(found) for found in re.findall(r"time=([\d.]+) ms", said)]


@pytest.mark.parametrize("offloads", [False, True])
@pytest.mark.parametrize("flows", [2, 4, 8])
def test_flows_share_mininets_link(flows: int, offloads: bool) -> None:
    found = measure(flows, offloads)
    print(json.dumps(found))
    name = f"dumbbell-{flows}{'-offloads' if offloads else ''}.json"
    Path(os.environ["TRELLIS_RESULTS"], name).write_text(json.dumps(found))
    assert found["sum_mbit"] == pytest.approx(GOODPUT_MBIT, rel=0.05)
    assert 1 / flows < found["jain"] <= 1
    assert found["idle_ms"] == pytest.approx(4 * ACCESS_MS, abs=1)
    if not offloads:  # with them, one packet of the queue may hold as many bytes as dozens on the wire
        assert found["queueing_error"] < 0.05
