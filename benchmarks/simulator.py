"""How many events a second the simulator handles and what a node costs in memory, by protocol and network size.

Beside it, in the same run: the same flood over the same graph written in SimPy as its documentation teaches, with a
process and a store for each node. Every figure comes from a process of its own.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import simpy

from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import InterestsSpec, WorkloadSpec
from harness.planning.planner import make_overlay
from harness.simulator.enactment import Enactment
from harness.simulator.network import SimulatedNetwork
from harness.simulator.simulation import Simulation
from harness.workload.workload import draw_workload
from peer.core.contract import Message, NodeId, Publish, message_id
from peer.trace import TraceEvent
from topologies.network import uniform_network

SIZES = (1_000, 10_000)
PROTOCOLS = ("random", "stan", "spidercast")
DELAY_MS = 50.0
BUILD_S = 10
"""Ten rounds of every protocol here."""
RECEPTIONS = 1_000_000
"""Frames that the flood is to bring, whatever the size: messages are published until this number is reached."""


def main(argv: list[str] | None = None) -> int:
    """Measure everything, each in its own process, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "NODES"), help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one:
        print(json.dumps(measure_one(given.one[0], int(given.one[1]))))
        return 0
    result = measure()
    print(json.dumps(result) if given.json else "\n".join(f"{name:>44}  {value:.4g}" for name, value in result.items()))
    return 0


def measure() -> dict[str, float]:
    """Rates in events/s, bytes per node, the growth exponents of the time between the sizes, and the ratios."""
    found: dict[str, float] = {}
    for what in ("simpy_flood", "flood", *PROTOCOLS):
        taken = {}
        for nodes in SIZES:
            taken[nodes] = _in_own_process(what, nodes)
            print(f"{what}, {nodes:,} nodes: {taken[nodes]['wall_s']:.1f} s", file=sys.stderr, flush=True)
            found |= {f"{what}_{nodes}_{name}": value for name, value in taken[nodes].items()}
        small, large = (taken[nodes] for nodes in SIZES)
        # Time to do the whole of the work per node and event: 0 = neither grows with the network.
        span = math.log(SIZES[1] / SIZES[0])
        found[f"{what}_seconds_exponent"] = math.log(large["wall_s"] / small["wall_s"]) / span
        found[f"{what}_event_cost_exponent"] = math.log(small["events_per_s"] / large["events_per_s"]) / span
        found[f"{what}_node_bytes_exponent"] = math.log(large["node_bytes"] / small["node_bytes"]) / span
    for nodes in SIZES:
        ours, theirs = found[f"flood_{nodes}_events_per_s"], found[f"simpy_flood_{nodes}_events_per_s"]
        found[f"flood_over_simpy_{nodes}"] = ours / theirs
    return found


def _in_own_process(what: str, nodes: int) -> dict[str, float]:
    argv = [sys.executable, *(["-P"] if sys.flags.safe_path else []), __file__, "--one", what, str(nodes)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


def measure_one(what: str, nodes: int) -> dict[str, float]:
    """One measurement in this process: events handled per second, seconds, and resident bytes per node."""
    before = _resident_bytes()
    if what == "simpy_flood":
        events, wall_s = _flood_in_simpy(nodes)
    elif what == "flood":
        events, wall_s = _flood(nodes)
    else:
        events, wall_s = _build(what, nodes)
    return {
        "events_per_s": events / wall_s,
        "wall_s": wall_s,
        "node_bytes": (_resident_bytes() - before) / nodes,
    }


class _Nobody:
    """An observer that looks away."""

    frames = False

    def trace(self, event: TraceEvent) -> None:
        """Nothing."""

    def deliver(self, now_ns: int, node: NodeId, message: Message) -> None:
        """Nothing."""


def _simulate(protocol: str, nodes: int) -> Simulation:
    """A network of the papers' kind: ten of a hundred topics a node, by Zipf 0.5."""
    experiment = Experiment(
        "bench",
        protocol=protocol,  # type: ignore[arg-type]
        testbed="simulated",
        underlay=UnderlaySpec(kind="uniform", hosts=nodes),
        workload=WorkloadSpec(topics=100, publish_rate_per_s=1e-3, duration_s=1000.0),
        interests=InterestsSpec(kind="popularity"),
    )
    workload = draw_workload(experiment, nodes, Path())
    simulation = Simulation(SimulatedNetwork(uniform_network(nodes, DELAY_MS), Random(1)), _Nobody(), seed=1)
    overlay = make_overlay(experiment, workload)
    Enactment(simulation, overlay, (), start_ns=0, zero_ns=0, stop_ns=10**15)
    return simulation


def _build(protocol: str, nodes: int) -> tuple[int, float]:
    """Events and seconds of the first ``BUILD_S`` of an overlay's life."""
    start = time.perf_counter()
    simulation = _simulate(protocol, nodes)
    simulation.run(BUILD_S * 10**9)
    return simulation.handled, time.perf_counter() - start


def _flood(nodes: int) -> tuple[int, float]:
    """Messages over the random overlay, to everybody: events and seconds without the overlay's building."""
    simulation = _simulate("random", nodes)
    simulation.run(BUILD_S * 10**9)
    built, start = simulation.handled, time.perf_counter()
    for number in range(RECEPTIONS // (10 * nodes)):
        simulation.give(number % nodes, Publish(tuple(range(100)), message_id(number % nodes, number), b"x" * 100))
        simulation.run(simulation.now_ns + 10**9)
    return simulation.handled - built, time.perf_counter() - start


def _flood_in_simpy(nodes: int) -> tuple[int, float]:
    """The same flood: a random graph of five outgoing links, every new message to all neighbours but its source."""
    draws = Random(1)
    neighbours: list[set[int]] = [set() for _ in range(nodes)]
    for node in range(nodes):
        for peer in _draw(draws, nodes, node):
            neighbours[node].add(peer)
            neighbours[peer].add(node)
    environment = simpy.Environment()
    inboxes = [simpy.Store(environment) for _ in range(nodes)]
    received = 0

    def carry(peer: int, source: int, message: int) -> Iterator[Any]:
        yield environment.timeout(DELAY_MS / 1000)
        yield inboxes[peer].put((source, message))

    def live(node: int) -> Iterator[Any]:
        nonlocal received
        seen: set[int] = set()
        while True:
            source, message = yield inboxes[node].get()
            received += 1
            if message not in seen:
                seen.add(message)
                for peer in sorted(neighbours[node]):
                    if peer != source:
                        environment.process(carry(peer, node, message))

    for node in range(nodes):
        environment.process(live(node))
    start = time.perf_counter()
    for number in range(RECEPTIONS // (10 * nodes)):
        inboxes[number % nodes].put((-1, number))
        environment.run(until=environment.now + 1.0)
    return received, time.perf_counter() - start


def _draw(draws: Random, nodes: int, node: int) -> list[int]:
    """Five others."""
    chosen: set[int] = set()
    while len(chosen) < 5:
        peer = draws.randrange(nodes)
        if peer != node:
            chosen.add(peer)
    return sorted(chosen)


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmRSS")


if __name__ == "__main__":
    sys.exit(main())
