"""The network of a study's run, without a matrix if the delays are a function of the hosts.

Ten thousand nodes have a hundred million pairs.
"""

from math import sqrt
from pathlib import Path
from random import Random

from harness.experiment.form import UnderlaySpec
from harness.planning.underlays import GENERATED_HOSTS, make_underlay
from harness.simulator.network import Delay, SimulatedNetwork, matrix_network
from peer.core.randomness import NETWORK, substream


def make_network(spec: UnderlaySpec, folder: Path, seed: int) -> tuple[SimulatedNetwork, int]:
    """Return the network between a run's hosts, equal to that of the simulated testbed, and the number of hosts.

    Args:
        spec: the section ``[underlay]``.
        folder: the folder of the study file; ``spec.path`` is relative to it.
        seed: the seed of the run.

    Raises:
        ExperimentError: the data is missing or invalid.
    """
    draws = substream(seed, NETWORK, "network")
    hosts = spec.hosts or GENERATED_HOSTS
    if spec.kind == "uniform":
        delay_ns = round(spec.delay_ms * 1e6)
        return _function_network(lambda source, destination: delay_ns, spec, draws), hosts
    if spec.kind == "unit-square":
        return _function_network(_square_delay(hosts, spec.side_ms, seed), spec, draws), hosts
    underlay = make_underlay(spec, folder, seed).underlay
    return matrix_network(underlay, draws), underlay.size


def _square_delay(hosts: int, side_ms: float, seed: int) -> Delay:
    """Return the delays between the points that ``topologies.generated.square_underlay`` draws."""
    random = substream(seed, NETWORK, "square")
    points = [(random.random(), random.random()) for _ in range(hosts)]

    def delay_ns(source: int, destination: int) -> int:
        (x, y), (to_x, to_y) = points[source], points[destination]
        return round(sqrt((x - to_x) ** 2 + (y - to_y) ** 2) * side_ms * 1e6)

    return delay_ns


def _function_network(delay_ns: Delay, spec: UnderlaySpec, draws: Random) -> SimulatedNetwork:
    """Return a network with the experiment's jitter, loss and rate between all hosts, without measured values."""
    jitter_ns = 0 if isinstance(spec.jitter, str) else round(spec.jitter * 1e6)
    loss_ratio = 0.0 if isinstance(spec.loss_ratio, str) else spec.loss_ratio
    rate_mbit = spec.rate_mbit
    return SimulatedNetwork(
        delay_ns,
        jitter_ns=(lambda source, destination: jitter_ns) if jitter_ns else None,
        loss_ratio=(lambda source, destination: loss_ratio) if loss_ratio else None,
        rate_mbit=(lambda host: rate_mbit) if rate_mbit else None,
        draws=draws,
    )
