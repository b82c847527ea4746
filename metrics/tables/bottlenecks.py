"""Find which packets between nodes cross each bottleneck, and what they met there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from metrics.pcap.walk import Bools, Ints
from metrics.tables.schemas import schema_of
from topologies.bottlenecks import Bottlenecks, Stop

QUEUES: Final = schema_of("""
    link int, rate_mbit double, queue_ms double, queue_drops bigint, wait_ms_p50 double, wait_ms_p99 double,
    wait_ms_max double
""")
"""A bottleneck: its link in the graph of the underlay; the packets that met its full queue and did not arrive; how long
packets waited in it (null: no packet passed)."""


@dataclass(frozen=True)
class Crossed:
    """The bottlenecks on the paths between nodes; false if there are none.

    Attributes:
        bottlenecks: the bottlenecks of the network.
        hosts: the host of every node.
    """

    bottlenecks: Bottlenecks
    hosts: Mapping[int, int]

    def __bool__(self) -> bool:
        return bool(self.bottlenecks)

    def stops(self, source: int, destination: int) -> tuple[Stop, ...]:
        """Return the bottlenecks on the path between two nodes; none if one of the nodes has no host."""
        hosts = self.hosts
        return (
            self.bottlenecks.stops(hosts[source], hosts[destination]) if {source, destination} <= hosts.keys() else ()
        )

    def through(self, source: Ints, destination: Ints) -> Bools:
        """Return which packets cross a bottleneck, (n,), by their nodes; -1 stands for no node."""
        if not self:
            return np.zeros(len(source), np.bool_)
        pairs, pair = number_pairs(source, destination)
        return np.array([bool(self.stops(*ends)) for ends in pairs.tolist()], np.bool_)[pair]

    def count(self, source: Ints, destination: Ints) -> Ints:
        """Return how many packets cross each bottleneck, by its number."""
        counts = np.zeros(len(self.bottlenecks), np.int64)
        if self:
            pairs, pair = number_pairs(source, destination)
            for ends, packets in zip(pairs.tolist(), np.bincount(pair, minlength=len(pairs)).tolist(), strict=True):
                for stop in self.stops(*ends):
                    counts[stop.bottleneck] += packets
        return counts

    def name(self, number: int) -> str:
        """Return the name of a bottleneck for people."""
        graph = self.bottlenecks.graph
        link = graph.links[self.bottlenecks.all[number].link]
        return f"link from {graph.routers[link.source].name} to {graph.routers[link.destination].name}"


def number_pairs(source: Ints, destination: Ints) -> tuple[Ints, Ints]:
    """Return the different pairs as (pairs, 2), and the number of each row's pair."""
    pairs, pair = np.unique(np.stack([source, destination], axis=1), axis=0, return_inverse=True)
    return pairs.reshape(-1, 2), pair.reshape(-1)
