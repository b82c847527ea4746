"""The measures of overlays against plain searches over small graphs, and on graphs whose values are known."""

import itertools
from collections import deque
from math import sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.measures.snapshots import measure_overlay
from metrics.overlay import paths
from metrics.overlay.graph import measure_graph
from metrics.overlay.interests import correlate, correlate_topics, intersect_top
from metrics.overlay.nodes import count_links
from metrics.overlay.paths import count_distances, shortest_paths
from metrics.overlay.snapshot import Snapshot
from metrics.overlay.topics import measure_topics
from tests.examples import examples

Arcs = set[tuple[int, int]]

TOPICS = 5


@st.composite
def overlays(draw: st.DrawFn) -> tuple[list[int], Arcs, list[tuple[int, int]], set[tuple[int, int, int]]]:
    """Node numbers with gaps, some of them up; subscriptions, links (some twice) and views of any of them."""
    numbers = draw(st.lists(st.integers(0, 60), min_size=1, max_size=14, unique=True))
    node, topic = st.sampled_from(numbers), st.integers(0, TOPICS - 1)
    up = draw(st.lists(node, unique=True, min_size=1))
    interests = draw(st.sets(st.tuples(node, topic), max_size=40))
    links = draw(st.lists(st.tuples(node, node), max_size=40))
    views = draw(st.sets(st.tuples(node, node, topic).filter(lambda row: row[0] != row[1]), max_size=60))
    return up, interests, links, views


def distances(nodes: set[int], arcs: Arcs, source: int) -> dict[int, int]:
    """Links from the source to every node that it reaches, itself included."""
    found, queue = {source: 0}, deque([source])
    while queue:
        node = queue.popleft()
        for peer in nodes - found.keys():
            if (node, peer) in arcs:
                found[peer] = found[node] + 1
                queue.append(peer)
    return found


def both_ways(links: list[tuple[int, int]]) -> Arcs:
    return {pair for a, b in links if a != b for pair in ((a, b), (b, a))}


def components(nodes: set[int], arcs: Arcs) -> set[frozenset[int]]:
    """Sets of nodes that reach each other along the arcs, both ways."""
    reach = {node: distances(nodes, arcs, node).keys() for node in nodes}
    return {frozenset(peer for peer in reach[node] if node in reach[peer]) for node in nodes}


def diameter(nodes: set[int], arcs: Arcs) -> int:
    return max((max(distances(nodes, arcs, node).values()) for node in nodes), default=0)


@given(overlays(), st.sets(st.integers(0, 60)))
@settings(max_examples=examples(150), deadline=None)
def test_adversaries_are_neighbours_of_honest_nodes_and_nothing_else(overlay, adversaries) -> None:
    up, interests, links, views = overlay
    honest = sorted(set(up) - adversaries)
    whole = (list(interests), links, list(views))
    snapshot = Snapshot.of(up, *whole, adversaries, openings=links)
    assert measure_graph(snapshot) == measure_graph(Snapshot.of(honest, *whole))
    assert measure_topics(snapshot) == measure_topics(Snapshot.of(honest, *whole))
    everybody = count_links(Snapshot.of(up, *whole, openings=links))
    mine = [sorted(up).index(node) for node in honest]
    counted = count_links(snapshot)
    for name in ("view_size_total", "view_size_unique", "degree", "opened", "accepted"):
        assert getattr(counted, name).tolist() == getattr(everybody, name)[mine].tolist()
    assert counted.in_degree.tolist() == count_links(Snapshot.of(honest, *whole)).in_degree.tolist()


@given(overlays())
@settings(max_examples=examples(150), deadline=None)
def test_every_topic_is_measured_as_a_plain_search_does(overlay) -> None:
    up, interests, links, views = overlay
    found = measure_topics(Snapshot.of(up, list(interests), links, list(views)))
    subscribed = {topic for node, topic in interests if node in up}
    assert [row.topic for row in found] == sorted(subscribed)
    for row in found:
        members = {node for node, topic in interests if topic == row.topic and node in up}
        arcs = {(a, b) for a, b in both_ways(links) if {a, b} <= members}
        known = {(a, b) for a, b, topic in views if topic == row.topic and {a, b} <= members}
        parts = components(members, arcs)
        assert row.subscribers == len(members)
        assert row.links * 2 == len(arcs)
        assert (row.components, row.largest_component) == (len(parts), max(map(len, parts)))
        assert row.diameter == diameter(members, arcs)
        assert row.view_links == len(known)
        assert row.view_components == len(components(members, known))


