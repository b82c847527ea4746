"""TCP flows that share a link of a graph: how evenly, and how long its queue is.

A dumbbell: hosts at two routers, joined by a link with a rate, a drop-tail queue and a delay, on the userspace data
plane. Flows of iperf3 go from left to right, each from a host of its own; a further pair of hosts sends an echo request
every 0.2 s. Flows begin together and are counted for ``--seconds`` after a beginning that is not counted. The dumbbells
with different numbers of flows run at the same time, each on a data plane of its own.

* ``sum_mbit``, ``jain``, ``worst_part_error``, ``worst_half_width``, ``needed_s``: ``_flows.describe_shares``.
* ``used_ratio``: what the flows carry together, over what the rate has room for in packets of full size.
* ``queueing_p50_ms``, ``queueing_p99_ms``, ``queueing_max_ms``, ``queueing_error``: ``_flows.describe_queueing``; the
  queue is ``QUEUE_MS``.
* ``model_...``: what a model of TCP gets from the same queue on virtual time (``_model_flows``): over ``--seeds``
  seeds, the median and the 95th percentile of the largest error, and the medians of Jain's index and ``needed_s``.
* ``simulator_...``: the simulator has no TCP, and its queues drop nothing. Flows send packets of full size at twice
  their part of the rate; errors are those of the parts that the link carries, and of the time that its queue takes
  against what waits in it, at the end.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
from _namespaces import held_namespaces, inside, listen

from benchmarks._flows import client, describe_queueing, describe_shares, jain, read_rates
from benchmarks._model_flows import PACKET_BYTES, PAYLOAD_BYTES, model_flows
from harness.machine import sandbox
from harness.machine.awake import kept_awake
from harness.planes.plane import Port
from harness.planes.userspace.handle import UserspacePlane
from harness.simulator.changes import simulate_network
from harness.simulator.simulation import Simulation
from harness.testbeds.emulated.echo import EchoSockets
from peer import wire
from peer.core.contract import Message
from peer.core.frames import Data
from peer.trace import TraceEvent
from topologies.bottlenecks import Bottleneck, Bottlenecks
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.network import AskedOfPairs, Network

RATE_MBIT = 10.0
QUEUE_MS = 50.0
DELAY_MS = 10.0
FLOWS = (2, 4, 8)
SECONDS = 300
IGNORED_S = 6
SEEDS = 20
SIMULATED_S = 20
ECHO_STEP_NS = 200_000_000
SECOND_NS = 1_000_000_000
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
    parser.add_argument(
        "--flows", type=int, nargs="+", default=FLOWS, metavar="N", help="numbers of flows (default: 2 4 8)"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of the model (default: %(default)s)")
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control (default: %(default)s)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if shutil.which("iperf3") is None:
        print("dumbbell: not installed: iperf3 (apt-get install iperf3)", file=sys.stderr)
        return 2
    if not given.inside:
        words = sys.argv[1:] if argv is None else argv
        return sandbox.run([sys.executable, "-P", __file__, "--inside", *words])
    with kept_awake(), ThreadPoolExecutor(len(given.flows)) as threads:
        measured = list(threads.map(lambda flows: measure(flows, given.seconds, given.congestion), given.flows))
    found = [
        each | model(flows, given.seconds, given.seeds) | simulate(flows)
        for flows, each in zip(given.flows, measured, strict=True)
    ]
    print(json.dumps(found) if given.json else _table(found))
    return 0


def _table(found: list[dict[str, float]]) -> str:
    rows = [f"{name:>26}" + "".join(f"{each[name]:12.4g}" for each in found) for name in found[0]]
    return "\n".join(f"{row}  {TARGETS.get(row.split()[0], '')}" for row in rows)


def measure(flows: int, seconds: int, congestion: str) -> dict[str, float]:
    """Let so many flows share the link for some seconds. See the module for the results."""
    pairs = flows + 1
    addresses = [f"10.0.0.{host + 1}" for host in range(2 * pairs)]
    with held_namespaces(2 * pairs, seconds + 120) as netns:
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
            busy_ms = _round_trips_ms(echoes, seconds * SECOND_NS // ECHO_STEP_NS)
            for sender in senders:
                sender.wait()
            rates_mbit = np.array([read_rates(server.communicate()[0], seconds) for server in servers])
            drops = plane.counters().drops["queue"]
        finally:
            plane.kill()
    return {
        "flows": flows,
        **describe_shares(rates_mbit),
        "used_ratio": float(rates_mbit.mean(axis=1).sum()) / (RATE_MBIT * PAYLOAD_BYTES / PACKET_BYTES),
        **describe_queueing(busy_ms, idle_ms, QUEUE_MS),
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


def _send(netns: str, address: str, seconds: int, congestion: str) -> "subprocess.Popen[bytes]":
    words = [*inside(netns), *client(address, seconds, IGNORED_S), "--congestion", congestion]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL)


def model(flows: int, seconds: int, seeds: int) -> dict[str, float]:
    """Let modelled flows share the same queue, once per seed. See the module for the results."""
    link = Bottleneck(0, RATE_MBIT, QUEUE_MS)
    found = [
        describe_shares(model_flows(flows, seconds, IGNORED_S, link, 2 * DELAY_MS, seed))
        for seed in range(1, seeds + 1)
    ]
    errors = [each["worst_part_error"] for each in found]
    return {
        "model_worst_part_error_p50": float(np.median(errors)),
        "model_worst_part_error_p95": float(np.quantile(errors, 0.95)),
        "model_jain": float(np.median([each["jain"] for each in found])),
        "model_needed_s": float(np.median([each["needed_s"] for each in found])),
    }


class Arrivals:
    """An observer that keeps when frames arrive, by the node that they reach."""

    frames = True

    def __init__(self) -> None:
        self.at_ns: dict[int, list[int]] = {}

    def trace(self, event: TraceEvent) -> None:
        """Keep the arrival of a frame."""
        if event.event == "receive":
            self.at_ns.setdefault(event.node, []).append(event.ts_ns)

    def deliver(self, now_ns: int, node: int, message: Message) -> None:
        """Keep nothing: there are no nodes."""


def simulate(flows: int) -> dict[str, float]:
    """Let flows of packets share the link in the simulator. See the module for the results."""
    arrivals, network = Arrivals(), make_network(flows)
    simulation = Simulation(simulate_network(network, (), Random(1), seed=1), arrivals, seed=1)
    hosts = [simulation.add_host(number) for number in range(2 * flows)]
    ends = [simulation.join(hosts[number], flows + number, None) for number in range(flows)]
    packet = _full_packet()
    packet_ns = round(PACKET_BYTES * 8000 / RATE_MBIT)
    step_ns = flows * packet_ns // 2
    sent_ns = [
        [number * step_ns // flows + k * step_ns for k in range(SIMULATED_S * SECOND_NS // step_ns)]
        for number in range(flows)
    ]
    for end, instants in zip(ends, sent_ns, strict=True):
        for at_ns in instants:
            simulation.at(at_ns, simulation.write, end, packet)
    simulation.run(3 * SIMULATED_S * SECOND_NS)
    came_ns = [arrivals.at_ns[flows + number] for number in range(flows)]
    carried = np.array([sum(at_ns <= SIMULATED_S * SECOND_NS for at_ns in of_flow) for of_flow in came_ns])
    waits_ns = came_ns[-1][-1] - sent_ns[-1][-1] - DELAY_MS * 1e6
    queue_ns = packet_ns * sum(map(len, sent_ns)) - sent_ns[-1][-1]
    return {
        "simulator_worst_part_error": float(np.abs(carried / carried.mean() - 1).max()),
        "simulator_jain": jain(carried),
        "simulator_queueing_error": abs(waits_ns - queue_ns) / queue_ns,
    }


def _full_packet() -> Data:
    """Return a frame that fills a packet."""
    around = wire.size(Data(0, (0,), 1, 1, b"x" * PAYLOAD_BYTES)) - PAYLOAD_BYTES
    return Data(0, (0,), 1, 1, b"x" * (PAYLOAD_BYTES - around))


if __name__ == "__main__":
    sys.exit(main())
