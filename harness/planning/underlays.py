"""Makes the underlay of ``[underlay]``, or its network: reads or generates it, and adds jitter, loss and rates."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from harness.experiment.data import data_path, require_data
from harness.experiment.document import input_errors
from harness.experiment.form import Experiment, UnderlaySpec
from harness.planning.links import make_links
from peer.core.randomness import NETWORK, substream
from topologies.generated import cities_underlay, square_delays, square_underlay, uniform_underlay, unplaced_hosts
from topologies.geography import world_cities
from topologies.graph_kinds import GRAPHS, generate
from topologies.importers import IMPORTERS, Options, TopoReference
from topologies.link_graph import limit_links
from topologies.model import Matrix, Underlay, between
from topologies.network import Network, OfPair, uniform_network
from topologies.provenance import Provenance
from topologies.sampling import place_hosts, spread_sample

GENERATED_HOSTS = 20
"""The number of hosts if neither the experiment nor a data set sets it."""


class MadeUnderlay(NamedTuple):
    """An underlay, and where its data come from; None = it is generated."""

    underlay: Underlay
    provenance: Provenance | None


def make_underlay(experiment: Experiment, folder: Path) -> MadeUnderlay:
    """Make the underlay of an experiment, with one host per node.

    Args:
        experiment: with the section ``[underlay]``, the groups that it names, and the seed of the run.
        folder: the folder of the experiment file; ``underlay.path`` is relative to it.

    Raises:
        ExperimentError: the data is missing or invalid, with the file and line as the place; or a group of
            ``underlay.links`` does not fit.
    """
    spec, seed = experiment.underlay, experiment.seed
    with input_errors():
        made = _imported(spec, folder, seed) if spec.kind in IMPORTERS else MadeUnderlay(_generated(spec, seed), None)
    return made._replace(underlay=_rounded(_shaped(made.underlay, experiment)))


def make_network(experiment: Experiment, folder: Path) -> Network:
    """Make the network of ``make_underlay``, with the same arguments and the same values.

    If the delays are a function of the hosts, there is no matrix: ten thousand nodes have a hundred million pairs.
    """
    spec, seed = experiment.underlay, experiment.seed
    delays = _DELAYS.get(spec.kind)
    if delays is None:
        return Network.of(make_underlay(experiment, folder).underlay)
    hosts = spec.hosts or GENERATED_HOSTS
    links = make_links(experiment, unplaced_hosts(hosts), np.zeros((2, hosts)))
    return Network(
        hosts,
        delays(spec, hosts, seed),
        jitter_ms=links.of_pair("jitter_ms", round(_jitter_ms(spec) or 0.0, 6)),
        loss_ratio=links.of_pair("loss_ratio", round(_loss_ratio(spec) or 0.0, 6)),
        rate_mbit=links.rate_mbit.ravel().tolist() if links.rate_mbit.any() else (),
        queue_ms=links.queue_ms.ravel().tolist(),
        jitter_correlation_ms=spec.jitter_correlation_ms,
    )


_DELAYS: dict[str, Callable[[UnderlaySpec, int, int], OfPair]] = {
    "uniform": lambda spec, hosts, seed: uniform_network(hosts, spec.delay_ms).delay_ms,
    "unit-square": lambda spec, hosts, seed: square_delays(hosts, spec.side_ms, substream(seed, NETWORK, "square")),
}
"""The one-way delays (ms) of underlays whose delays are functions of the hosts."""


def _imported(spec: UnderlaySpec, folder: Path, seed: int) -> MadeUnderlay:
    """Read data, and place the hosts at a sample of its sites that is spread over the regions."""
    importer = IMPORTERS[spec.kind]
    is_needed = importer.path in ("named", "data")
    path = require_data(spec, "underlay", folder) if is_needed else data_path(spec, folder)
    topo = None if spec.topo is None else TopoReference.parse(spec.topo).call
    found = importer.read(path, Options(spec.times, spec.directed, spec.missing, topo))
    sites = _choose_sites(found.regions, [1.0] * len(found.regions), spec.hosts, seed)
    placed = place_hosts(found.underlay, sites, spec.access_delay_ms)
    stated = ", ".join(found.provenance.statements().values())
    if stated and not placed.sources:
        placed = replace(placed, sources=(f"Latencies: {stated}",))
    return MadeUnderlay(placed, found.provenance)


def _generated(spec: UnderlaySpec, seed: int) -> Underlay:
    hosts = spec.hosts or GENERATED_HOSTS
    if spec.kind == "uniform":
        return uniform_underlay(hosts, spec.delay_ms)
    if spec.kind == "unit-square":
        return square_underlay(hosts, spec.side_ms, substream(seed, NETWORK, "square"))
    if spec.kind in GRAPHS:
        return _generated_graph(spec, seed)
    cities = world_cities()
    sites = _choose_sites([city.continent for city in cities], [float(city.population) for city in cities], hosts, seed)
    return place_hosts(cities_underlay(cities), sites, spec.access_delay_ms)


def _generated_graph(spec: UnderlaySpec, seed: int) -> Underlay:
    """Generate a graph, and place the hosts at its sites."""
    values = {key: getattr(spec, key) for key in GRAPHS[spec.kind]}
    if "routers" in values:
        values["routers"] = spec.routers or spec.hosts or GENERATED_HOSTS
    made = generate(spec.kind, values, substream(seed, NETWORK, "graph"))
    hosts = spec.hosts or len(made.sites) * made.hosts_per_site
    sites = _choose_sites(made.regions, [1.0] * len(made.sites), hosts, seed)
    return place_hosts(made.underlay(spec.kind), sites, spec.access_delay_ms)


def _choose_sites(regions: Sequence[str], weights: Sequence[float], hosts: int | None, seed: int) -> list[int]:
    """Choose one site per host: all sites, a sample spread over the regions, or, for more hosts, each in turn."""
    sites = len(regions)
    if hosts is None:
        return list(range(sites))
    if hosts < sites:
        return spread_sample(regions, weights, hosts, substream(seed, NETWORK, "sites"))
    return [host % sites for host in range(hosts)]


def _shaped(underlay: Underlay, experiment: Experiment) -> Underlay:
    """Return the underlay with the experiment's jitter, loss, rates and queues."""
    spec, graph = experiment.underlay, underlay.graph
    jitter_ms, loss_ratio = _jitter_ms(spec), _loss_ratio(spec)
    links = make_links(experiment, underlay.hosts, underlay.rate_mbit)
    everywhere_ms = underlay.jitter_ms if jitter_ms is None else between(underlay.size, jitter_ms)
    everywhere = underlay.loss_ratio if loss_ratio is None else between(underlay.size, loss_ratio)
    return replace(
        underlay,
        jitter_ms=links.fill("jitter_ms", everywhere_ms),
        loss_ratio=links.fill("loss_ratio", everywhere),
        rate_mbit=links.rate_mbit,
        queue_ms=links.queue_ms,
        jitter_correlation_ms=spec.jitter_correlation_ms,
        graph=graph and limit_links(graph, spec.link_rate_mbit, spec.link_queue_ms),
    )


def _jitter_ms(spec: UnderlaySpec) -> float | None:
    """Return the standard deviation that the section sets for every pair; None = that of the data."""
    if spec.jitter == "measured":
        return None
    return 0.0 if spec.jitter == "none" else float(spec.jitter)


def _loss_ratio(spec: UnderlaySpec) -> float | None:
    """Return the loss that the section sets for every pair; None = that of the data."""
    return None if spec.loss_ratio == "measured" else spec.loss_ratio


def _rounded(underlay: Underlay) -> Underlay:
    """Return the underlay rounded to the six decimals of ``underlay.json``, so that it equals what is read later."""
    return replace(
        underlay,
        delay_ms=_round(underlay.delay_ms),
        jitter_ms=_round(underlay.jitter_ms),
        loss_ratio=_round(underlay.loss_ratio),
    )


def _round(matrix: Matrix) -> Matrix:
    return np.round(matrix, 6) if matrix.any() else matrix  # zeros of ``between`` use no memory
