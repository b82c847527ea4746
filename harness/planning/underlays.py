"""Makes the underlay of ``[underlay]``, or its network: reads or generates it, and adds jitter, loss and rates."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from harness.experiment.data import data_path, require_data
from harness.experiment.document import input_errors
from harness.experiment.form import Experiment, section_of
from harness.experiment.sections.underlay import UnderlaySpec
from harness.planning.links import make_links
from peer.core.randomness import NETWORK, substream
from topologies.generated import unplaced_hosts
from topologies.importers import Options, TopoReference
from topologies.kinds import GENERATORS, IMPORTERS
from topologies.link_graph import limit_links
from topologies.model import Matrix, Underlay, between
from topologies.network import Network
from topologies.provenance import Provenance
from topologies.sampling import Draws, choose_sites, place_hosts

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
    spec = experiment.underlay
    with input_errors():
        if spec.kind in IMPORTERS:
            made = _imported(spec, folder, _draws(experiment))
        else:
            arguments = _arguments(experiment)
            made = MadeUnderlay(GENERATORS[spec.kind].make(*arguments), None)
    return made._replace(underlay=_rounded(_shaped(made.underlay, experiment)))


def make_network(experiment: Experiment, folder: Path) -> Network:
    """Make the network of ``make_underlay``, with the same arguments and the same values.

    If the delays are a function of the hosts, there is no matrix: ten thousand nodes have a hundred million pairs.
    """
    spec = experiment.underlay
    generator = GENERATORS.get(spec.kind)
    if generator is None or generator.delays is None:
        return Network.of(make_underlay(experiment, folder).underlay)
    arguments = _arguments(experiment)
    hosts = arguments[0]
    links = make_links(experiment, unplaced_hosts(hosts), np.zeros((2, hosts)))
    return Network(
        hosts,
        generator.delays(*arguments),
        jitter_ms=links.of_pair("jitter_ms", round(_jitter_ms(spec) or 0.0, 6)),
        loss_ratio=links.of_pair("loss_ratio", round(_loss_ratio(spec) or 0.0, 6)),
        rate_mbit=links.rate_mbit.ravel().tolist() if links.rate_mbit.any() else (),
        queue_ms=links.queue_ms.ravel().tolist(),
        jitter_correlation_ms=spec.jitter_correlation_ms,
    )


def _arguments(experiment: Experiment) -> tuple[int, Struct, Draws]:
    """Return what the generator of an experiment's underlay is given."""
    spec = experiment.underlay
    named = GENERATORS[spec.kind].parameters is not None
    section = section_of(experiment, spec.kind) if named else spec
    assert section is not None, "the form has a section for every generator with parameters"
    return spec.hosts or GENERATED_HOSTS, section, _draws(experiment)


def _draws(experiment: Experiment) -> Draws:
    return partial(substream, experiment.seed, NETWORK)


def _imported(spec: UnderlaySpec, folder: Path, draws: Draws) -> MadeUnderlay:
    """Read data, and place the hosts at a sample of its sites that is spread over the regions."""
    importer = IMPORTERS[spec.kind]
    topo = None if spec.topo is None else TopoReference.parse(spec.topo)
    is_needed = importer.path in ("named", "data") or (topo is not None and topo.file is not None)
    path = require_data(spec, "underlay", folder) if is_needed else data_path(spec, folder)
    found = importer.read(path, Options(spec.times, spec.directed, spec.missing, None if topo is None else topo.call))
    sites = choose_sites(found.regions, [1.0] * len(found.regions), spec.hosts, draws)
    placed = place_hosts(found.underlay, sites, spec.access_delay_ms)
    stated = ", ".join(found.provenance.statements().values())
    if stated and not placed.sources:
        placed = replace(placed, sources=(f"Latencies: {stated}",))
    return MadeUnderlay(placed, found.provenance)


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
