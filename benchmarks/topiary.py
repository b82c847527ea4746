"""What an epoch of Topiary costs in the simulator: 1000 nodes, 1000 messages, by the number of topics.

Beside it, in the same run: the same epochs over the random overlay, which floods alike and learns nothing. Fifty times
the later of the epochs measured is the least that a study's 50 epochs take: copies get more as overlays get better, in
a study of 100 topics by almost half from the second epoch to the last. ``--full`` simulates all 50.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from random import Random

from harness.experiment.form import Experiment, FloodParameters
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import InterestsSpec, WorkloadSpec
from harness.planning.planner import make_overlay
from harness.simulator.enactment import Enactment
from harness.simulator.network import SimulatedNetwork
from harness.simulator.simulation import Simulation
from harness.workload.workload import draw_workload
from peer.core.contract import Message, NodeId
from peer.protocols.random_graph.overlay import RandomParameters
from peer.protocols.topiary.overlay import TopiaryParameters
from peer.trace import TraceEvent
from topologies.network import Network

NODES, DEGREE, INTEREST = 1_000, 6, 0.2
EPOCH_S, MESSAGES = 10, 1_000
EPOCHS = 2
STUDY_TOPICS, STUDY_EPOCHS = 100, 50
TOPICS = (10, 50, STUDY_TOPICS, 150)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--full", action="store_true", help="also all the epochs of a study")
    given = parser.parse_args(argv)
    result: dict[str, float] = {}
    for topics in TOPICS:
        result |= {f"{topics}_topics_{name}": value for name, value in measure(topics).items()}
    if given.full:
        learned, events = _time_epochs("topiary", STUDY_TOPICS, STUDY_EPOCHS)
        result |= {"study_s": sum(learned), "study_events": events, "study_last_epoch_s": learned[-1]}
    print(json.dumps(result) if given.json else "\n".join(f"{name:>44}  {value:.4g}" for name, value in result.items()))
    return 0


def measure(topics: int) -> dict[str, float]:
    """Epochs/s with Topiary and with the random overlay, events an epoch, and what 50 epochs take at least."""
    learned, events = _time_epochs("topiary", topics, EPOCHS)
    plain, _ = _time_epochs("random", topics, EPOCHS)
    return {
        "epochs_per_s": len(learned) / sum(learned),
        "random_epochs_per_s": len(plain) / sum(plain),
        "random_over_topiary": sum(learned) / sum(plain),
        "events_an_epoch": events / len(learned),
        "study_of_50_epochs_s_at_least": learned[-1] * STUDY_EPOCHS,
    }


class _Nobody:
    """An observer that looks away."""

    frames = False

    def trace(self, event: TraceEvent) -> None:
        """Nothing."""

    def deliver(self, now_ns: int, node: NodeId, message: Message) -> None:
        """Nothing."""


def _time_epochs(protocol: str, topics: int, epochs: int) -> tuple[list[float], int]:
    """Seconds of each epoch after the one in which links are built, and the events of all."""
    experiment = Experiment(
        "bench",
        protocol=protocol,  # type: ignore[arg-type]
        testbed="simulated",
        underlay=UnderlaySpec(kind="uniform", hosts=NODES),
        random=RandomParameters(degree=DEGREE),
        topiary=TopiaryParameters(degree=DEGREE, epoch_s=EPOCH_S),
        flood=FloodParameters(ttl=1, seen_messages=2 * MESSAGES),
        workload=WorkloadSpec(
            topics=topics,
            publish_interval="fixed",
            publish_rate_per_s=MESSAGES / EPOCH_S,
            warmup_s=EPOCH_S,
            duration_s=epochs * EPOCH_S,
        ),
        interests=InterestsSpec(ratio=INTEREST),
    )
    draws = Random(1)
    places = [complex(draws.random(), draws.random()) for _ in range(NODES)]
    asked = Network(NODES, lambda source, destination: 100 * abs(places[source] - places[destination]))
    simulation = Simulation(SimulatedNetwork(asked, draws), _Nobody(), seed=1)
    workload = draw_workload(experiment, NODES, Path())
    zero_ns = EPOCH_S * 10**9
    overlay = make_overlay(experiment, workload)
    Enactment(simulation, overlay, workload.schedule, start_ns=0, zero_ns=zero_ns, stop_ns=10**15)
    simulation.run(zero_ns - 1)
    built, durations = simulation.handled, []
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        simulation.run(zero_ns + epoch * EPOCH_S * 10**9 - 1)
        durations.append(time.perf_counter() - start)
    return durations, simulation.handled - built


if __name__ == "__main__":
    sys.exit(main())
