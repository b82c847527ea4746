"""The ``topology.json`` of ethp2p's simulations: nodes with access rates and a country, and edges with a latency.

::

    {"nodes": [{"num": 0, "upload_bw_mbps": 50, "download_bw_mbps": 100, "country": "portugal"}, ...],
     "edges": [{"source": 0, "target": 1, "latency_ms": 12}, ...]}

Latencies are one way, and rates have millions of bits per second. An edge without its reverse is about both directions,
as in ethp2p. Only nodes that ethp2p connects have an edge; where its peers run in Shadow, the latency of other nodes is
that of the shortest path, which ``missing = "path"`` gives.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from topologies.importers import Options
from topologies.importers.assembly import PairRows, assemble
from topologies.importers.imported import Imported, Rate, access_rates, check_count, check_distinct
from topologies.limits import Name
from topologies.model import Host
from topologies.provenance import Provenance, hash_files
from topologies.reading import InputError, read_text


class _Node(Struct, frozen=True):
    num: Annotated[int, Meta(ge=0)]
    upload_bw_mbps: Rate
    download_bw_mbps: Rate
    country: Name = ""

    @property
    def name(self) -> str:
        return f"host {self.num}"


class _Edge(Struct, frozen=True):
    source: int
    target: int
    latency_ms: Annotated[float, Meta(ge=0)]


class _Topology(Struct, frozen=True):
    nodes: tuple[_Node, ...]
    edges: tuple[_Edge, ...]


def read_file(path: Path, options: Options) -> Imported:
    """Read a topology. A sample of its nodes is spread over the countries.

    Raises:
        InputError: the file is missing or malformed, or pairs are missing.
    """
    try:
        topology = msgspec.json.decode(read_text(path), type=_Topology)
    except msgspec.DecodeError as error:
        raise InputError(str(path), f"expected a topology of ethp2p: {error}") from None
    check_count(str(path), len(topology.nodes))
    check_distinct(str(path), "num", [node.num for node in topology.nodes])
    hosts = [Host(name=node.name, site=node.name, country=node.country) for node in topology.nodes]
    told = replace(options, times="one-way", directed=True)
    underlay, kept, notes = assemble("ethp2p", hosts, _rows(str(path), topology), told)
    nodes = [topology.nodes[number] for number in kept]
    rate_mbit = access_rates((f"{path}: node {node.num}", node.upload_bw_mbps, node.download_bw_mbps) for node in nodes)
    provenance = Provenance(sha256=hash_files(path), notes=("times: one-way", *notes))
    return Imported(replace(underlay, rate_mbit=rate_mbit), tuple(node.country for node in nodes), provenance)


def _rows(file: str, topology: _Topology) -> PairRows:
    """Return the edges between different nodes as rows, and after them the reverse of those that have none."""
    numbers = {node.num: index for index, node in enumerate(topology.nodes)}
    edges = [edge for edge in topology.edges if edge.source != edge.target]
    given = {(edge.source, edge.target) for edge in edges}
    reverses = [
        _Edge(edge.target, edge.source, edge.latency_ms) for edge in edges if (edge.target, edge.source) not in given
    ]
    rows = PairRows(file, lambda row: f"{file}: edge {edges[row].source} -> {edges[row].target}")
    for row, edge in enumerate([*edges, *reverses]):
        if edge.source not in numbers or edge.target not in numbers:
            raise InputError(rows.place(row), "no such node")
        rows.add(numbers[edge.source], numbers[edge.target], edge.latency_ms, 0.0, 0.0)
    return rows
