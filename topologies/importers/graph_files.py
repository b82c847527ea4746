"""What the forms of graphs share: from the routers and links of a file to latencies between hosts at its routers.

Odd things follow one rule each, whatever the form: a link from a router to itself is left out; routers with the same
name are numbered; of parallel links, paths take the cheapest; where some routers cannot reach others, the file is
refused, or only the largest connected part is kept (``missing = "drop"``).
"""

from __future__ import annotations

import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import igraph
import numpy as np
from msgspec.structs import replace

from topologies.graph_paths import ask_paths, graph_underlay, largest_connected
from topologies.importers import Options
from topologies.importers.imported import Imported
from topologies.link_graph import MOST_ROUTERS, GraphLink, LinkGraph, Paths, describe_graph, keep_routers
from topologies.provenance import Provenance
from topologies.reading import InputError
from topologies.shadow.quantities import RATES_BIT, TIMES_NS

_TIMES_MS = {unit: factor / 1e6 for unit, factor in TIMES_NS.items()}
_RATES_MBIT = {unit: factor / 1e6 for unit, factor in RATES_BIT.items()}
_QUANTITY = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,30})?)\s*([A-Za-z\u03bc]{1,20})\s*", re.ASCII)

_BASE_CHARACTERS = 190  # of the 200 that a name may have; the rest is for a number

Attributes = dict[str, Any]


def read_graph(path: Path, text: str, form: str, parse: Callable[[str], igraph.Graph]) -> igraph.Graph:
    """Return the nodes and edges of a file with all their attributes.

    Args:
        path: the file, for errors.
        text: its text.
        form: the form's name, for errors.
        parse: reads a file, whose path it gets.

    Raises:
        InputError: the text is not of this form, or has too many nodes.
    """
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="trellis-graph-") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a node's own attribute "id"
        file.write(text)
        file.flush()
        try:
            graph = parse(file.name)
        except (igraph.InternalError, OSError, ValueError) as error:
            raise InputError(str(path), f"expected {form}: {_said(error)}") from None
    if graph.vcount() > MOST_ROUTERS:
        raise InputError(str(path), f"expected at most {MOST_ROUTERS:,} nodes, got more")
    return graph


def _said(error: Exception) -> str:
    """Return what a parser says of a file, without the places of its own code."""
    words = re.sub(r"Error at \S+: ", "", str(error)).partition(" -- ")[0]
    return " ".join(words.split())[:200]


def as_ms(value: object) -> float | None:
    """Return a time such as ``10 ms`` in ms; None if it is none."""
    return in_units(value, _TIMES_MS)


def as_mbit(value: object) -> float | None:
    """Return a rate such as ``100 Mbit`` in Mbit/s; None if it is none."""
    return in_units(value, _RATES_MBIT)


def given(value: object) -> object:
    """Return the value of an attribute; None if there is none, which igraph shows as NaN or as an empty text."""
    return None if value == "" or (isinstance(value, float) and math.isnan(value)) else value


def shown(value: object) -> str:
    """Return how an error shows what ``given`` returned."""
    return "none" if value is None else repr(value)[:50]


def as_text(value: object) -> str:
    """Return a text in one line, at most 200 characters; an empty one if the value is none."""
    return " ".join(value.split())[:200] if isinstance(value, str) else ""


def in_units(value: object, units: Mapping[str, float]) -> float | None:
    """Return a number with a unit, such as ``10 ms``; None if the value is none.

    Args:
        value: an attribute.
        units: the units that it may have, and by what each multiplies.
    """
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None or found[2] not in units:
        return None
    return float(found[1]) * units[found[2]]


