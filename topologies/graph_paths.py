"""What the paths of a graph of links ask of packets, as matrices."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from topologies.generated import plain_underlay
from topologies.limits import LARGEST_DELAY_MS
from topologies.link_graph import GraphLink, LinkGraph, Paths, Router
from topologies.model import Host, Matrix, Underlay
from topologies.network import Asked, AskedOfPairs, Link, ask_path
from topologies.reading import InputError


def as_link(link: GraphLink) -> Link:
    """Return a link of a graph as one of a ``Network``."""
    return Link(link.delay_ms, link.jitter_ms, link.loss_ratio, link.rate_mbit, link.queue_ms)


def ask_paths(graph: LinkGraph, sites: Sequence[int] | None = None) -> AskedOfPairs:
    """Return what is asked of the packets between any two routers: what the links of their path do together.

    Where no path leads, the delay is infinite.

    Args:
        graph: its routers and links.
        sites: the routers that have hosts, in the order of the rows; None = all.
    """
    ends = range(len(graph.routers)) if sites is None else sites
    columns, size = {router: column for column, router in enumerate(ends)}, len(ends)
    delay_ms, jitter_ms, loss_ratio = np.full((size, size), np.inf), np.zeros((size, size)), np.zeros((size, size))
    links, paths = [as_link(link) for link in graph.links], Paths(graph)
    for row, source in enumerate(ends):
        tree = paths.tree(source)
        asked: dict[int, Asked] = {}
        for router in tree.order:
            number = tree.last[router]
            before = Asked(0.0) if number < 0 else asked[graph.links[number].source]
            asked[router] = before if number < 0 else ask_path([Link(*before[:3]), links[number]])
            if (column := columns.get(router)) is not None:
                delay_ms[row, column], jitter_ms[row, column], loss_ratio[row, column], _ = asked[router]
    return AskedOfPairs(delay_ms, jitter_ms, loss_ratio)


def largest_connected(delay_ms: Matrix) -> list[int]:
    """Return the rows of the largest set of which each reaches each other; of equal ones that of the lowest number.

    Routers that do not forward may reach one that does not reach the other. Then the set is that of the row with the
    most others, without those that do not reach each one before them.

    Args:
        delay_ms: (n, n) as of ``ask_paths``.
    """
    both = np.isfinite(delay_ms) & np.isfinite(delay_ms.T)
    largest = int(both.sum(axis=1).argmax())
    kept = both[largest]
    if not both[np.ix_(kept, kept)].all():
        chosen = [largest]
        for row in np.flatnonzero(kept):
            if row != largest and both[row, chosen].all():
                chosen.append(int(row))
        return sorted(chosen)
    return [int(row) for row in np.flatnonzero(kept)]


def graph_underlay(kind: str, place: str, graph: LinkGraph, sites: Sequence[int], asked: AskedOfPairs) -> Underlay:
    """Return the underlay with one host at each site of a graph.

    Args:
        kind: the underlay's kind.
        place: the file or key that the graph is from, for errors.
        graph: its routers and links.
        sites: the routers that have hosts.
        asked: ``ask_paths`` of this graph and these sites; every site reaches every other one.

    Raises:
        InputError: a path is too long.
    """
    if asked.delay_ms.max() > LARGEST_DELAY_MS:
        raise InputError(place, f"expected paths of at most {LARGEST_DELAY_MS:,} ms, got {asked.delay_ms.max():g}")
    underlay = plain_underlay(kind, tuple(_host_at(graph.routers[site]) for site in sites), asked.delay_ms)
    return replace(underlay, jitter_ms=asked.jitter_ms, loss_ratio=asked.loss_ratio, graph=graph, routers=tuple(sites))


def _host_at(router: Router) -> Host:
    return Host(
        name=router.name,
        site=router.name,
        country=router.country,
        latitude=router.latitude,
        longitude=router.longitude,
    )
