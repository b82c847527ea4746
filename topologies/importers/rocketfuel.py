"""Rocketfuel's maps of the networks of providers: a line per directed link, with its latency in ms.

::

    Darwin,+Australia1837 Adelaide,+Australia1727 15

``path`` is a file ``latencies.intra``, or the folder of a provider. In a folder, ``weights.intra`` has the inferred
weights of the same links, and packets take the paths with the least sum of weights, as in the provider's network.
Without weights they take the shortest paths by latency.

Source: R. Mahajan, N. Spring, D. Wetherall, T. Anderson, Inferring link weights using end-to-end measurements, Internet
Measurement Workshop 2002.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from topologies.importers import Options
from topologies.importers.graph_files import drop_loops, imported_graph
from topologies.importers.imported import Imported
from topologies.limits import LARGEST_DELAY_MS
from topologies.link_graph import MOST_ROUTERS, GraphLink, LinkGraph, Router
from topologies.provenance import Provenance, hash_files
from topologies.reading import InputError, parse_number, read_text

LATENCIES, WEIGHTS = "latencies.intra", "weights.intra"

_ROUTER = re.compile(r"(.*?)(\d*)", re.DOTALL | re.ASCII)


class _Line(NamedTuple):
    place: str
    source: str
    destination: str
    value: float


def read_file(path: Path, options: Options) -> Imported:
    """Read a map. A sample of its routers is spread over their places.

    Raises:
        InputError: a file is missing or malformed, both files have not the same links, or the graph is not connected.
    """
    latencies = path / LATENCIES if path.is_dir() else path
    weights = path / WEIGHTS if path.is_dir() and (path / WEIGHTS).exists() else None
    lines = _read(latencies)
    costs = None if weights is None else _costs(_read(weights), lines, weights)
    numbers: dict[str, int] = {}
    for line in lines:
        for name in (line.source, line.destination):
            numbers.setdefault(name, len(numbers))
    if len(numbers) > MOST_ROUTERS:
        raise InputError(str(latencies), f"expected at most {MOST_ROUTERS:,} routers, got more")
    notes: list[str] = []
    links = [
        GraphLink(numbers[line.source], numbers[line.destination], line.value, cost=costs[index] if costs else None)
        for index, line in enumerate(lines)
    ]
    parts = [_parts(name) for name in numbers]
    routers = tuple(Router(f"{place} {number}".strip(), _country(place)) for place, number in parts)
    graph = LinkGraph(routers, tuple(drop_loops(links, notes)))
    sha256 = hash_files(latencies, *([weights] if weights else []))
    provenance = Provenance("Rocketfuel", "2002", sha256=sha256, notes=("times: one-way", *notes))
    regions = [place for place, _ in parts]
    return imported_graph("rocketfuel", latencies, graph, options, provenance, regions=regions)


def _read(path: Path) -> list[_Line]:
    found = []
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip() or text.startswith("#"):
            continue
        cells, place = text.split(), f"{path}:{number}"
        value = parse_number(cells[2]) if len(cells) == 3 else None
        if value is None or not 0 <= value <= LARGEST_DELAY_MS:
            raise InputError(place, "expected two routers and a number from 0, such as A B 7")
        found.append(_Line(place, cells[0], cells[1], value))
    if not found:
        raise InputError(str(path), "expected links, got none")
    return found


def _costs(weights: list[_Line], lines: list[_Line], path: Path) -> list[float]:
    """Return the weight of every link, which both files have in the same order, or once only."""
    if [line[1:3] for line in weights] == [line[1:3] for line in lines]:
        return [line.value for line in weights]
    by_ends = {line[1:3]: line.value for line in weights}
    if len(by_ends) < len(weights):
        raise InputError(str(path), f"expected the links of {LATENCIES} in the same order")
    for line in lines:
        if line[1:3] not in by_ends:
            raise InputError(line.place, f"{WEIGHTS} has no link {line.source} {line.destination}")
    return [by_ends[line[1:3]] for line in lines]


def _parts(name: str) -> tuple[str, str]:
    """Return the place of a router, in which Rocketfuel writes blanks as +, and its number."""
    found = _ROUTER.fullmatch(name.replace("+", " "))
    assert found is not None, "the expression matches any text"
    return found[1][:140], found[2][:50]


def _country(place: str) -> str:
    return place.rpartition(",")[2].strip() if "," in place else ""