def name_routers(names: Sequence[str], notes: list[str]) -> list[str]:
    """Return different names: of those that several routers have, all but the first get a number.

    Args:
        names: of the routers; empty texts become ``router`` and the number.
        notes: gets a sentence if some names changed.
    """
    taken, seen, named = set(names), {""}, []
    untried: dict[str, Iterator[str]] = {}  # by base; what was tried is taken, and stays so
    for number, name in enumerate(names):
        chosen = name
        if name in seen:
            base = name[:_BASE_CHARACTERS] or f"router {number}"
            chosen = next(each for each in untried.setdefault(base, _variants(base)) if each not in taken)
        seen.add(name)
        taken.add(chosen)
        named.append(chosen)
    changed = sum(one != other for one, other in zip(names, named, strict=True) if one)
    if changed:
        notes.append(f"names: {changed} routers have the name of another one, and got a number")
    return named


def _variants(base: str) -> Iterator[str]:
    """Yield a name, and then the name with a number."""
    yield base
    for copy in count(2):
        yield f"{base} ({copy})"


def drop_loops(links: Sequence[GraphLink], notes: list[str]) -> list[GraphLink]:
    """Return the links between different routers; ``notes`` gets a sentence of the others."""
    kept = [link for link in links if link.source != link.destination]
    if len(kept) < len(links):
        notes.append(f"left out: {len(links) - len(kept)} links from a router to itself")
    return kept


def imported_graph(
    kind: str,
    path: Path,
    graph: LinkGraph,
    options: Options,
    provenance: Provenance,
    *,
    regions: Sequence[str],
    rate_mbit: np.ndarray | None = None,
    sites: Sequence[int] | None = None,
) -> Imported:
    """Return the latencies between hosts, one at each site of a graph.

    Args:
        kind: the underlay's kind.
        path: the file, for errors.
        graph: its routers and links.
        options: ``missing`` is used.
        provenance: its notes get what is assumed here.
        regions: of every site.
        rate_mbit: (2, n) rates of the access links of hosts at each site; None = unlimited.
        sites: the routers that have hosts, in ascending order; None = all.

    Raises:
        InputError: there are fewer than two sites or no path between some, or a path is too long.
    """
    notes = [f"graph: {describe_graph(graph)}"]
    if sites is None:
        sites = range(len(graph.routers))
    asked, kept = ask_paths(graph, sites), list(range(len(sites)))
    if not np.isfinite(asked.delay_ms).all():
        kept = largest_connected(asked.delay_ms)
        if options.missing != "drop":
            raise InputError(str(path), _disconnected([graph.routers[site].name for site in sites], kept))
        notes.append(f"dropped: {len(sites) - len(kept)} routers outside the largest connected part")
        graph, sites = _keep_part(graph, sites, kept)
        asked = ask_paths(graph, sites)
    if len(kept) < 2:
        problem = f"expected at least two routers with hosts and a path between them, got {len(kept)}"
        raise InputError(str(path), problem)
    underlay = graph_underlay(kind, str(path), graph, sites, asked)
    if rate_mbit is not None:
        underlay = replace(underlay, rate_mbit=rate_mbit[:, kept])
    provenance = replace(provenance, notes=(*provenance.notes, *notes))
    return Imported(underlay, tuple(regions[site] for site in kept), provenance)


def _keep_part(graph: LinkGraph, sites: Sequence[int], kept: Sequence[int]) -> tuple[LinkGraph, list[int]]:
    """Return the part of a graph with some of its sites and the routers that they reach, and the new sites."""
    inside = {sites[row] for row in kept}
    paths, reached, others = Paths(graph), set(inside), set(range(len(graph.routers))).difference(sites)
    for site in inside:
        reached |= others.intersection(paths.tree(site).order)
    routers = [router for router in range(len(graph.routers)) if router in reached]
    return keep_routers(graph, routers), [number for number, router in enumerate(routers) if router in inside]


def _disconnected(names: Sequence[str], kept: Sequence[int]) -> str:
    inside = set(kept)
    first = next(name for row, name in enumerate(names) if row not in inside)
    text = f"{len(names) - len(kept)} of {len(names)} routers, such as {first}, do not reach the others in both"
    return f'{text} directions; set missing = "drop"'
