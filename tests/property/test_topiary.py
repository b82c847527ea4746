"""Topiary's scores against the formulas written out, its choice of neighbours, and its life on the pump."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core.contract import (
    Trace,
    message_id,
)
from peer.protocols.topiary.observation import Observation
from peer.protocols.topiary.scores import Tally, Weights, best_subset, topic_scores, worse_topics
from tests.lone_topiary import SECOND_NS, Lone

MILLISECOND_NS = 1_000_000
TOPICS = 4
NOBODY = 1 << 20
"""A node whose messages occur nowhere."""

epochs = st.integers(2, 6).flatmap(
    lambda columns: st.fixed_dictionaries(
        {
            "columns": st.just(columns),
            "kept": st.integers(1, columns),
            "interests": st.sets(st.integers(0, TOPICS - 1)).map(frozenset),
            "importance": st.dictionaries(st.integers(0, TOPICS - 1), st.integers(0, 3).map(float)),
            "messages": st.lists(
                st.tuples(
                    st.sets(st.integers(0, TOPICS - 1), min_size=1, max_size=2).map(sorted).map(tuple),
                    st.lists(st.none() | st.integers(0, 500), min_size=columns, max_size=columns),
                ).filter(lambda message: any(at is not None for at in message[1])),
                max_size=12,
            ),
            "published": st.integers(0, 20),
        }
    )
)


def observe(epoch: dict) -> Observation:
    """The epoch's copies in the order of their arrival."""
    seen = Observation(range(100, 100 + epoch["columns"]), NOBODY)
    copies = [
        (at, place, column, topics)
        for place, (topics, arrivals) in enumerate(epoch["messages"])
        for column, at in enumerate(arrivals)
        if at is not None
    ]
    for at, place, column, topics in sorted(copies):
        seen.arrive(at, 100 + column, place, topics)
    return seen


def slow_score(epoch: dict, subset: tuple[int, ...], weights: Weights, literal: bool) -> float:
    """Eq. 2-5 as they stand in the paper, message by message."""
    useful, delay, wasted = 0.0, 0.0, 0
    for topics, arrivals in epoch["messages"]:
        earliest = min(at for at in arrivals if at is not None)
        mine = [arrivals[column] for column in subset if arrivals[column] is not None]
        importance = [epoch["importance"].get(topic, 1.0) for topic in topics if topic in epoch["interests"]]
        weight = max(importance, default=0.0)
        if not mine:
            continue
        if weight:
            useful += weight
            delay += weight * (min(mine) - earliest)
        else:
            wasted += 1
    covered = useful / epoch["published"] if epoch["published"] else 0.0
    missed = covered if literal else max(0.0, 1 - covered)
    late_s = delay / useful / 1e9 if useful else 0.0
    waste = wasted / len(epoch["messages"]) if epoch["messages"] else 0.0
    return weights.coverage * missed + weights.delay * late_s + weights.waste * waste


@given(epochs, st.booleans())
def test_every_subset_scores_as_the_formulas_say(epoch: dict, literal: bool):
    weights = Weights(1.0, 3e6, 0.5)
    tally = Tally(epoch["interests"], epoch["importance"], epoch["kept"])
    for message in observe(epoch).rows():
        tally.add(message, epoch["columns"])
    expected = {
        subset: slow_score(epoch, subset, weights, literal)
        for subset in combinations(range(epoch["columns"]), epoch["kept"])
    }
    for subset, score in expected.items():
        assert tally.score(subset, epoch["published"], weights, literal=literal) == pytest.approx(score)
    subset, score = best_subset(tally, epoch["columns"], epoch["kept"], epoch["published"], weights, literal=literal)
    best = max(expected.values()) if literal else min(expected.values())
    assert score == pytest.approx(best)
    assert expected[subset] == pytest.approx(best)


@given(epochs)
def test_a_topics_score_counts_its_own_messages(epoch: dict):
    weights = Weights(1.0, 3e6, 0.5)
    subset = tuple(range(epoch["kept"]))
    published = dict.fromkeys(sorted(epoch["interests"]), float(epoch["published"]))
    scores = topic_scores(observe(epoch).rows(), subset, published, weights, literal=False)
    for topic in published:
        alone = {**epoch, "interests": frozenset({topic}), "importance": {}}
        alone["messages"] = [message for message in epoch["messages"] if topic in message[0]]
        assert scores[topic] == pytest.approx(slow_score(alone, subset, Weights(1.0, 3e6, 0.0), False))
    assert scores.keys() == published.keys()


