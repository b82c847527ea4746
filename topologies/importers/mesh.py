"""Meshes as JSON: nodes, and edges with the latency between two of them.

::

    {"source": "...", "date": "...", "licence": "...",
     "nodes": [{"num": 0, "name": "Lisbon", "country": "PT", "region": "EU", "latitude": 38.7, "longitude": -9.1,
                "up_mbit": 20, "down_mbit": 100}, ...],
     "edges": [{"source": 0, "target": 1, "latency_ms": 12.5, "jitter_ms": 0.4, "loss_ratio": 0.001}, ...]}

Of a node only ``num`` is required, of an edge its ends and one of ``latency_ms`` (one way) and ``rtt_ms``. An edge is
a pair with a measured latency, not a link over which other pairs go. Other keys are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from topologies.importers import Options
from topologies.importers.assembly import PairRows, assemble
from topologies.importers.imported import (
    Imported,
    Rate,
    access_rates,
    check_count,
    check_distinct,
    left_out,
    rounded,
)
from topologies.limits import Name
from topologies.model import Host
from topologies.provenance import NOT_STATED, Provenance, Statement, hash_files
from topologies.reading import InputError, read_text

_Time = Annotated[float, Meta(ge=0)]


class _Node(Struct, frozen=True, omit_defaults=True):
    num: Annotated[int, Meta(ge=0)]
    name: Name = ""
    country: Name = ""
    region: Name = ""
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None
    up_mbit: Rate = 0.0
    down_mbit: Rate = 0.0
    upload_bw_mbps: float | None = None
    download_bw_mbps: float | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether it is a node of ethp2p."""
        return self.upload_bw_mbps is not None or self.download_bw_mbps is not None


class _Edge(Struct, frozen=True, omit_defaults=True):
    source: int
    target: int
    latency_ms: _Time | None = None
    rtt_ms: _Time | None = None
    jitter_ms: _Time | None = None
    loss_ratio: Annotated[float, Meta(ge=0, lt=1)] | None = None


class _Mesh(Struct, frozen=True, omit_defaults=True):
    nodes: tuple[_Node, ...]
    edges: list[_Edge]
    source: Statement = NOT_STATED
    date: Statement = NOT_STATED
    licence: Statement = NOT_STATED


def read_file(path: Path, options: Options) -> Imported:
    """Read a mesh. Nodes without a name are called ``host`` and their number; a sample is spread over the regions.

    Raises:
        InputError: the file is missing or malformed, or pairs are missing.
    """
    try:
        mesh = msgspec.json.decode(read_text(path), type=_Mesh)
    except msgspec.DecodeError as error:
        raise InputError(str(path), f"expected a mesh of nodes and edges: {error}") from None
    check_count(str(path), len(mesh.nodes))
    times = options.times or ("rtt" if mesh.edges and mesh.edges[0].rtt_ms is not None else "one-way")
    hosts = [_host(node) for node in mesh.nodes]
    check_distinct(str(path), "num", [node.num for node in mesh.nodes])
    check_distinct(str(path), "name", [host.name for host in hosts])
    rows = _rows(str(path), mesh, hosts)
    underlay, kept, notes = assemble("mesh", hosts, rows, replace(options, times=times))
    if any(node.is_foreign for node in mesh.nodes):
        notes.append("upload_bw_mbps, download_bw_mbps: not used; read the file as ethp2p")
    nodes = [mesh.nodes[number] for number in kept]
    rate_mbit = access_rates((f"{path}: node {node.num}", node.up_mbit, node.down_mbit) for node in nodes)
    provenance = Provenance(
        mesh.source, mesh.date, mesh.licence, sha256=hash_files(path), notes=(f"times: {times}", *notes)
    )
    return Imported(replace(underlay, rate_mbit=rate_mbit), tuple(node.region for node in nodes), provenance)


def write_file(path: Path, imported: Imported) -> list[str]:
    """Write one-way delays of every directed pair, with all that is known of the hosts."""
    underlay = imported.underlay
    nodes = [
        _Node(number, host.name, host.country, region, host.latitude, host.longitude, up_mbit, down_mbit)
        for number, (host, region, (up_mbit, down_mbit)) in enumerate(
            zip(underlay.hosts, imported.regions, rounded(underlay.rate_mbit).T.tolist(), strict=True)
        )
    ]
    beginning: dict[str, Any] = imported.provenance.statements() | {"nodes": nodes}
    with path.open("wb") as file:
        file.write(msgspec.json.encode(beginning).removesuffix(b"}") + b',"edges":[')
        for number in range(underlay.size):
            columns = (underlay.delay_ms, underlay.jitter_ms, underlay.loss_ratio)
            values = zip(*(rounded(matrix[number]).tolist() for matrix in columns), strict=True)
            edges = [
                _Edge(number, other, latency_ms=delay_ms, jitter_ms=jitter_ms or None, loss_ratio=loss_ratio or None)
                for other, (delay_ms, jitter_ms, loss_ratio) in enumerate(values)
                if other != number
            ]
            encoded = msgspec.json.encode(edges).removeprefix(b"[").removesuffix(b"]")
            file.write((b",\n" if number else b"\n") + encoded)
        file.write(b"]}\n")
    return left_out(imported, "mesh", ("jitter", "loss", "rates", "hosts"))


def _host(node: _Node) -> Host:
    name = node.name or f"host {node.num}"
    return Host(name=name, site=name, country=node.country, latitude=node.latitude, longitude=node.longitude)


def _rows(file: str, mesh: _Mesh, hosts: list[Host]) -> PairRows:
    """Return the edges between different nodes as rows."""
    numbers = {node.num: index for index, node in enumerate(mesh.nodes)}
    edges = [edge for edge in mesh.edges if edge.source != edge.target]
    rows = PairRows(file, lambda row: f"{file}: edge {edges[row].source} -> {edges[row].target}")
    round_trips = bool(edges) and edges[0].rtt_ms is not None
    for row, edge in enumerate(edges):
        time_ms, other = (edge.rtt_ms, edge.latency_ms) if round_trips else (edge.latency_ms, edge.rtt_ms)
        if time_ms is None or other is not None:
            raise InputError(rows.place(row), "expected latency_ms or rtt_ms, and the same one in every edge")
        if edge.source not in numbers or edge.target not in numbers:
            raise InputError(rows.place(row), "no such node")
        rows.add(numbers[edge.source], numbers[edge.target], time_ms, edge.jitter_ms or 0.0, edge.loss_ratio or 0.0)
    return rows
