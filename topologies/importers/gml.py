"""Graphs in GML as Shadow has them: nodes with the bandwidths of their hosts, and edges with latency and loss.

::

    graph [
      directed 0
      node [ id 0 label "Lisbon" host_bandwidth_up "100 Mbit" host_bandwidth_down "1 Gbit" ]
      node [ id 1 ]
      edge [ source 0 target 1 latency "10 ms" packet_loss 0.01 ]
    ]

Latencies are one way and have a unit. Packets take the shortest path by latency, as in Shadow. An edge from a node to
itself, which in Shadow is about two hosts of a node, is left out: such hosts are ``2 x access_delay_ms`` apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import igraph

from topologies.importers import Options
from topologies.importers.graph_files import (
    as_mbit,
    as_ms,
    as_text,
    drop_loops,
    given,
    imported_graph,
    name_routers,
    read_graph,
    shown,
)
from topologies.importers.imported import Imported, access_rates
from topologies.limits import LARGEST_DELAY_MS
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.provenance import Provenance, hash_files
from topologies.reading import InputError, read_text


class GmlGraph(NamedTuple):
    """The nodes and edges of a file.

    Attributes:
        numbers: the id of every node; None = it has none.
        labels: the label of every node, otherwise ``node`` and its id.
        links: the edges, both directions of undirected ones; an edge from a node to itself is one link.
        rates: of every node a place for errors, and the rates of its hosts up and down (Mbit/s); 0 = there is none.
    """

    numbers: list[int | None]
    labels: list[str]
    links: list[GraphLink]
    rates: list[tuple[str, float, float]]


def read_file(path: Path, options: Options) -> Imported:
    """Read a graph.

    Raises:
        InputError: the file is missing or malformed, an edge has no latency, or the graph is not connected.
    """
    graph = parse_gml(path, read_text(path))
    notes: list[str] = []
    routers = tuple(Router(name) for name in name_routers(graph.labels, notes))
    found = LinkGraph(routers, tuple(drop_loops(graph.links, notes)))
    provenance = Provenance(sha256=hash_files(path), notes=("times: one-way", *notes))
    rate_mbit = access_rates(graph.rates) if graph.rates else None
    return imported_graph("gml", path, found, options, provenance, regions=[""] * len(routers), rate_mbit=rate_mbit)


def parse_gml(path: Path, text: str) -> GmlGraph:
    """Return the nodes and edges of a text.

    Args:
        path: the file of the text, for errors.
        text: its content.

    Raises:
        InputError: the text is malformed, or an edge has no latency.
    """
    graph = read_graph(path, text, "GML", igraph.Graph.Read_GML)
    nodes = [vertex.attributes() for vertex in graph.vs]
    labels = [as_text(node.get("label")) or _numbered(node) for node in nodes]
    links = []
    for edge in graph.es:
        place = f"{path}: edge {labels[edge.source]} -> {labels[edge.target]}"
        delay_ms, jitter_ms, loss_ratio = _values(place, edge.attributes())
        links.append(GraphLink(edge.source, edge.target, delay_ms, jitter_ms, loss_ratio))
        if not graph.is_directed() and edge.source != edge.target:
            links.append(GraphLink(edge.target, edge.source, delay_ms, jitter_ms, loss_ratio))
    rates = [
        (
            f"{path}: node {label}",
            _rate(path, label, node, "host_bandwidth_up"),
            _rate(path, label, node, "host_bandwidth_down"),
        )
        for label, node in zip(labels, nodes, strict=True)
    ]
    return GmlGraph([_number(node) for node in nodes], labels, links, rates)


def _values(place: str, edge: dict[str, Any]) -> tuple[float, float, float]:
    """Return delay, jitter and loss of an edge."""
    latency, jitter, loss_ratio = (given(edge.get(name)) for name in ("latency", "jitter", "packet_loss"))
    delay_ms, jitter_ms = as_ms(latency), 0.0 if jitter is None else as_ms(jitter)
    if delay_ms is None or delay_ms > LARGEST_DELAY_MS:
        raise InputError(place, f'expected a latency with a unit, such as "10 ms", got {shown(latency)}')
    if jitter_ms is None or jitter_ms > LARGEST_DELAY_MS:
        raise InputError(place, f'expected a jitter with a unit, such as "1 ms", got {shown(jitter)}')
    if loss_ratio is None:
        return delay_ms, jitter_ms, 0.0
    if not isinstance(loss_ratio, int | float) or not 0 <= loss_ratio < 1:
        raise InputError(place, f"expected a packet_loss from 0 to below 1, got {shown(loss_ratio)}")
    return delay_ms, jitter_ms, float(loss_ratio)


def _rate(path: Path, label: str, node: dict[str, Any], name: str) -> float:
    """Return a rate in Mbit/s, 0 = unlimited."""
    value = given(node.get(name))
    if value is None:
        return 0.0
    if (mbit := as_mbit(value)) is None:
        raise InputError(f"{path}: node {label}", f'expected a {name} such as "100 Mbit", got {shown(value)}')
    return mbit


def _number(node: dict[str, Any]) -> int | None:
    number = node.get("id")
    return int(number) if isinstance(number, int | float) and float(number).is_integer() else None


def _numbered(node: dict[str, Any]) -> str:
    number = node.get("id")
    return f"node {number:g}" if isinstance(number, int | float) else ""
