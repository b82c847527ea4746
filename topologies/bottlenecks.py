"""Links of a graph that have a rate: which of them paths between hosts cross, and where on each path they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from topologies.link_graph import LinkGraph, Paths
from topologies.model import Matrix, Underlay


class Bottleneck(NamedTuple):
    """A link with a rate, in one direction: all packets that cross it pass one drop-tail queue, then enter the link.

    Attributes:
        link: its number in the graph.
        rate_mbit: its rate.
        queue_ms: length of its queue, as the time to drain it at its rate.
    """

    link: int
    rate_mbit: float
    queue_ms: float


class Stop(NamedTuple):
    """A bottleneck on the path of a pair of hosts.

    Attributes:
        bottleneck: its number.
        share: the part of the pair's delay that comes before it, 0..1.
    """

    bottleneck: int
    share: float


class Bottlenecks:
    """The bottlenecks between some hosts, each numbered by its index in ``all``.

    Only links that a path between two of the hosts crosses are bottlenecks. Paths are those of the graph: no change of
    a delay leads packets another way.

    Args:
        graph: of the underlay.
        routers: the router of every host.

    Attributes:
        graph, routers: likewise.
        all: the bottlenecks, by their number, in the order of links.
    """

    def __init__(self, graph: LinkGraph, routers: Sequence[int]) -> None:
        self.graph = graph
        self.routers = tuple(routers)
        self._paths = Paths(graph)
        crossed = self._crossed() if any(link.rate_mbit for link in graph.links) else []
        self.all = tuple(
            Bottleneck(number, link.rate_mbit, link.queue_ms)
            for number in crossed
            if (link := graph.links[number]).rate_mbit
        )
        self._numbers = {each.link: number for number, each in enumerate(self.all)}

    @classmethod
    def of(cls, underlay: Underlay) -> Bottlenecks:
        """Return those of an underlay; without a graph there are none."""
        return NO_BOTTLENECKS if underlay.graph is None else cls(underlay.graph, underlay.routers)

    def __len__(self) -> int:
        return len(self.all)

    def __reduce__(self) -> tuple[Any, ...]:
        return Bottlenecks, (self.graph, self.routers)

    def stops(self, source: int, destination: int) -> tuple[Stop, ...]:
        """Return the bottlenecks on the path between two hosts, in its order."""
        if not self.all:
            return ()
        links, found, passed_ms = self.graph.links, [], 0.0
        path = self._paths.path(self.routers[source], self.routers[destination])
        total_ms = sum(links[number].delay_ms for number in path)
        for number in path:
            if (bottleneck := self._numbers.get(number)) is not None:
                found.append(Stop(bottleneck, passed_ms / total_ms if total_ms else 0.0))
            passed_ms += links[number].delay_ms
        return tuple(found)

    def sums(self, values: Sequence[float]) -> Matrix:
        """Return (n, n) sums of a value over the bottlenecks on the path of every pair of hosts; there is at least one.

        Args:
            values: of every bottleneck, by its number.
        """
        of_links = np.zeros(len(self.graph.links))
        of_links[[each.link for each in self.all]] = values
        links, index = self.graph.links, np.array(self.routers)
        sums = np.zeros((len(index), len(index)))
        for source in set(self.routers):
            tree = self._paths.kept_tree(source)
            of_routers = np.zeros(len(self.graph.routers))
            for router in tree.order[1:]:
                number = tree.last[router]
                of_routers[router] = of_routers[links[number].source] + of_links[number]
            sums[index == source] = of_routers[index]
        return sums

    def _crossed(self) -> list[int]:
        """Return the numbers of the links that are on a path between two hosts."""
        ends, crossed = set(self.routers), set()
        for source in ends:
            tree, wanted = self._paths.kept_tree(source), set(ends)
            for router in reversed(tree.order[1:]):
                if router in wanted:
                    number = tree.last[router]
                    crossed.add(number)
                    wanted.add(self.graph.links[number].source)
        return sorted(crossed)


NO_BOTTLENECKS = Bottlenecks(LinkGraph((), ()), ())


def split_ns(delay_ns: int, stops: Sequence[Stop]) -> tuple[int, ...]:
    """Divide the delay of a pair at its bottlenecks: before each, and behind the last one. The sum is the delay."""
    marks = (0, *(int(delay_ns * stop.share) for stop in stops), delay_ns)
    return tuple(later - earlier for earlier, later in pairwise(marks))


def jittered_ns(part_ns: int, delay_ns: int, offset_ns: int) -> int:
    """Return how long a part of a pair's delay takes, if the whole one deviates by an offset: its share of both.

    Args:
        part_ns: the part, without jitter.
        delay_ns: the whole delay, without jitter.
        offset_ns: by how much the whole one deviates at the instant at which a packet enters the part.
    """
    return part_ns + offset_ns * part_ns // delay_ns if delay_ns else part_ns
