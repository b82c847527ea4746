"""The lower bound of trees against the smallest tree that a search over all of them finds."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.measures.steiner import Matrix, bound_tree, shortest_paths
from tests.examples import examples


@st.composite
def networks(draw: st.DrawFn) -> Matrix:
    """One-way delays that are not symmetric and of which direct ones need not be the shortest."""
    size = draw(st.integers(1, 6))
    rows = st.lists(st.integers(0, 20), min_size=size, max_size=size)
    delays = np.array(draw(st.lists(rows, min_size=size, max_size=size)), np.float64)
    np.fill_diagonal(delays, 0)
    return delays


def spanning_tree(lengths: Matrix, hosts: tuple[int, ...]) -> float:
    """The cost of a minimum spanning tree (Kruskal)."""
    tree_of = {host: host for host in hosts}
    cost = 0.0
    for one, other in sorted(combinations(hosts, 2), key=lambda pair: lengths[pair]):
        if tree_of[one] != tree_of[other]:
            cost += lengths[one, other]
            merged = tree_of[other]
            tree_of = {host: tree_of[one] if tree == merged else tree for host, tree in tree_of.items()}
    return cost


@given(networks())
def test_shortest_paths_are_those_over_any_hosts(delays: Matrix) -> None:
    """Bellman's equation, and no length that no path has."""
    found = shortest_paths(delays)
    direct = np.minimum(delays, delays.T)
    assert (found == found.T).all()
    assert (found.diagonal() == 0).all()
    assert (found <= direct).all()
    for one, other in combinations(range(len(found)), 2):
        over = min(found[one, via] + direct[via, other] for via in range(len(found)) if via != other)
        assert found[one, other] == min(direct[one, other], over)


@settings(max_examples=examples(200))
@given(networks(), st.data())
def test_no_tree_that_connects_the_terminals_costs_less_than_the_bound(delays: Matrix, data: st.DataObject) -> None:
    size = len(delays)
    terminals = tuple(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size, unique=True)))
    others = [host for host in range(size) if host not in terminals]
    lengths = shortest_paths(delays)
    smallest = min(
        spanning_tree(lengths, (*terminals, *some))
        for count in range(len(others) + 1)
        for some in combinations(others, count)
    )
    bound = bound_tree(lengths, terminals)
    assert bound <= smallest + 1e-9
    count = len(terminals)
    if count > 1:
        assert bound == pytest.approx(spanning_tree(lengths, terminals) / (2 * (1 - 1 / count)))
        assert smallest <= 2 * (1 - 1 / count) * bound + 1e-9
    if count == 2:
        assert bound == lengths[terminals]


def test_fewer_than_two_terminals_cost_nothing() -> None:
    lengths = shortest_paths(np.ones((3, 3)))
    assert bound_tree(lengths, []) == bound_tree(lengths, [2]) == 0


def test_the_bound_is_reached_by_a_star_around_another_host() -> None:
    """Terminals at distance 2 of each other and 1 of the hub: tree 3, spanning tree 4, bound 4 / (2 * 2/3) = 3."""
    delays = np.full((4, 4), 9.0)
    delays[3, :3] = 1
    assert bound_tree(shortest_paths(delays), [0, 1, 2]) == pytest.approx(3)
