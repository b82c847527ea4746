"""The overlays that StAN begins with: what every drawn graph is, how large, and what cannot be drawn."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.bitset import members
from peer.protocols.description import ParameterError
from peer.protocols.stan import initial_views
from peer.protocols.stan.initial_views import draw_topic, draw_views, is_strongly_connected, list_members
from tests.examples import examples

interests = st.lists(st.sets(st.integers(0, 4)).map(sorted).map(tuple), max_size=20)


@settings(max_examples=examples(60), deadline=None)
@given(interests, st.floats(0.7, 3), st.integers(0, 2**32))
def test_every_topic_is_strongly_connected_through_its_subscribers_alone(wanted, factor, seed):
    drawn = draw_views(wanted, factor, seed)
    assert [[topic for topic, _ in views] for views in drawn] == [list(topics) for topics in wanted]
    graphs: dict[int, dict[int, list[int]]] = {}
    for node, views in enumerate(drawn):
        for topic, view in views:
            assert view == sorted({*view} - {node})
            graphs.setdefault(topic, {})[node] = view
    for graph in graphs.values():
        assert all(peer in graph for view in graph.values() for peer in view)
        assert is_strongly_connected(graph)
    assert draw_views(wanted, factor, seed) == drawn
    lists = list_members(drawn)
    assert [[topic for topic, _ in own] for own in lists] == [list(topics) for topics in wanted]
    for topic, digits in {entry for own in lists for entry in own}:
        assert list(members(int(digits, 16))) == [node for node, topics in enumerate(wanted) if topic in topics]


def test_the_mean_view_is_logarithmic_in_the_number_of_subscribers():
    for size in (100, 400):
        views = [draw_topic(list(range(size)), 2.0, Random(seed), 0) for seed in range(5)]
        mean = sum(len(view) for graph in views for view in graph.values()) / (5 * size)
        assert mean == pytest.approx(2 * math.log(size), rel=0.03)


def test_small_groups():
    assert draw_topic([7], 1.0, Random(1), 0) == {7: []}
    assert draw_topic([7, 9], 0.1, Random(1), 0) == {7: [9], 9: [7]}
    assert draw_topic([1, 2, 3], 50.0, Random(1), 0) == {1: [2, 3], 2: [1, 3], 3: [1, 2]}


def test_other_topics_do_not_change_a_topics_views():
    first = draw_views([(0, 1), (0, 1), (0,), (0,)], 1.0, 3)
    second = draw_views([(0,), (0, 2), (0, 2), (0,)], 1.0, 3)
    assert [dict(views)[0] for views in first] == [dict(views)[0] for views in second]


def test_a_topic_that_cannot_be_connected_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(initial_views, "MAX_DRAWS", 5)
    with pytest.raises(ParameterError, match="topic 3 with 60 subscribers") as refused:
        draw_views([(3,)] * 60, 0.05, 1)
    assert refused.value.key == "degree_factor"


def test_strong_connection_needs_both_directions():
    assert is_strongly_connected({0: [1], 1: [2], 2: [0]})
    assert not is_strongly_connected({0: [1], 1: [2], 2: []})
    assert not is_strongly_connected({0: [], 1: [0], 2: [1]})