def test_the_worse_topics_are_those_beyond_a_multiple_of_the_best():
    assert worse_topics({1: 0.5, 2: 0.59, 3: 0.61}, 1.2, 1e-9) == [3]
    assert worse_topics({1: 0.5, 2: 0.6}, 1.2, 1e-9) == []
    assert worse_topics({1: 0.0, 2: 1e-12, 3: 0.1}, 1.2, 1e-9) == [3]
    assert worse_topics({}, 1.2, 1e-9) == []


@pytest.mark.parametrize("topics", [(1,), (9, 1), (1, 2)])
def test_messages_on_several_topics_are_expected_once(topics: tuple[int, ...]):
    """Who brings all is kept, not who brings half, whichever of a message's topics is the first."""
    lone = Lone(degree=2, kept_ratio=0.5, interests=(1, 2), delay_weight=0.0)
    half, whole = lone.chosen
    lone.settle(SECOND_NS // 2)
    for sequence in range(20):
        for peer in (half, whole) if sequence % 2 else (whole,):
            lone.copy(SECOND_NS, peer, 50, sequence, topic=topics)
    lone.end_epoch(5 * SECOND_NS)
    assert lone.scores == [0.0]
    assert lone.settle(6 * SECOND_NS) == {half}


def test_the_slowest_neighbours_make_way_for_nodes_that_share_the_worse_topics():
    lone = Lone(degree=5, interests=(1, 2), nodes={number: (1,) if number < 40 else (2,) for number in range(60)})
    chosen = list(lone.chosen)
    assert len(set(chosen)) == 5
    lone.settle(SECOND_NS // 2)
    at = SECOND_NS
    for sequence in range(20):  # topic 1 comes from everybody in turn of the choice, topic 2 from nobody
        for lag, peer in enumerate(chosen):
            lone.copy(at + lag * MILLISECOND_NS, peer, 50, sequence)
        at += SECOND_NS // 10
    for sequence in (0, 9):  # of topic 2's ten messages two came, late but from the first
        lone.copy(at, chosen[0], 51, sequence, topic=2)
    fresh = lone.end_epoch(5 * SECOND_NS)
    assert len(fresh) == 2
    assert all(peer >= 40 for peer in fresh), "topic 2 does worse, so its subscribers are drawn"
    gone = lone.settle(6 * SECOND_NS)
    assert len(gone) == 2
    assert chosen[0] not in gone, "nobody else brings as much as early"


def test_a_topic_of_which_nothing_came_is_a_worse_one():
    for seed_topic in range(3):
        nodes = {number: (1,) if number < 40 else (2,) for number in range(60)}
        lone = Lone(degree=5, interests=(1, 2), nodes=nodes)
        chosen = list(lone.chosen)
        lone.settle(SECOND_NS // 2)
        for sequence in range(20):
            for lag, peer in enumerate(chosen):
                lone.copy(SECOND_NS + (10 * sequence + lag + seed_topic) * MILLISECOND_NS, peer, 50, sequence)
        assert all(peer >= 40 for peer in lone.end_epoch(5 * SECOND_NS))


def test_what_comes_in_the_overlap_is_neither_observed_nor_missed():
    lone = Lone()
    lone.settle(SECOND_NS // 2)
    for sequence in range(10):
        for peer in lone.chosen:
            lone.copy(SECOND_NS, peer, 50, sequence)
    lone.end_epoch(5 * SECOND_NS)
    for sequence in range(10, 30):  # all come, but nobody is told how early
        lone.copy(5 * SECOND_NS + 1, lone.chosen[0], 50, sequence)
    lone.settle(5 * SECOND_NS + SECOND_NS // 2)
    for peer in lone.chosen[1:]:  # later copies of the overlap's last message say nothing of who was early
        lone.copy(6 * SECOND_NS, peer, 50, 29)
    for sequence in range(30, 40):
        for peer in lone.chosen:
            lone.copy(7 * SECOND_NS, peer, 50, sequence)
    lone.end_epoch(10 * SECOND_NS)
    assert lone.scores == [0.0, 0.0]


def test_a_forged_number_is_rejected_and_leaves_the_score_as_it_was():
    lone = Lone()
    lone.settle(SECOND_NS // 2)
    rejected = []
    for sequence in range(10):
        claimed = 4_000_000_000 if sequence == 5 else sequence
        for peer in lone.chosen:
            effects = lone.copy(SECOND_NS, peer, 50, sequence, claimed=claimed)
            rejected += [e.event for e in effects if isinstance(e, Trace) and e.event.event == "reject"]
    lone.end_epoch(5 * SECOND_NS)
    assert lone.scores == [0.0], "nothing is missed"
    assert [(event.reason, event.peer, event.message_id) for event in rejected] == [
        ("sequence_jump", lone.chosen[0], message_id(50, 5)),
        ("sequence_jump", lone.chosen[0], message_id(50, 6)),  # the next one begins the count anew
    ]


def test_a_nodes_own_messages_that_come_back_count_for_nobody():
    scores = []
    for echoes in (0, 10):
        lone = Lone()
        lone.settle(SECOND_NS // 2)
        for lag, peer in enumerate(lone.chosen):
            for sequence in range(10):
                lone.copy(SECOND_NS + lag * MILLISECOND_NS, peer, 50, sequence)
        for sequence in range(echoes):
            lone.copy(2 * SECOND_NS, lone.chosen[-1], 0, sequence)
        lone.end_epoch(5 * SECOND_NS)
        scores.append((lone.scores, sorted(lone.settle(6 * SECOND_NS))))
    assert scores[0] == scores[1]


def test_silence_makes_a_node_explore_but_not_before_the_first_message():
    lone = Lone(degree=5)
    lone.settle(SECOND_NS // 2)
    assert lone.end_epoch(5 * SECOND_NS) == []
    lone.copy(5 * SECOND_NS + 1, lone.chosen[0], 50, 0)
    lone.settle(5 * SECOND_NS + SECOND_NS // 2)
    seen = set(lone.chosen)
    for epoch in range(2, 10):
        assert len(lone.end_epoch(5 * epoch * SECOND_NS)) == 2
        lone.settle(5 * epoch * SECOND_NS + SECOND_NS // 2)
        seen |= set(lone.chosen)
        assert len(set(lone.chosen)) == 5
    assert len(seen) > 12, "in eight epochs sixteen draws of forty"
    assert lone.scores == [1.0] * 8, "everything may have been missed"


@pytest.mark.parametrize("literal", [False, True])
def test_the_literal_reading_keeps_the_latest(literal: bool):
    lone = Lone(literal=literal, delay_weight=10.0)
    chosen = list(lone.chosen)
    lone.settle(SECOND_NS // 2)
    for lag, peer in enumerate(chosen):
        for sequence in range(10):
            lone.copy(SECOND_NS + 100 * lag * MILLISECOND_NS, peer, 50, sequence)
    lone.end_epoch(5 * SECOND_NS)
    assert lone.settle(6 * SECOND_NS) == {chosen[0] if literal else chosen[2]}


def test_arrivals_are_measured_from_the_earliest_copy_of_any_neighbour():
    lone = Lone(degree=3)
    incoming = next(node for node in range(40) if node not in lone.chosen)
    lone.at(1).link_up(incoming, outbound=False)
    lone.settle(SECOND_NS // 2)
    for lag_ms, peers in ((0, [incoming]), (50, lone.chosen)):
        for peer in peers:
            for sequence in range(10):
                lone.copy(SECOND_NS + lag_ms * MILLISECOND_NS, peer, 50, sequence)
    lone.end_epoch(5 * SECOND_NS)
    assert lone.scores == [pytest.approx(10 * 0.05)], "w_d times 50 ms, and nothing is missed"


def test_an_epoch_of_messages_ends_with_the_last_of_them():
    lone = Lone(epoch_messages=10)
    lone.settle(SECOND_NS // 2)
    ended = []
    for sequence in range(25):
        effects = lone.copy(SECOND_NS + sequence * MILLISECOND_NS, lone.chosen[0], 50, sequence)
        if any(isinstance(e, Trace) and e.event.event == "epoch" for e in effects):
            ended.append(sequence)
            lone.settle(SECOND_NS + sequence * MILLISECOND_NS)
    assert ended == [9, 19]


def test_a_known_rate_counts_what_nobody_brought():
    lone = Lone(estimate="rate", topic_rate_per_s=10.0, delay_weight=0.0)
    lone.settle(SECOND_NS)
    for sequence in range(10):
        for peer in lone.chosen:
            lone.copy(2 * SECOND_NS, peer, 50, sequence)
    lone.end_epoch(5 * SECOND_NS)
    assert lone.scores == [pytest.approx(1 - 10 / 40)], "in four seconds there were forty"


@pytest.mark.parametrize("important", [None, 1, 2])
def test_an_important_topic_decides_who_stays(important: int | None):
    lone = Lone(
        degree=3,
        kept_ratio=0.3,
        interests=(1, 2),
        topic_weights=() if important is None else ((important, 100.0),),
    )
    first, second, _ = chosen = list(lone.chosen)
    lone.settle(SECOND_NS // 2)
    for topic, favourite, count in ((1, first, 10), (2, second, 9)):
        for sequence in range(count):
            lone.copy(SECOND_NS, favourite, 50 + topic, sequence, topic)
    lone.end_epoch(5 * SECOND_NS)
    assert set(chosen) - lone.settle(6 * SECOND_NS) == {second if important == 2 else first}


def test_exploration_weighs_worse_topics_by_their_importance():
    drawn = []
    for weights in ((), ((1, 0.0),)):
        nodes = {number: (1,) if number < 40 else (2,) for number in range(60)}
        lone = Lone(degree=10, interests=(1, 2, 3), nodes=nodes, topic_weights=weights)
        lone.settle(SECOND_NS // 2)
        for sequence in range(10):  # topic 3 does well, 1 and 2 get nothing
            for peer in lone.chosen:
                lone.copy(SECOND_NS, peer, 50, sequence, topic=3)
        drawn.append(lone.end_epoch(5 * SECOND_NS))
    assert any(peer < 40 for peer in drawn[0]), "topic 1 has twice the subscribers"
    assert all(peer >= 40 for peer in drawn[1]), "and here it does not matter"


@pytest.mark.parametrize(("waste_weight", "scores"), [(0.0, 1), (1.0, 2)])
def test_copies_of_topics_without_a_subscription_count_where_waste_does(waste_weight: float, scores: int):
    found = set()
    for unwanted in (0, 30):
        lone = Lone(waste_weight=waste_weight)
        lone.settle(SECOND_NS // 2)
        for topic, count in ((1, 10), (2, unwanted)):
            for sequence in range(count):
                for peer in lone.chosen:
                    lone.copy(SECOND_NS, peer, 40 + topic, sequence, topic)
        lone.end_epoch(5 * SECOND_NS)
        found |= set(lone.scores)
    assert len(found) == scores


def test_a_score_weighs_topics_by_their_importance_and_coverage_by_its_weight():
    """Of topic 1, which weighs three times as much, everything comes; of topic 2 half does."""
    lone = Lone(interests=(1, 2), topic_weights=((1, 3.0),), coverage_weight=2.0, delay_weight=0.0)
    lone.settle(SECOND_NS // 2)
    for peer in lone.chosen:
        for sequence in range(11):
            lone.copy(SECOND_NS, peer, 50, sequence)
        for sequence in range(0, 11, 2):
            lone.copy(SECOND_NS, peer, 51, sequence, topic=2)
    lone.end_epoch(5 * SECOND_NS)
    assert lone.scores == [pytest.approx(2 * 5 / (3 * 11 + 11))]


def test_only_a_neighbours_first_copy_of_a_message_counts():
    seen = Observation([7, 8], NOBODY)
    for at_ns, peer in ((10, 7), (15, 8), (90, 8), (95, 7)):
        seen.arrive(at_ns, peer, 1, (1,))
    assert [row.delays_ns for row in seen.rows()] == [[(0, 0), (5, 1)]]


def test_late_copies_of_the_overlaps_messages_do_not_count_among_an_epochs():
    lone = Lone(epoch_messages=10)
    lone.copy(1, lone.chosen[0], 50, 0)
    lone.settle(SECOND_NS // 2)
    for sequence in range(10):
        lone.copy(SECOND_NS, lone.chosen[1], 50, sequence)
    assert lone.scores == []
    lone.copy(SECOND_NS, lone.chosen[1], 50, 10)
    assert len(lone.scores) == 1
    lone.settle(2 * SECOND_NS)
    for sequence in (0, *range(11, 20)):
        lone.copy(3 * SECOND_NS, lone.chosen[1], 50, sequence)
    assert len(lone.scores) == 2, "only those of the last overlap are left out"


def test_an_epoch_of_messages_counts_those_of_other_topics_too():
    lone = Lone(epoch_messages=10)
    lone.settle(SECOND_NS // 2)
    for sequence in range(10):
        lone.copy(SECOND_NS, lone.chosen[0], 50, sequence, topic=1 + sequence % 2)
    assert len(lone.scores) == 1
