"""Paths through graphs: as short as igraph's, and the one that the rule for ties names."""

import itertools

import igraph
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from topologies.graph_paths import as_link, ask_paths, largest_connected
from topologies.link_graph import GraphLink, LinkGraph, Paths, Router, keep_routers
from topologies.network import ask_path


@st.composite
def graphs(draw: st.DrawFn) -> LinkGraph:
    size = draw(st.integers(1, 7))
    ends = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda pair: pair[0] != pair[1])
    values = st.tuples(
        st.integers(0, 3).map(float),
        st.sampled_from([0.0, 3.0, 4.0]),
        st.sampled_from([0.0, 0.5]),
        st.none() | st.integers(0, 3).map(float),
        st.sampled_from([0.0, 10.0]),
        st.sampled_from([0.0, 50.0]),
    )
    links = draw(st.lists(st.tuples(ends, values), max_size=15)) if size > 1 else []
    return LinkGraph(
        tuple(Router(f"r{number}") for number in range(size)),
        tuple(GraphLink(*pair, *value) for pair, value in links),
    )


def costs(graph: LinkGraph) -> list[float]:
    return [link.delay_ms if link.cost is None else link.cost for link in graph.links]


def all_paths(graph: LinkGraph, source: int, destination: int) -> list[tuple[int, ...]]:
    """Every path that meets no router twice, as numbers of links."""
    found, waiting = [], [((), source, {source})]
    while waiting:
        path, router, met = waiting.pop()
        if router == destination:
            found.append(path)
            continue
        for number, link in enumerate(graph.links):
            if link.source == router and link.destination not in met:
                waiting.append(((*path, number), link.destination, met | {link.destination}))
    return found


@given(graphs())
@settings(max_examples=examples(200), deadline=None)
def test_a_path_is_the_cheapest_and_of_these_the_shortest(graph: LinkGraph) -> None:
    edges = [(link.source, link.destination) for link in graph.links]
    reference = igraph.Graph(len(graph.routers), edges, directed=True)
    least = np.array(reference.distances(weights=costs(graph) or None))
    paths = Paths(graph)
    for source in range(len(graph.routers)):
        tree = paths.tree(source)
        assert set(tree.order) == set(np.flatnonzero(np.isfinite(least[source])))
        for destination in tree.order:
            path = paths.path(source, destination)
            total = sum(costs(graph)[number] for number in path)
            assert total == least[source, destination]
            best = [
                each for each in all_paths(graph, source, destination) if sum(costs(graph)[n] for n in each) == total
            ]
            fewest = min(map(len, best))
            assert len(path) == fewest
            assert path[::-1][:1] == min(each[::-1][:1] for each in best if len(each) == fewest)
            for one, other in itertools.pairwise(path):
                assert graph.links[one].destination == graph.links[other].source


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_what_is_asked_of_a_pair_is_what_its_links_do(graph: LinkGraph) -> None:
    asked, paths = ask_paths(graph), Paths(graph)
    for source in range(len(graph.routers)):
        tree = paths.tree(source)
        for destination in range(len(graph.routers)):
            if destination not in tree.order:
                assert asked.delay_ms[source, destination] == np.inf
                continue
            expected = ask_path(as_link(graph.links[number]) for number in paths.path(source, destination))
            got = [matrix[source, destination] for matrix in asked]
            assert got == pytest.approx(list(expected[:3]))


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_the_largest_part_is_connected_and_none_is_larger(graph: LinkGraph) -> None:
    kept = largest_connected(ask_paths(graph).delay_ms)
    edges = [(link.source, link.destination) for link in graph.links]
    parts = igraph.Graph(len(graph.routers), edges, directed=True).connected_components(mode="strong")
    assert len(kept) == max(parts.sizes())
    assert np.isfinite(ask_paths(keep_routers(graph, kept)).delay_ms).all()


@given(graphs(), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_links_between_kept_routers_keep_their_values(graph: LinkGraph, data: st.DataObject) -> None:
    kept = data.draw(st.permutations(range(len(graph.routers))))[: data.draw(st.integers(1, len(graph.routers)))]
    numbers = {router: number for number, router in enumerate(kept)}
    expected = [
        replace(link, source=numbers[link.source], destination=numbers[link.destination])
        for link in graph.links
        if {link.source, link.destination} <= {*kept}
    ]
    found = keep_routers(graph, kept)
    assert [router.name for router in found.routers] == [f"r{router}" for router in kept]
    assert list(found.links) == expected


@pytest.mark.parametrize("ends", [(0, 0), (0, 2), (2, 0)])
def test_a_link_has_two_routers_of_the_graph(ends: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected two different routers"):
        LinkGraph((Router("a"), Router("b")), (GraphLink(*ends, 1.0),))
