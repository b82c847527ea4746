"""Generated graphs have the routers, links and paths that their models say."""

import itertools
import math
from collections import Counter
from random import Random

import igraph
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from topologies.generated_graphs import GeneratedGraph, barabasi_albert, dumbbell, fat_tree, waxman
from topologies.link_graph import Paths
from topologies.reading import InputError

SIDE_MS = 80.0


def pairs_of_links(made: GeneratedGraph) -> list[tuple[int, int]]:
    """The links without their directions, each of which has the same delay."""
    links = made.graph.links
    assert all(
        (one.source, one.destination, one.delay_ms) == (other.destination, other.source, other.delay_ms)
        for one, other in zip(links[::2], links[1::2], strict=True)
    )
    return [tuple(sorted((link.source, link.destination))) for link in links[::2]]


def distance(made: GeneratedGraph, one: int, other: int) -> float:
    return math.dist(made.points[one], made.points[other])


def test_the_hosts_of_a_dumbbell_share_one_link() -> None:
    made = dumbbell(7.0, Random(1))
    assert made.underlay("dumbbell").delay_ms.tolist() == [[0, 7], [7, 0]]
    assert pairs_of_links(made) == [(0, 1)]


@pytest.mark.parametrize("pods", [2, 4, 6, 8])
def test_a_fat_tree_uses_all_core_switches_evenly(pods: int) -> None:
    made, half = fat_tree(pods, 2.0, Random(1)), pods // 2
    assert len(made.graph.routers) == 5 * half * half
    assert len(pairs_of_links(made)) == pods**3 // 2
    assert len(made.sites) * made.hosts_per_site == pods**3 // 4
    degrees = Counter(end for pair in pairs_of_links(made) for end in pair)
    assert {degrees[router] for router in range(len(made.graph.routers)) if router not in made.sites} == {pods}
    assert {degrees[site] for site in made.sites} == {half}  # the other ports are the hosts'
    delay_ms = made.underlay("fat-tree").delay_ms
    paths, crossed = Paths(made.graph), Counter()
    for (row, one), (column, other) in itertools.permutations(enumerate(made.sites), 2):
        hops = 2 if made.regions[row] == made.regions[column] else 4
        assert delay_ms[row, column] == 2.0 * hops
        path = paths.path(one, other)
        assert len(path) == hops
        crossed.update(made.graph.links[number].destination for number in path if hops == 4)
    cores = [crossed[core] for core in range(half * half)]
    assert min(cores) == max(cores) == pods * half * (pods * half - half) / half**2


seeds = st.integers(0, 2**32)


@given(st.integers(2, 25), st.floats(0.01, 1), st.floats(0.01, 1), seeds)
@settings(max_examples=examples(60), deadline=None)
def test_waxman_is_connected_seeded_and_has_delays_by_distance(
    routers: int, alpha: float, beta: float, seed: int
) -> None:
    made = waxman(routers, alpha, beta, SIDE_MS, Random(seed))
    assert made == waxman(routers, alpha, beta, SIDE_MS, Random(seed))
    pairs = pairs_of_links(made)
    assert len(set(pairs)) == len(pairs)
    assert igraph.Graph(routers, pairs).is_connected()
    for link in made.graph.links:
        assert link.delay_ms == pytest.approx(SIDE_MS * distance(made, link.source, link.destination), abs=1e-6)
    underlay = made.underlay("waxman")
    assert [(host.x, host.y) for host in underlay.hosts] == list(made.points)
    apart = SIDE_MS * np.array([[distance(made, a, b) for b in range(routers)] for a in range(routers)])
    assert (underlay.delay_ms >= apart - 1e-5).all()  # no detour is shorter than the straight line


def test_waxman_draws_links_with_the_stated_probability() -> None:
    """Within five standard deviations of the number that the points let expect; alpha and beta both matter."""
    for alpha, beta in ((0.9, 0.5), (0.9, 0.2), (0.3, 1.0)):
        found = expected = variance = 0.0
        for seed in range(40):
            made = waxman(30, alpha, beta, SIDE_MS, Random(seed))
            chances = [
                alpha * math.exp(-distance(made, *pair) / (beta * math.sqrt(2)))
                for pair in itertools.combinations(range(30), 2)
            ]
            drawn = len(pairs_of_links(made))
            found, expected = found + drawn, expected + sum(chances)
            variance += sum(chance * (1 - chance) for chance in chances)
        joins = 40  # few of these graphs have more than one part
        assert abs(found - expected) < 5 * math.sqrt(variance) + joins


def test_the_parts_of_a_waxman_graph_are_joined_by_their_shortest_links() -> None:
    """With nearly no links drawn, the joins are all there is: the links of a minimum spanning tree (Boruvka)."""
    made = waxman(12, 1e-9, 1e-3, SIDE_MS, Random(4))
    complete = list(itertools.combinations(range(12), 2))
    tree = igraph.Graph(12, complete).spanning_tree([distance(made, *pair) for pair in complete])
    assert sorted(pairs_of_links(made)) == sorted(tuple(sorted(pair)) for pair in tree.get_edgelist())


@given(st.integers(2, 40), st.integers(1, 4), seeds)
@settings(max_examples=examples(60), deadline=None)
def test_barabasi_albert_grows_by_links_to_earlier_routers(routers: int, links: int, seed: int) -> None:
    made = barabasi_albert(routers, links, SIDE_MS, Random(seed))
    assert made == barabasi_albert(routers, links, SIDE_MS, Random(seed))
    pairs = pairs_of_links(made)
    assert len(set(pairs)) == len(pairs)
    later = Counter(other for _, other in pairs)
    assert [later[router] for router in range(routers)] == [min(router, links) for router in range(routers)]
    for link in made.graph.links:
        assert link.delay_ms == pytest.approx(SIDE_MS * distance(made, link.source, link.destination), abs=1e-6)


def test_barabasi_albert_has_routers_with_many_links() -> None:
    """Attachment in proportion to links: the largest of 300 routers has far more than with uniform attachment."""
    largest = [
        max(Counter(end for pair in pairs_of_links(made) for end in pair).values())
        for made in (barabasi_albert(300, 2, SIDE_MS, Random(seed)) for seed in range(20))
    ]
    assert np.mean(largest) > 25  # uniform attachment has about 2 (1 + ln 300) = 13


def test_other_draws_of_igraph_are_left_alone() -> None:
    import random

    barabasi_albert(20, 2, SIDE_MS, Random(1))
    state = random.getstate()
    try:
        random.seed(5)
        one = igraph.Graph.Barabasi(20, 2).get_edgelist()
        random.seed(5)
        barabasi_albert(20, 2, SIDE_MS, Random(2))
        assert igraph.Graph.Barabasi(20, 2).get_edgelist() == one
    finally:
        random.setstate(state)


def test_paths_beyond_the_limit_are_refused() -> None:
    with pytest.raises(InputError, match=r"\$.underlay: expected paths of at most 60,000 ms, got 80000"):
        fat_tree(4, 20_000.0, Random(1)).underlay("fat-tree")
