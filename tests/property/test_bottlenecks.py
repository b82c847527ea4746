"""Bottlenecks of a graph: which links they are, where they are on paths, and how a delay is divided at them."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.property.test_link_graph import graphs
from topologies.bottlenecks import NO_BOTTLENECKS, Bottlenecks, Stop, jittered_ns, split_ns
from topologies.generated import uniform_underlay
from topologies.graph_paths import ask_paths, largest_connected
from topologies.link_graph import GraphLink, LinkGraph, Paths, Router, keep_routers, limit_links, unlimited
from topologies.network import Network, uniform_network


@st.composite
def placed(draw: st.DrawFn) -> tuple[LinkGraph, tuple[int, ...]]:
    """Draw a connected graph, and the routers of some hosts; several hosts may share one."""
    graph = draw(graphs())
    graph = keep_routers(graph, largest_connected(ask_paths(graph).delay_ms))
    routers = draw(st.lists(st.integers(0, len(graph.routers) - 1), min_size=1, max_size=6))
    return graph, tuple(routers)


@given(placed())
@settings(max_examples=examples(150), deadline=None)
def test_bottlenecks_are_the_links_with_a_rate_on_the_paths_between_hosts(
    example: tuple[LinkGraph, tuple[int, ...]],
) -> None:
    graph, routers = example
    paths, found = Paths(graph), Bottlenecks(graph, routers)
    crossed = {number for source in routers for router in routers for number in paths.path(source, router)}
    rated = [number for number in sorted(crossed) if graph.links[number].rate_mbit]
    assert [each.link for each in found.all] == rated
    for each in found.all:
        link = graph.links[each.link]
        assert (each.rate_mbit, each.queue_ms) == (link.rate_mbit, link.queue_ms)


@given(placed())
@settings(max_examples=examples(150), deadline=None)
def test_stops_are_in_the_order_of_the_path_behind_the_delays_before_them(
    example: tuple[LinkGraph, tuple[int, ...]],
) -> None:
    graph, routers = example
    paths, found = Paths(graph), Bottlenecks(graph, routers)
    sums = found.sums([each.queue_ms for each in found.all])
    for source, start in enumerate(routers):
        for destination, end in enumerate(routers):
            path = paths.path(start, end)
            delays_ms = [graph.links[number].delay_ms for number in path]
            expected = [
                (number, sum(delays_ms[:position]))
                for position, number in enumerate(path)
                if graph.links[number].rate_mbit
            ]
            stops = found.stops(source, destination)
            assert [found.all[stop.bottleneck].link for stop in stops] == [number for number, _ in expected]
            assert [stop.share * sum(delays_ms) for stop in stops] == pytest.approx([before for _, before in expected])
            assert sums[source, destination] == sum(graph.links[number].queue_ms for number, _ in expected)


@given(
    st.integers(0, 10**12), st.lists(st.floats(0, 1), max_size=5).map(sorted), st.floats(0, 1), st.integers(-9, 10**9)
)
def test_the_parts_of_a_delay_add_up_to_it(delay_ns: int, shares: list[float], part: float, offset_ns: int) -> None:
    stops = [Stop(number, share) for number, share in enumerate(shares)]
    parts = split_ns(delay_ns, stops)
    assert len(parts) == len(stops) + 1
    assert min(parts) >= 0
    assert sum(parts) == delay_ns
    for number, share in enumerate(shares):
        assert sum(parts[: number + 1]) == int(delay_ns * share)
    jittered = [jittered_ns(each, delay_ns, offset_ns) for each in parts]
    whole = delay_ns + (offset_ns if delay_ns else 0)
    assert whole - len(parts) <= sum(jittered) <= whole


@given(graphs(), st.sampled_from([0.0, 3.0]), st.floats(1, 9))
@settings(max_examples=examples(50), deadline=None)
def test_links_keep_their_own_rates_and_queues(graph: LinkGraph, rate_mbit: float, queue_ms: float) -> None:
    limited = limit_links(graph, rate_mbit, queue_ms)
    for link, own in zip(limited.links, graph.links, strict=True):
        assert link.rate_mbit == (own.rate_mbit or rate_mbit)
        assert link.queue_ms == ((own.queue_ms or queue_ms) if link.rate_mbit else own.queue_ms)
        assert link.delay_ms == own.delay_ms
    assert not any(link.rate_mbit or link.queue_ms for link in unlimited(limited).links)


CHAIN = LinkGraph(
    tuple(Router(name) for name in "abc"),
    (GraphLink(0, 1, 10.0), GraphLink(1, 2, 30.0, rate_mbit=8.0, queue_ms=20.0), GraphLink(2, 0, 5.0)),
)


def test_a_network_of_a_graph_has_its_bottlenecks_and_keeps_them() -> None:
    network = Network(3, uniform_network(3, 40.0).delay_ms, bottlenecks=Bottlenecks(CHAIN, (0, 1, 2)))
    assert network.stops(0, 2) == (Stop(0, 0.25),)
    assert network.stops(1, 0) == (Stop(0, 0.0),)
    assert network.stops(2, 1) == ()
    assert network.inner_queues_ms[0].tolist() == [0, 0, 20]
    assert network.crossings_ms(1000)[1].tolist() == [41, 40, 41]
    for other in (network.with_pairs(network.asked_of_pairs()), network.without_jitter()):
        assert other.stops(0, 2) == (Stop(0, 0.25),)


def test_a_network_without_rates_has_none() -> None:
    network = Network.of(uniform_underlay(3, 40.0))
    assert network.bottlenecks is NO_BOTTLENECKS
    assert not NO_BOTTLENECKS
    assert network.stops(0, 2) == ()
    assert network.inner_queues_ms.tolist() == np.zeros((3, 3)).tolist()
    assert network.crossings_ms(1000).tolist() == network.asked_of_pairs().delay_ms.tolist()
    assert not Bottlenecks(unlimited(CHAIN), (0, 1, 2))


def test_bottlenecks_are_the_same_after_pickling() -> None:
    found = Bottlenecks(CHAIN, (2, 0))
    again = pickle.loads(pickle.dumps(found))
    assert again.all == found.all
    assert again.stops(1, 0) == found.stops(1, 0) != ()
    assert np.array_equal(again.sums([3.0]), found.sums([3.0]))


def test_a_rate_is_not_too_slow() -> None:
    with pytest.raises(ValueError, match="link 0: expected a rate of 0 or at least"):
        LinkGraph((Router("a"), Router("b")), (GraphLink(0, 1, 1.0, rate_mbit=1e-9),))
