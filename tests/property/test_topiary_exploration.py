"""Whom a Topiary node explores: Eq. 6-10, from what a node sees to whom it connects."""

from collections import Counter

import pytest

from tests.lone_topiary import SECOND_NS, Lone

SPLIT = {number: (1,) if number < 40 else (2,) for number in range(60)}
"""Of 60 nodes the last twenty subscribe to topic 2, the others to topic 1."""


def explore(lone: Lone, brought: dict[int, dict[int, list[int]]]) -> list[int]:
    """One epoch; whom the node connects to at its end.

    Args:
        lone: the node, just started.
        brought: place of an outgoing neighbour -> topic -> the numbers of the messages that it brings.
    """
    lone.settle(SECOND_NS // 2)
    for place, topics in brought.items():
        for topic, numbers in topics.items():
            for sequence in numbers:
                lone.copy(SECOND_NS, lone.chosen[place], 100 + topic, sequence, topic)
    return lone.end_epoch(5 * SECOND_NS)


@pytest.mark.parametrize(("eta", "worse"), [(1.1, True), (1.9, True), (2.1, False), (5.0, False)])
def test_eta_says_which_topics_are_worse(eta: float, worse: bool):
    """Eq. 9: of 11 messages one is missed on topic 1 and two are on topic 2, so that S^2 is twice S^1."""
    lone = Lone(degree=10, kept_ratio=0.1, interests=(1, 2), nodes=SPLIT, delay_weight=0.0, eta=eta)
    fresh = explore(lone, {0: {1: [0, *range(2, 11)], 2: [0, *range(3, 11)]}})
    assert len(fresh) == 9
    assert all(peer >= 40 for peer in fresh) == worse


def test_topics_are_judged_by_the_neighbours_that_are_kept():
    """Eq. 6-8 are of Gamma*: what only a neighbour brought that is given up is missing."""
    lone = Lone(degree=10, kept_ratio=0.1, interests=(1, 2), nodes=SPLIT)
    fresh = explore(lone, {0: {1: list(range(20))}, 1: {2: list(range(5))}})
    assert len(fresh) == 9
    assert all(peer >= 40 for peer in fresh)


@pytest.mark.parametrize(("slow", "delay_weight"), [(1, 1.0), (2, 1.0), (2, 0.0)])
def test_a_topic_that_comes_late_is_a_worse_one(slow: int, delay_weight: float):
    """Eq. 7: the kept neighbour brings everything, but one topic 10 ms behind another neighbour."""
    lone = Lone(degree=10, kept_ratio=0.1, interests=(1, 2), nodes=SPLIT, delay_weight=delay_weight)
    lone.settle(SECOND_NS // 2)
    kept, other = lone.chosen[:2]
    for at_ns, peer, topic in (
        (SECOND_NS, other, slow),
        (SECOND_NS, kept, 3 - slow),
        (SECOND_NS + SECOND_NS // 100, kept, slow),
    ):
        for sequence in range(10):
            lone.copy(at_ns, peer, 100 + topic, sequence, topic)
    fresh = lone.end_epoch(5 * SECOND_NS)
    of_topic_2 = [peer >= 40 for peer in fresh]
    if delay_weight:
        assert of_topic_2 == [slow == 2] * 9
    else:
        assert len(set(of_topic_2)) == 2, "no topic is worse"


def test_nodes_are_drawn_in_proportion_to_the_worse_topics_they_share():
    """Eq. 10: 40 nodes share one worse topic and 10 share three, so one of the 40 is drawn with 40 / 70."""
    nodes = {number: (1,) if number < 40 else (1, 2, 3) if number < 50 else (4,) for number in range(60)}
    nodes[60] = (4,)
    drawn = Counter()
    for seed in range(400):
        lone = Lone(degree=2, kept_ratio=0.5, interests=(1, 2, 3, 4), nodes=nodes, seed=seed)
        [peer] = explore(lone, {0: {4: list(range(10))}})
        drawn[nodes[peer]] += 1
    assert drawn[(4,)] == 0, "topic 4 does well"
    share = 40 / 70
    assert abs(drawn[(1,)] / 400 - share) < 4 * (share * (1 - share) / 400) ** 0.5


def test_several_nodes_are_drawn_without_replacement():
    """Section IV-E: with three candidates and three places each is drawn once."""
    lone = Lone(degree=4, kept_ratio=0.25, interests=(1, 2), nodes={0: (1,), 1: (1,), 2: (2,), 3: (2,), 4: (2,)})
    fresh = explore(lone, {0: {1: list(range(10))}})
    assert len(fresh) == len(set(fresh)) == 3
    assert lone.chosen[0] not in fresh


@pytest.mark.parametrize("literal", [True, False])
def test_as_printed_a_topic_that_comes_is_a_worse_one(literal: bool):
    """Eq. 8 as printed counts what is brought; so topic 1, of which everything came, is worse than topic 2."""
    lone = Lone(degree=10, kept_ratio=0.1, interests=(1, 2), nodes=SPLIT, literal=literal)
    fresh = explore(lone, {place: {1: list(range(10))} for place in range(10)})
    assert all((peer < 40) == literal for peer in fresh)


def test_where_worse_topics_have_no_importance_all_nodes_are_drawn_alike():
    lone = Lone(degree=10, kept_ratio=0.1, interests=(1, 2), nodes=SPLIT, topic_weights=((2, 0.0),))
    fresh = explore(lone, {0: {1: list(range(10))}})
    assert len({peer >= 40 for peer in fresh}) == 2
