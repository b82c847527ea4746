"""The hosts and the network of an experiment of Shadow (``shadow.yaml``).

Each host of the file is a host of the underlay, in the order of ``ShadowFile.hosts``. What processes run on them does
not matter here: ``trellis run shadow.yaml`` runs them, and any other experiment can use the network alone.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from topologies.generated import plain_underlay
from topologies.importers import Options
from topologies.importers.imported import Imported, access_rates
from topologies.model import Host
from topologies.provenance import Provenance, hash_files
from topologies.shadow.form import read_shadow
from topologies.shadow.network import graph_file, make_network


def read_file(path: Path, options: Options) -> Imported:
    """Read the hosts and the network.

    Raises:
        InputError: the file or its graph is missing or invalid, or asks for what Trellis cannot do.
    """
    shadow = read_shadow(path)
    network = make_network(path, shadow)
    hosts = tuple(Host(name=host.name, site=site) for host, site in zip(shadow.hosts, network.nodes, strict=True))
    underlay = replace(
        plain_underlay("shadow", hosts, network.asked.delay_ms),
        loss_ratio=network.asked.loss_ratio,
        rate_mbit=access_rates(network.rates),
    )
    graph = graph_file(shadow, path.parent)
    files = [path] if graph is None else [path, graph]
    provenance = Provenance(sha256=hash_files(*files), notes=("times: one-way", *network.notes))
    return Imported(underlay, ("",) * len(hosts), provenance)