@given(overlays())
@settings(max_examples=examples(150), deadline=None)
def test_nodes_and_the_physical_graph_are_measured_as_a_plain_search_does(overlay) -> None:
    up, interests, links, views = overlay
    snapshot = Snapshot.of(up, list(interests), links, list(views), openings=links)
    nodes, arcs = set(up), {(a, b) for a, b in both_ways(links) if {a, b} <= set(up)}
    counts, order = count_links(snapshot), sorted(up)
    held = [(a, b, topic) for a, b, topic in views if {a, b} <= nodes]
    assert counts.view_size_total.tolist() == [sum(a == node for a, _, _ in held) for node in order]
    assert counts.view_size_unique.tolist() == [len({b for a, b, _ in held if a == node}) for node in order]
    assert counts.in_degree.tolist() == [len({a for a, b, _ in held if b == node}) for node in order]
    assert counts.degree.tolist() == [sum(a == node for a, _ in arcs) for node in order]
    opened = arcs & set(links)
    assert counts.opened.tolist() == [sum(a == node for a, _ in opened) for node in order]
    assert counts.accepted.tolist() == [sum(b == node for _, b in opened) for node in order]

    graph, parts = measure_graph(snapshot), components(nodes, arcs)
    assert (graph.components, graph.largest_component) == (len(parts), max(map(len, parts)))
    assert graph.diameter == diameter(nodes, arcs)
    lengths = [away for node in nodes for away in distances(nodes, arcs, node).values() if away]
    assert graph.path_length_mean == (pytest.approx(sum(lengths) / len(lengths)) if lengths else None)
    wedges = {node: list(itertools.combinations([b for a, b in arcs if a == node], 2)) for node in nodes}
    closed = {node: sum(pair in arcs for pair in pairs) for node, pairs in wedges.items()}
    local = sum(closed[node] / len(pairs) for node, pairs in wedges.items() if pairs) / len(nodes)
    assert graph.clustering == pytest.approx(local)
    assert graph.clustering_global == pytest.approx(sum(closed.values()) / max(sum(map(len, wedges.values())), 1))


@given(overlays())
@settings(max_examples=examples(100), deadline=None)
def test_subscribers_distances_are_those_of_a_plain_search_once_for_each_common_topic(overlay) -> None:
    up, interests, links, _ = overlay
    nodes, arcs = set(up), {(a, b) for a, b in both_ways(links) if {a, b} <= set(up)}
    expected: dict[int, int] = {}
    for a, b in itertools.combinations(sorted(nodes), 2):
        common = sum((a, topic) in interests and (b, topic) in interests for topic in range(TOPICS))
        if common and (length := distances(nodes, arcs, a).get(b)):
            expected[length] = expected.get(length, 0) + common
    found = count_distances(Snapshot.of(up, list(interests), links, []))
    assert {length: pairs for length, pairs in enumerate(found.tolist()) if pairs} == expected


