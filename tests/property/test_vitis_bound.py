"""The fewest relays that connect a topic's subscribers: a lower bound and a tree, against all subsets of the relays."""

import json
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.vitis import bound_relays, find_relays, main
from tests.examples import examples

Links = list[list[int]]


def link(nodes: int, pairs: set[tuple[int, int]]) -> Links:
    links: list[set[int]] = [set() for _ in range(nodes)]
    for one, other in pairs:
        links[one].add(other)
        links[other].add(one)
    return [sorted(peers - {node}) for node, peers in enumerate(links)]


def is_connected(nodes: set[int], links: Links) -> bool:
    reached = {min(nodes)}
    while ahead := {peer for node in reached for peer in links[node]} & nodes - reached:
        reached |= ahead
    return reached == nodes


def fewest_relays(members: set[int], links: Links) -> int:
    others = set(range(len(links))) - members
    subsets = (set(some) for count in range(len(others) + 1) for some in combinations(sorted(others), count))
    return next(len(some) for some in subsets if is_connected(members | some, links))


@pytest.mark.parametrize(
    ("nodes", "pairs", "members", "relays"),
    [
        (2, {(0, 1)}, {0, 1}, 0),
        (4, {(0, 1), (1, 2), (2, 3)}, {0, 3}, 2),
        (5, {(0, 4), (1, 4), (2, 4), (3, 4)}, {0, 1, 2, 3}, 1),
        (6, {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)}, {0, 1, 3}, 1),
        (7, {(0, 3), (3, 4), (4, 1), (0, 5), (5, 6), (6, 2)}, {0, 1, 2}, 4),
    ],
)
def test_of_simple_graphs_both_are_the_fewest(
    nodes: int, pairs: set[tuple[int, int]], members: set[int], relays: int
) -> None:
    links = link(nodes, pairs)
    assert fewest_relays(members, links) == relays
    assert (bound_relays(members, links), find_relays(members, links)) == (relays, relays)


@settings(max_examples=examples(100))
@given(st.data())
def test_the_bound_is_never_above_and_the_tree_never_below_the_fewest(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(3, 9))
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    tree = {(node, data.draw(st.integers(0, node - 1))) for node in range(1, nodes)}
    links = link(nodes, tree | data.draw(st.sets(pair, max_size=8)))
    members = data.draw(st.sets(st.integers(0, nodes - 1), min_size=1))
    fewest = fewest_relays(members, links)
    assert bound_relays(members, links) <= fewest <= find_relays(members, links)
    assert fewest == 0 or bound_relays(members, links) > 0, "clusters that are apart need a relay"


def test_members_that_are_not_connected_are_refused() -> None:
    with pytest.raises(ValueError, match="do not connect"):
        bound_relays({0, 2}, link(4, {(0, 1), (2, 3)}))


def test_the_bound_is_below_the_tree_and_the_tree_below_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--nodes", "1000", "--patterns", "random", "--topics", "4", "--bound", "--json"]
    assert main(given) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(0 <= row["least"] <= row["found"] <= row["once"] for row in rows.values())
    assert any(row["least"] > 0 for row in rows.values())
