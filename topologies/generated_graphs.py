"""Graphs of routers and links that are computed, not measured: dumbbell, fat tree, Waxman, Barabasi-Albert.

Every link exists in both directions. All draws are from the generator that is given, so the same seed gives the same
graph. ``topologies.graph_kinds`` has the kinds with the keys that their functions take.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import exp, hypot, sqrt
from random import Random
from typing import NamedTuple

import igraph
import numpy as np
from msgspec.structs import replace

from topologies.generated import draw_points
from topologies.graph_paths import ask_paths, graph_underlay
from topologies.link_graph import GraphLink, LinkGraph, Router
from topologies.model import Underlay

Points = Sequence[tuple[float, float]]


class GeneratedGraph(NamedTuple):
    """A graph, and where its hosts can be.

    Attributes:
        graph: its routers and links.
        sites: the routers that can have hosts.
        regions: of every site, over which a sample is spread.
        points: the position of every router in the unit square; empty = they have none.
        hosts_per_site: how many hosts a site has unless the experiment sets their number.
    """

    graph: LinkGraph
    sites: tuple[int, ...]
    regions: tuple[str, ...]
    points: Points = ()
    hosts_per_site: int = 1

    def underlay(self, kind: str) -> Underlay:
        """Return the underlay with one host at each site.

        Raises:
            InputError: a path is too long.
        """
        made = graph_underlay(kind, "$.underlay", self.graph, self.sites, ask_paths(self.graph, self.sites))
        if not self.points:
            return made
        hosts = (replace(host, x=x, y=y) for host, (x, y) in zip(made.hosts, self.points, strict=True))
        return replace(made, hosts=tuple(hosts))


def dumbbell(delay_ms: float, _draws: Random) -> GeneratedGraph:
    """Return two routers with one link between them, which all packets between their hosts share."""
    graph = LinkGraph((Router("left"), Router("right")), _both_ways([(0, 1)], [delay_ms]))
    return GeneratedGraph(graph, (0, 1), ("", ""), hosts_per_site=10)


def fat_tree(pods: int, delay_ms: float, _draws: Random) -> GeneratedGraph:
    """Return the switches of a fat tree, with sites at its edge switches, one region per pod.

    Two edge switches of different pods have ``(pods / 2) ** 2`` paths of the same length. The costs of the links down
    choose one by its destination (D-mod-k): aggregation switch j leads to edge switch j, and core switch i of each
    group to the pods i and i + ``pods / 2``. So packets between all pairs use all core switches evenly.

    Args:
        pods: an even number; each pod has half as many edge and as many aggregation switches.
        delay_ms: of every link.

    Source: M. Al-Fares, A. Loukissas, A. Vahdat, A scalable, commodity data center network architecture, SIGCOMM 2008,
    section 3; E. Zahavi et al., Optimized InfiniBand fat-tree routing for shift all-to-all communication patterns,
    Concurrency and Computation 22(2), 2010.
    """
    half = pods // 2
    names = [f"core {group}.{number}" for group in range(half) for number in range(half)]
    links: list[GraphLink] = []
    sites: list[int] = []
    for pod in range(pods):
        first = len(names)
        names += [f"{kind} {pod}.{number}" for kind in ("aggregation", "edge") for number in range(half)]
        sites += range(first + half, first + pods)
        for one in range(half):
            for other in range(half):
                links += _up_and_down(first + one, one * half + other, delay_ms, is_chosen=other == pod % half)
                links += _up_and_down(first + half + other, first + one, delay_ms, is_chosen=one == other)
    regions = tuple(f"pod {pod}" for pod in range(pods) for _ in range(half))
    return GeneratedGraph(
        LinkGraph(tuple(map(Router, names)), tuple(links)), tuple(sites), regions, hosts_per_site=half
    )


def _up_and_down(lower: int, upper: int, delay_ms: float, *, is_chosen: bool) -> tuple[GraphLink, GraphLink]:
    """Return a link of a fat tree. Two links down on a path that are not chosen cost less than another link."""
    down = GraphLink(upper, lower, delay_ms, cost=1.0 if is_chosen else 1.25)
    return GraphLink(lower, upper, delay_ms, cost=1.0), down


def waxman(routers: int, alpha: float, beta: float, side_ms: float, draws: Random) -> GeneratedGraph:
    """Return routers at random points, two of which have a link with a probability that falls with their distance.

    The probability is ``alpha * exp(-distance / (beta * sqrt(2)))``. A graph in parts is joined: the smallest part gets
    the shortest link to another part, until there is one part.

    Args:
        routers: how many.
        alpha: more links if larger.
        beta: more long links if larger.
        side_ms: the delay of a link as long as the side of the square.
        draws: where everything random comes from.

    Source: B. M. Waxman, Routing of multipoint connections, IEEE Journal on Selected Areas in Communications 6(9),
    1988, section V (RG1).
    """
    points = draw_points(routers, draws)
    reach = beta * sqrt(2)
    ends = [
        (one, other)
        for one in range(routers)
        for other in range(one)
        if draws.random() < alpha * exp(-_distance(points[one], points[other]) / reach)
    ]
    return _at_points(points, _joined(points, ends), side_ms)


def barabasi_albert(routers: int, links_per_router: int, side_ms: float, draws: Random) -> GeneratedGraph:
    """Return routers of which each new one has links to earlier ones, drawn in proportion to the links that they have.

    The model has no distances. The routers get random points, as those of ``waxman``, for the delays of links.

    Args:
        routers: how many.
        links_per_router: links that each router adds, or to all earlier ones if they are fewer.
        side_ms: the delay of a link as long as the side of the square.
        draws: where everything random comes from.

    Source: A.-L. Barabasi, R. Albert, Emergence of scaling in random networks, Science 286, 1999.
    """
    points = draw_points(routers, draws)
    with _igraph_draws(draws):
        grown = igraph.Graph.Barabasi(routers, links_per_router)
    return _at_points(points, grown.get_edgelist(), side_ms)


@contextmanager
def _igraph_draws(draws: Random) -> Iterator[None]:
    """Let igraph draw from a generator; then from Python's own, as when it was imported."""
    igraph.set_random_number_generator(draws)
    try:
        yield
    finally:
        igraph.set_random_number_generator(random)


