"""Count what copies of messages do to the links of an underlay's graph: which links they cross, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from metrics.measures.steiner import MOST_HOSTS, Matrix, bound_tree, shortest_paths
from topologies.link_graph import LinkGraph, Paths
from topologies.model import Underlay

Ints = npt.NDArray[np.int64]


class Through(NamedTuple):
    """The routes of packets between nodes.

    Attributes:
        graph: the graph of the underlay.
        routers: the router of every node's host; -1 for a node without a host.
    """

    graph: LinkGraph
    routers: npt.NDArray[Any]

    @classmethod
    def of(cls, underlay: Underlay, hosts: Mapping[int, int]) -> Through | None:
        """Return the routes of an underlay; None if it has no graph.

        Args:
            underlay: the underlay of the run.
            hosts: the host of every node.
        """
        if underlay.graph is None:
            return None
        routers = np.full(max(hosts) + 1, -1)
        routers[list(hosts)] = [underlay.routers[host] for host in hosts.values()]
        return cls(underlay.graph, routers)

    def has(self, nodes: Ints) -> npt.NDArray[np.bool_]:
        """Return which of some nodes have a host, (n,)."""
        return np.isin(nodes, np.flatnonzero(self.routers >= 0))


class Routes(NamedTuple):
    """The paths of some pairs of nodes.

    Attributes:
        lengths: (pairs,) how many links each path has.
        links: the numbers of the links, path after path.
    """

    lengths: Ints
    links: Ints

    @classmethod
    def of(cls, through: Through, pairs: Ints) -> Routes:
        """Return the paths of (pairs, 2) senders and receivers."""
        paths = Paths(through.graph)
        routes = [paths.path(*ends) for ends in through.routers[pairs].tolist()]
        lengths = np.array([len(route) for route in routes], np.int64)
        return cls(lengths, np.array([link for route in routes for link in route], np.int64))

    def crossed(self, pair: Ints) -> Ints:
        """Return the links of the paths of some pairs, path after path; a pair may occur several times."""
        begins = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[pair]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.asarray(self.links[np.repeat(begins[pair], lengths) + within])


def count_copies(routes: Routes, pair: Ints, message: Ints, size: int) -> Ints:
    """Return (3, links) the copies and messages that crossed each link, and the most copies of one message.

    Args:
        routes: the paths of the pairs.
        pair: the number of each copy's pair.
        message: a number of each copy's message.
        size: number of links.
    """
    both, count = np.unique(np.repeat(message, routes.lengths[pair]) * size + routes.crossed(pair), return_counts=True)
    found = np.zeros((3, size), np.int64)
    np.add.at(found[0], both % size, count)
    np.add.at(found[1], both % size, 1)
    np.maximum.at(found[2], both % size, count)
    return found


def find_busiest(routes: Routes, copies: Ints) -> Ints:
    """Return for each path the link that most copies crossed, and of several the first; without empty paths."""
    parts = np.split(routes.links, np.cumsum(routes.lengths)[:-1])
    return np.array([part[np.argmax(copies[part])] for part in parts if len(part)], np.int64)


def count_links_between(graph: LinkGraph) -> Matrix | None:
    """Return (routers, routers) the fewest links between two routers; None above ``MOST_HOSTS`` routers.

    A link counts in both directions.
    """
    size = len(graph.routers)
    if size > MOST_HOSTS:
        return None
    steps = np.full((size, size), np.inf)
    for link in graph.links:
        steps[link.source, link.destination] = 1
    return shortest_paths(steps)


def bound_crossings(between: Matrix, routers: Sequence[int]) -> int:
    """Return the least number of links of a tree that connects some routers (the Steiner tree), or a lower bound.

    A tree of t routers has at least t - 1 links. If these are not enough, the bound of ``bound_tree`` may be higher.

    Args:
        between: ``count_links_between``.
        routers: the routers; a router may occur several times.
    """
    different = sorted(set(routers))
    return max(ceil(bound_tree(between, different) - 1e-9), len(different) - 1)
