"""Graphs in GraphML, such as those of the Internet Topology Zoo: routers with a position, and links between them.

The delay of a link is its attribute ``delay_ms`` or ``latency_ms`` (numbers of ms), or ``delay`` or ``latency`` (texts
with a unit, such as ``10 ms``). Without one it is the time of light in a straight fibre: the great-circle distance at
200 km per ms. A router without a position, whose links then have no delay, is refused, or dropped (``missing =
"drop"``). The rates of links (``LinkSpeedRaw``) are not used.

Source: Knight et al., The Internet Topology Zoo, IEEE Journal on Selected Areas in Communications 29(9), 2011.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import igraph

from topologies.geography import distances_km
from topologies.importers import Options
from topologies.importers.graph_files import (
    as_ms,
    as_text,
    drop_loops,
    given,
    imported_graph,
    name_routers,
    read_graph,
    shown,
)
from topologies.importers.imported import Imported
from topologies.limits import LARGEST_DELAY_MS
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.provenance import NOT_STATED, Provenance, hash_files
from topologies.reading import InputError, read_text

FIBRE_KM_PER_MS = 200.0
"""How far light goes in fibre."""

_IN_MS = ("delay_ms", "latency_ms")
_WITH_UNIT = ("delay", "latency")


def read_file(path: Path, options: Options) -> Imported:
    """Read a graph. A sample of its routers is spread over their countries.

    Raises:
        InputError: the file is missing or malformed, a link has no delay, or the graph is not connected.
    """
    text = read_text(path).replace('attr.type="integer"', 'attr.type="int"')  # two files of the Topology Zoo
    graph = read_graph(path, text, "GraphML", igraph.Graph.Read_GraphML)
    notes: list[str] = []
    positions = [_position(vertex.attributes()) for vertex in graph.vs]
    told = {edge.index: _told_ms(f"{path}: edge {edge.index}", edge.attributes()) for edge in graph.es}
    needed = {end for edge in graph.es if told[edge.index] is None for end in edge.tuple}
    unplaced = {vertex for vertex in needed if positions[vertex] is None}
    names = name_routers([as_text(vertex.attributes().get("label")) for vertex in graph.vs], notes)
    if unplaced and options.missing != "drop":
        first = names[min(unplaced)]
        problem = f"{len(unplaced)} of {len(names)} routers, such as {first}, have links without delay and no position"
        raise InputError(str(path), f'{problem}; set missing = "drop"')
    if unplaced:
        notes.append(f"dropped: {len(unplaced)} routers without a position")
    kept = [vertex for vertex in range(len(names)) if vertex not in unplaced]
    numbers = {vertex: number for number, vertex in enumerate(kept)}
    routers = tuple(_router(names[vertex], graph.vs[vertex].attributes(), positions[vertex]) for vertex in kept)
    links = []
    for edge in graph.es:
        if edge.source in numbers and edge.target in numbers:
            delay_ms = told[edge.index]
            if delay_ms is None:
                delay_ms = _fibre_ms(positions[edge.source], positions[edge.target])
            source, target = numbers[edge.source], numbers[edge.target]
            links.append(GraphLink(source, target, delay_ms))
            if not graph.is_directed():
                links.append(GraphLink(target, source, delay_ms))
    if "LinkSpeedRaw" in graph.es.attributes():
        notes.append("LinkSpeedRaw: not used")
    found = LinkGraph(routers, tuple(drop_loops(links, notes)))
    published = " ".join(filter(None, (as_text(_of(graph, name)) for name in ("Network", "Source"))))
    provenance = Provenance(
        source=published[:500] or NOT_STATED,
        date=as_text(_of(graph, "NetworkDate")) or NOT_STATED,
        sha256=hash_files(path),
        notes=tuple(notes),
    )
    regions = [router.country for router in routers]
    return imported_graph("graphml", path, found, options, provenance, regions=regions)


def _of(graph: igraph.Graph, name: str) -> object:
    return graph[name] if name in graph.attributes() else None


def _router(name: str, attributes: dict[str, Any], position: tuple[float, float] | None) -> Router:
    latitude, longitude = position or (None, None)
    return Router(name, as_text(attributes.get("Country")), latitude, longitude)


def _position(attributes: dict[str, Any]) -> tuple[float, float] | None:
    latitude, longitude = (attributes.get(name) for name in ("Latitude", "Longitude"))
    if not isinstance(latitude, float) or not isinstance(longitude, float):
        return None
    inside = abs(latitude) <= 90 and abs(longitude) <= 180  # also False for NaN
    return (latitude, longitude) if inside else None


def _told_ms(place: str, attributes: dict[str, Any]) -> float | None:
    """Return the delay that an edge has of its own; None = none.

    Raises:
        InputError: it has one that is no delay.
    """
    for name in (*_IN_MS, *_WITH_UNIT):
        value = given(attributes.get(name))
        if value is None:
            continue
        delay_ms = value if name in _IN_MS else as_ms(value)
        if not isinstance(delay_ms, int | float) or not 0 <= delay_ms <= LARGEST_DELAY_MS:
            wanted = f"number from 0 to {LARGEST_DELAY_MS:,}" if name in _IN_MS else 'time such as "10 ms"'
            raise InputError(place, f"expected a {name} that is a {wanted}, got {shown(value)}")
        return float(delay_ms)
    return None


def _fibre_ms(one: tuple[float, float] | None, other: tuple[float, float] | None) -> float:
    assert one is not None and other is not None, "routers without a position were dropped"
    distance_km = distances_km([one[0], other[0]], [one[1], other[1]])[0, 1]
    return float(distance_km) / FIBRE_KM_PER_MS
