"""TCP flows that share a link of a graph: how evenly, and how long its queue is.

A dumbbell: hosts at two routers, joined by a link with a rate, a drop-tail queue and a delay, on the userspace data
plane. Flows of iperf3 go from left to right, each from a host of its own; a further pair of hosts sends an echo request
every 0.2 s. Flows begin together and run for ``--seconds`` after a beginning that is not counted.

* ``used_ratio``: what the flows carry together, over what the rate has room for in packets of full size.
* ``worst_part_error``: how far the flow that is farthest from an equal part is from it, over that part.
* ``jain``: Jain's index of the flows' rates (R. Jain et al., A quantitative measure of fairness and discrimination for
  resource allocation in shared computer systems, DEC TR-301, 1984).
* ``queueing_ms``: the largest round trip beyond that of the idle network; the queue's length is ``QUEUE_MS``.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from _namespaces import held_namespaces, inside, listen

from harness.machine import sandbox
from harness.machine.awake import kept_awake
from harness.planes.plane import Port
from harness.planes.userspace.handle import UserspacePlane
from harness.testbeds.emulated.echo import EchoSockets
from topologies.bottlenecks import Bottlenecks
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.network import AskedOfPairs, Network

RATE_MBIT = 10.0
QUEUE_MS = 50.0
DELAY_MS = 10.0
FLOWS = (2, 4, 8)
SECONDS = 60
IGNORED_S = 5
PACKET_BYTES, PAYLOAD_BYTES = 1500, 1448
ECHO_STEP_NS = 200_000_000
TARGETS = {
    "worst_part_error": "target: at most 0.05",
    "queueing_error": "target: at most 0.05",
}


def main(argv: list[str] | None = None) -> int:
    """Measure inside a sandbox and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--seconds", type=int, default=SECONDS, help="how long flows are counted (default: %(default)s)"
    )
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control (default: %(default)s)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if shutil.which("iperf3") is None:
        print("dumbbell: not installed: iperf3 (apt-get install iperf3)", file=sys.stderr)
        return 2
    if not given.inside:
        options = [
            f"--seconds={given.seconds}",
            f"--congestion={given.congestion}",
            *(["--json"] if given.json else []),
        ]
        return sandbox.run([sys.executable, "-P", __file__, "--inside", *options])
    with kept_awake():
        found = [measure(flows, given.seconds, given.congestion) for flows in FLOWS]
    print(json.dumps(found) if given.json else _table(found))
    return 0


def _table(found: list[dict[str, float]]) -> str:
    rows = [f"{name:>20}" + "".join(f"{each[name]:12.4g}" for each in found) for name in found[0]]
    return "\n".join(f"{row}  {TARGETS.get(row.split()[0], '')}" for row in rows)


def measure(flows: int, seconds: int, congestion: str) -> dict[str, float]:
    """Let so many flows share the link for some seconds. See the module for the results."""
    pairs = flows + 1
    addresses = [f"10.0.0.{host + 1}" for host in range(2 * pairs)]
    with held_namespaces(2 * pairs) as netns:
        plane = UserspacePlane(make_network(pairs), 1, Path(tempfile.mkdtemp()))
        try:
            plane.attach([Port(host, netns[host], address) for host, address in enumerate(addresses)])
            echoes = EchoSockets([netns[0], netns[pairs]], [addresses[0], addresses[pairs]])
            idle_ms = float(np.nanmedian(_round_trips_ms(echoes, 10)))
            servers = [listen(netns[pairs + number]) for number in range(1, pairs)]
            senders = [
                _send(netns[number], addresses[pairs + number], seconds, congestion) for number in range(1, pairs)
            ]
            time.sleep(IGNORED_S)
            busy_ms = _round_trips_ms(echoes, seconds * 1_000_000_000 // ECHO_STEP_NS)
            rates_mbit = np.array([_rate_mbit(sender) for sender in senders])
            for server in servers:
                server.communicate()
            drops = plane.counters().drops["queue"]
        finally:
            plane.kill()
    part_mbit = rates_mbit.mean()
    queueing_ms = float(np.nanmax(busy_ms)) - idle_ms
    return {
        "flows": flows,
        "used_ratio": float(rates_mbit.sum()) / (RATE_MBIT * PAYLOAD_BYTES / PACKET_BYTES),
        "worst_part_error": float(np.abs(rates_mbit - part_mbit).max() / part_mbit),
        "jain": float(rates_mbit.sum() ** 2 / (flows * (rates_mbit**2).sum())),
        "queueing_p50_ms": float(np.nanmedian(busy_ms)) - idle_ms,
        "queueing_ms": queueing_ms,
        "queueing_error": abs(queueing_ms - QUEUE_MS) / QUEUE_MS,
        "echoes_lost": float(np.isnan(busy_ms).mean()),
        "drops": drops,
    }


def make_network(pairs: int) -> Network:
    """Return the network of hosts 0..pairs-1 at the left router and as many at the right one."""
    sides = np.repeat((0, 1), pairs)
    delay_ms = np.where(sides[:, None] != sides[None, :], DELAY_MS, 0.0)
    links = tuple(GraphLink(*ends, DELAY_MS, rate_mbit=RATE_MBIT, queue_ms=QUEUE_MS) for ends in ((0, 1), (1, 0)))
    graph = LinkGraph((Router("left"), Router("right")), links)
    nothing = np.zeros_like(delay_ms)
    return Network.of_pairs(AskedOfPairs(delay_ms, nothing, nothing), bottlenecks=Bottlenecks(graph, sides.tolist()))


def _round_trips_ms(echoes: EchoSockets, count: int) -> npt.NDArray[np.float64]:
    """Round trips between the first pair of hosts; NaN = lost."""
    sent, received = echoes.exchange([(0, 1)] * count, np.arange(count) * ECHO_STEP_NS, 1_000_000_000)
    return np.where(received > 0, (received - sent) / 1e6, np.nan)


def _send(netns: str, address: str, seconds: int, congestion: str) -> "subprocess.Popen[str]":
    words = [
        "--client",
        address,
        "--time",
        str(seconds),
        "--omit",
        str(IGNORED_S),
        "--congestion",
        congestion,
        "--json",
    ]
    return subprocess.Popen([*inside(netns), "iperf3", *words], stdout=subprocess.PIPE, text=True)


def _rate_mbit(sender: "subprocess.Popen[str]") -> float:
    """A flow's rate at its receiver, when the flow has ended."""
    return float(json.loads(sender.communicate()[0])["end"]["sum_received"]["bits_per_second"]) / 1e6


if __name__ == "__main__":
    sys.exit(main())