def _joined(points: Points, ends: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the links, and those that join the parts of the graph."""
    joined = list(ends)
    parts = [set(part) for part in igraph.Graph(len(points), joined).connected_components()]
    places = np.array(points)
    while len(parts) > 1:
        smallest = parts.pop(min(range(len(parts)), key=lambda number: (len(parts[number]), min(parts[number]))))
        inside = sorted(smallest)
        outside = [router for router in range(len(points)) if router not in smallest]
        apart = np.hypot(*(places[inside][:, None] - places[outside]).transpose(2, 0, 1))
        row, column = divmod(int(apart.argmin()), len(outside))
        joined.append((inside[row], outside[column]))
        next(part for part in parts if outside[column] in part).update(smallest)
    return joined


def _at_points(points: Points, ends: Sequence[tuple[int, int]], side_ms: float) -> GeneratedGraph:
    """Return the graph of routers at points, all of which are sites, with delays by distance."""
    delays_ms = [_distance(points[one], points[other]) * side_ms for one, other in ends]
    routers = tuple(Router(f"router {number}") for number in range(len(points)))
    graph = LinkGraph(routers, _both_ways(ends, delays_ms))
    return GeneratedGraph(graph, tuple(range(len(routers))), ("",) * len(routers), points)


def _both_ways(ends: Iterable[tuple[int, int]], delays_ms: Iterable[float]) -> tuple[GraphLink, ...]:
    return tuple(
        GraphLink(source, destination, round(delay_ms, 6))
        for (one, other), delay_ms in zip(ends, delays_ms, strict=True)
        for source, destination in ((one, other), (other, one))
    )


def _distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    return hypot(one[0] - other[0], one[1] - other[1])
