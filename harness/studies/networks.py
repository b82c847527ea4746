"""The network of a study's run, without a matrix wherever the underlay is a function of the hosts.

Ten thousand nodes have a hundred million pairs.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from random import Random

from harness.experiment import UnderlaySpec
from harness.planning.underlays import GENERATED_HOSTS, make_underlay
from harness.testbeds.simulated.network import Delay, Network, matrix_network
from peer.core.randomness import NETWORK, substream


def make_network(spec: UnderlaySpec, folder: Path, seed: int) -> tuple[Network, int]:
    """The network between a run's hosts, as the simulated testbed has it for the same experiment, and their number.

    Args:
        spec: the section ``[underlay]``.
        folder: where the study file is; ``spec.path`` is relative to it.
        seed: the run's.

    Raises:
        ExperimentError: the data is missing or wrong.
    """
    draws = substream(seed, NETWORK, "network")
    hosts = spec.hosts or GENERATED_HOSTS
    if spec.kind == "uniform":
        delay_ns = round(spec.delay_ms * 1e6)
        return _function_network(lambda source, destination: delay_ns, spec, draws), hosts
    if spec.kind == "unit-square":
        return _function_network(_square_delay(hosts, spec.side_ms, seed), spec, draws), hosts
    underlay = make_underlay(spec, folder, seed)
    return matrix_network(underlay, draws), underlay.size


def _square_delay(hosts: int, side_ms: float, seed: int) -> Delay:
    """Delays between the points that ``topologies.generated.square_underlay`` draws."""
    random = substream(seed, NETWORK, "square")
    points = [(random.random(), random.random()) for _ in range(hosts)]

    def delay_ns(source: int, destination: int) -> int:
        (x, y), (to_x, to_y) = points[source], points[destination]
        return round(sqrt((x - to_x) ** 2 + (y - to_y) ** 2) * side_ms * 1e6)

    return delay_ns


def _function_network(delay_ns: Delay, spec: UnderlaySpec, draws: Random) -> Network:
    """A network with the same jitter, loss and rate everywhere, as the experiment asks; nothing here is measured."""
    jitter_ns = 0 if isinstance(spec.jitter, str) else round(spec.jitter * 1e6)
    loss_ratio, rate_mbit = spec.loss_ratio, spec.rate_mbit
    return Network(
        delay_ns,
        jitter_ns=(lambda source, destination: jitter_ns) if jitter_ns else None,
        loss_ratio=(lambda source, destination: loss_ratio) if loss_ratio else None,
        rate_mbit=(lambda host: rate_mbit) if rate_mbit else None,
        draws=draws,
    )
