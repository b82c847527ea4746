"""Mininet's own dumbbell: TCP flows over one link of Mininet's, as a reference for shared bottlenecks."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mininet.link import TCLink
from mininet.net import Mininet
from mininet.node import OVSBridge
from mininet.topo import Topo

RATE_MBIT = 10.0
QUEUE_PACKETS = 41
"""50 ms of packets of 1,514 bytes at this rate."""

ACCESS_MS = 5
LASTS_S = 12
IGNORED_S = 2
"""Of each flow, while TCP finds its share."""

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


def measure(flows: int) -> dict[str, object]:
    """Let the flows run; return their rates, Jain's index of them, and round trips of the idle and the busy link."""
    network = Mininet(topo=Dumbbell(flows=flows), controller=None, autoStaticArp=True)
    network.start()
    try:
        pinger, far = network["a0"], network["b0"].IP()
        idle_ms = round_trips_ms(pinger.cmd(f"ping -c 10 -i 0.2 {far}"))
        receivers = [network[f"b{number}"].popen("iperf3", "-s", "-1") for number in range(1, flows + 1)]
        network["a0"].cmd("sleep 1")
        senders = [
            network[f"a{number}"].popen(
                "iperf3", "-J", "-c", network[f"b{number}"].IP(), "-t", str(LASTS_S), "-O", str(IGNORED_S)
            )
            for number in range(1, flows + 1)
        ]
        pinger.cmd(f"sleep {2 * IGNORED_S}")
        busy_ms = round_trips_ms(pinger.cmd(f"ping -c {5 * (LASTS_S - 2 * IGNORED_S)} -i 0.2 {far}"))
        reports = [json.loads(sender.communicate()[0]) for sender in senders]
        for receiver in receivers:
            receiver.wait()
    finally:
        network.stop()
    rates = [report["end"]["sum_received"]["bits_per_second"] / 1e6 for report in reports]
    return {
        "flows": flows,
        "rates_mbit": rates,
        "sum_mbit": sum(rates),
        "jain": sum(rates) ** 2 / (flows * sum(rate**2 for rate in rates)),
        "idle_ms": sorted(idle_ms)[len(idle_ms) // 2],
        "busy_p50_ms": sorted(busy_ms)[len(busy_ms) // 2],
        "busy_max_ms": max(busy_ms),
    }


def round_trips_ms(said: str) -> list[float]:
    return [float(found) for found in re.findall(r"time=([\d.]+) ms", said)]


@pytest.mark.parametrize("flows", [2, 4, 8])
def test_flows_share_mininets_link(flows: int) -> None:
    found = measure(flows)
    print(json.dumps(found))
    Path(os.environ["TRELLIS_RESULTS"], f"dumbbell-{flows}.json").write_text(json.dumps(found))
    assert 0.9 * RATE_MBIT < found["sum_mbit"] <= RATE_MBIT  # type: ignore[operator]
    full_ms = QUEUE_PACKETS * 1514 * 8 / RATE_MBIT / 1e3
    assert found["idle_ms"] == pytest.approx(4 * ACCESS_MS, abs=2)
    assert 0.5 * full_ms < found["busy_max_ms"] - found["idle_ms"] <= 1.05 * full_ms  # type: ignore[operator]