@given(st.integers(2, 90), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_both_ways_to_search_paths_agree(count: int, data: st.DataObject) -> None:
    node = st.integers(0, count - 1)
    pairs = data.draw(st.sets(st.tuples(node, node).filter(lambda pair: pair[0] < pair[1]), max_size=3 * count))
    used = sorted({end for pair in pairs for end in pair})
    links = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    together, each = shortest_paths(count, links), paths.search_each(count, links)
    assert together == (pytest.approx(each) if used else each)


def test_a_wide_graph_is_left_to_single_searches_with_the_same_result() -> None:
    count = 400  # 200 links wide, more than the searches in words follow
    ring = np.array([(node, (node + 1) % count) for node in range(count)], np.int64)
    found = shortest_paths(count, ring)
    assert found.diameter == 200
    assert found.pairs == count * (count - 1) // 2
    assert found.length_mean == pytest.approx((2 * sum(range(1, 200)) + 200) / 399)


def test_more_nodes_than_one_block_of_searches() -> None:
    count = 1500
    star = np.array([(0, node) for node in range(1, count)], np.int64)
    found = shortest_paths(count, star)
    assert (found.diameter, found.pairs) == (2, count * (count - 1) // 2)
    assert found.length_mean == pytest.approx(2 - 2 / count)


def test_a_complete_overlay_of_one_topic_and_a_lone_node() -> None:
    pairs = list(itertools.combinations(range(5), 2))
    views = [(a, b, 7) for pair in pairs for a, b in (pair, pair[::-1])]
    found = measure_overlay(Snapshot.of(range(6), [(node, 7) for node in range(5)] + [(5, 8)], pairs, views))
    expected = {
        "nodes": 6,
        "logical_links": 20,
        "physical_links": 10,
        "view_size_total_max": 4,
        "view_size_unique_max": 4,
        "in_degree_max": 4,
        "degree_max": 4,
        "degree_mean": 20 / 6,
        "link_sharing_ratio": 1.0,
        "components": 2,
        "largest_component": 5,
        "clustering": 5 / 6,
        "clustering_global": 1.0,
        "diameter": 1,
        "path_length_mean": 1.0,
        "topics": 2,
        "topic_components": 2,
        "topic_components_max": 1,
        "topics_partitioned": 0,
        "topic_diameter_max": 1,
        "topic_view_components": 2,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_nobody_up_has_no_means_and_breaks_nothing() -> None:
    found = measure_overlay(Snapshot.of([], [(1, 2)], [(1, 2)], [(1, 2, 3)]))
    assert found["nodes"] == found["components"] == found["topics"] == found["topic_components"] == 0
    means = ("degree_mean", "view_size_unique_mean", "clustering", "path_length_mean", "topic_diameter_max")
    assert all(found[name] is None for name in (*means, "link_sharing_ratio"))


@given(st.integers(2, 12), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_top_intersection_is_that_of_the_definition(count: int, data: st.DataObject) -> None:
    sets = data.draw(st.lists(st.sets(st.integers(3, 11)), min_size=count, max_size=count))
    depth = data.draw(st.integers(1, 14))
    rows = [(node, topic) for node, topics in enumerate(sets) for topic in topics]
    found = intersect_top(count, np.array(rows, np.int64).reshape(-1, 2), depth)
    some = [topics for topics in sets if topics]
    if len(some) < 2:
        assert found is None
        return
    nearest = []
    for node, own in enumerate(some):
        others = some[:node] + some[node + 1 :]
        shares = sorted((len(own & other) / min(len(own), len(other)) for other in others), reverse=True)[:depth]
        nearest.append(sum(shares) / len(shares))
    assert found == pytest.approx(sum(nearest) / len(nearest), rel=1e-5)


@given(st.integers(2, 8), st.integers(9, 12), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_correlation_is_pearson_s_with_the_normal_quantile(count: int, topics: int, data: st.DataObject) -> None:
    sets = data.draw(st.lists(st.sets(st.integers(0, topics - 1)), min_size=count, max_size=count))
    rows = [(node, topic) for node, held in enumerate(sets) for topic in held]
    found = correlate(count, np.array(rows, np.int64).reshape(-1, 2), topics, (0.9, 0.99))
    check_correlations(found, np.array([[topic in held for topic in range(topics)] for held in sets], float))


@given(st.integers(2, 8), st.integers(9, 12), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_topics_correlate_by_their_subscribers_over_all_nodes(topics: int, count: int, data: st.DataObject) -> None:
    sets = data.draw(st.lists(st.sets(st.integers(0, topics - 1)), min_size=count, max_size=count))
    rows = [(node, topic) for node, held in enumerate(sets) for topic in held]
    found = correlate_topics(count, np.array(rows, np.int64).reshape(-1, 2), topics, (0.9, 0.99))
    check_correlations(found, np.array([[topic in held for held in sets] for topic in range(topics)], float))


def check_correlations(found: list[float], vectors: npt.NDArray[np.float64]) -> None:
    """The shares of pairs of rows that correlate at 90 and 99 %."""
    count, length = vectors.shape
    pairs = [pair for pair in itertools.permutations(vectors, 2) if all(one.std() > 0 for one in pair)]
    for share, quantile in zip(found, (1.6448536, 2.5758293), strict=True):
        strong = sum(abs(np.corrcoef(*pair)[0, 1]) * sqrt(length) >= quantile for pair in pairs)
        assert share == pytest.approx(strong / (count * (count - 1)))


def test_interests_beyond_one_block_of_nodes() -> None:
    """Two camps of 400 nodes: everybody shares all with 399 others, nothing with the rest."""
    rows = np.array([(node, topic) for node in range(800) for topic in range(node // 400 * 4, node // 400 * 4 + 4)])
    assert intersect_top(800, rows, 399) == pytest.approx(1)
    assert intersect_top(800, rows, 799) == pytest.approx(399 / 799)
    assert correlate(800, rows, 8, (0.95,)) == [1.0]
    assert correlate(800, rows, 40, (0.95,)) == pytest.approx([399 / 799])


def test_measures_of_ten_thousand_nodes_fit_in_memory_and_time() -> None:
    """A ring of ten thousand nodes with chords, 300 topics of 100 subscribers in a row each."""
    count, steps = 10_000, (1, 7, 49, 343, 2401)
    links = [(node, (node + step) % count) for node in range(count) for step in steps]
    interests = [(33 * topic + place, topic) for topic in range(300) for place in range(100)]
    found = measure_overlay(Snapshot.of(range(count), interests, links, [(a, b, 0) for a, b in links[:1000]]))
    assert (found["degree_mean"], found["components"], found["topic_components"]) == (10.0, 1, 300)
    row = set(range(100))
    arcs = {(a, b) for a in row for b in row if abs(a - b) in steps}
    assert found["topic_diameter_max"] == diameter(row, arcs)
