"""A network of routers and links, and the path that packets take between any two routers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from topologies.limits import FASTEST_MBIT, LARGEST_DELAY_MS, SLOWEST_MBIT, Name

MOST_ROUTERS = 10_000
"""Limit on the routers of a graph, as on hosts."""

_Number = Annotated[int, Meta(ge=0)]


class Router(Struct, frozen=True, omit_defaults=True):
    """A node of a graph. Position in degrees; None = not known.

    ``forwards`` is false for a host with links of its own: paths begin and end there, but none leads through it.
    """

    name: Name
    country: Name = ""
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None
    forwards: bool = True


class GraphLink(Struct, frozen=True, omit_defaults=True):
    """A link between two routers, in one direction.

    Attributes:
        source: the number of the router that it leaves.
        destination: that of the router that it leads to, another one.
        delay_ms: time to cross it.
        jitter_ms: standard deviation of that time.
        loss_ratio: probability that it loses a packet.
        cost: what a path over it costs; None = its delay.
        rate_mbit: 0 = unlimited.
        queue_ms: length of its drop-tail queue, as the time to drain it at its rate.
    """

    source: _Number
    destination: _Number
    delay_ms: Annotated[float, Meta(ge=0, le=LARGEST_DELAY_MS)]
    jitter_ms: Annotated[float, Meta(ge=0, le=LARGEST_DELAY_MS)] = 0.0
    loss_ratio: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    cost: Annotated[float, Meta(ge=0)] | None = None
    rate_mbit: Annotated[float, Meta(ge=0, le=FASTEST_MBIT)] = 0.0
    queue_ms: Annotated[float, Meta(ge=0, le=LARGEST_DELAY_MS)] = 0.0


class LinkGraph(Struct, frozen=True):
    """Routers and links, each numbered by its index. Two routers may have several links in the same direction.

    The path between two routers is the one with the least cost (the sum of its links' costs), of these the one with the
    fewest links, and of these the one whose links have the lowest numbers, compared from the destination back. No path
    leads through a router that does not forward.
    """

    routers: tuple[Router, ...]
    links: tuple[GraphLink, ...]

    def __post_init__(self) -> None:
        """Check the ends of links.

        Raises:
            ValueError: an end is no router, or both are the same; or a rate is too slow.
        """
        for number, link in enumerate(self.links):
            if 0 < link.rate_mbit < SLOWEST_MBIT:
                raise ValueError(f"link {number}: expected a rate of 0 or at least {SLOWEST_MBIT:g} Mbit/s")
            if max(link.source, link.destination) >= len(self.routers) or link.source == link.destination:
                raise ValueError(f"link {number}: expected two different routers, numbers below {len(self.routers)}")


class Tree(NamedTuple):
    """The paths from one router to all others.

    Attributes:
        order: the routers that it reaches, itself first, each after the router before it on its path.
        last: of every router the number of the last link of its path; -1 = the router itself, or no path leads there.
    """

    order: list[int]
    last: list[int]


class Paths:
    """The paths through a graph (see ``LinkGraph``).

    Args:
        graph: its routers and links.
    """

    def __init__(self, graph: LinkGraph) -> None:
        self._graph = graph
        self._costs = [link.delay_ms if link.cost is None else link.cost for link in graph.links]
        self._leaving: list[list[int]] = [[] for _ in graph.routers]
        for number, link in enumerate(graph.links):
            self._leaving[link.source].append(number)
        self._trees: dict[int, Tree] = {}

    def tree(self, source: int) -> Tree:
        """Return the paths from a router to all others.

        Source: E. W. Dijkstra, A note on two problems in connexion with graphs, Numerische Mathematik 1, 1959.
        """
        order: list[int] = []
        last = [-1] * len(self._graph.routers)
        reached = [False] * len(self._graph.routers)
        waiting = [(0.0, 0, -1, source)]
        while waiting:
            cost, links, number, router = heappop(waiting)
            if reached[router]:
                continue
            reached[router] = True
            order.append(router)
            last[router] = number
            if not (router == source or self._graph.routers[router].forwards):
                continue
            for leaving in self._leaving[router]:
                if not reached[end := self._graph.links[leaving].destination]:
                    heappush(waiting, (cost + self._costs[leaving], links + 1, leaving, end))
        return Tree(order, last)

    def kept_tree(self, source: int) -> Tree:
        """Return the same, and keep it, so that the paths from this router take little time from now on."""
        if (tree := self._trees.get(source)) is None:
            tree = self._trees[source] = self.tree(source)
        return tree

    def path(self, source: int, destination: int) -> tuple[int, ...]:
        """Return the numbers of the links of the path between two routers, in their order; none if there is no path.

        The tree of the source is kept.
        """
        tree, links = self.kept_tree(source), []
        while (number := tree.last[destination]) >= 0:
            links.append(number)
            destination = self._graph.links[number].source
        return tuple(reversed(links))


def describe_graph(graph: LinkGraph) -> str:
    """Return in a sentence how many routers and links a graph has, and what paths go by."""
    pairs = Counter((link.source, link.destination) for link in graph.links)
    parallel = len(graph.links) - len(pairs)
    by = "cost" if any(link.cost is not None for link in graph.links) else "delay"
    text = f"{len(graph.routers)} routers, {len(graph.links)} links (each direction counts), paths by {by}"
    return f"{text}; {parallel} links are parallel to others, and paths take the cheapest" if parallel else text


def limit_links(graph: LinkGraph, rate_mbit: float, queue_ms: float) -> LinkGraph:
    """Return the graph with a rate for every link that has none, and a queue for every link with a rate that has none.

    Args:
        graph: its links keep the values that they have.
        rate_mbit: 0 = no rate.
        queue_ms: length of a queue, as the time to drain it at the rate of its link.
    """
    limited = (replace(link, rate_mbit=link.rate_mbit or rate_mbit) for link in graph.links)
    links = (replace(link, queue_ms=link.queue_ms or queue_ms) if link.rate_mbit else link for link in limited)
    return LinkGraph(graph.routers, tuple(links))


def unlimited(graph: LinkGraph) -> LinkGraph:
    """Return the graph without rates."""
    return LinkGraph(graph.routers, tuple(replace(link, rate_mbit=0.0, queue_ms=0.0) for link in graph.links))


def keep_routers(graph: LinkGraph, kept: Iterable[int]) -> LinkGraph:
    """Return the graph of some routers, in this order, and the links between them."""
    routers = list(kept)
    numbers = {router: number for number, router in enumerate(routers)}
    links = tuple(
        replace(link, source=numbers[link.source], destination=numbers[link.destination])
        for link in graph.links
        if link.source in numbers and link.destination in numbers
    )
    return LinkGraph(tuple(graph.routers[router] for router in routers), links)
