"""Topiary's scores against the formulas written out, its choice of neighbours, and its life on the pump."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import (
    Connect,
    Directory,
    FrameReceived,
    LinkUp,
    PeerInfo,
    PeerList,
    Publish,
    Send,
    Started,
    TimerFired,
    Trace,
    message_id,
)
from peer.core.frames import Data
from peer.core.payload import make_payload, topic_sequence
from peer.core.protocols import Composition, compose
from peer.core.topiary.estimates import RateEstimate, SequenceEstimate
from peer.core.topiary.frames import Release
from peer.core.topiary.observation import Observation
from peer.core.topiary.scoring import Tally, Weights, best_subset, topic_scores, worse_topics
from peer.testing import Pump

SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000
TOPICS = 4

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
    seen = Observation(range(100, 100 + epoch["columns"]))
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
        expected = slow_score(alone, subset, Weights(1.0, 3e6, 0.0), False) if epoch["published"] else None
        if expected is not None:
            assert scores[topic] == pytest.approx(expected)
    assert scores.keys() == published.keys()


def test_the_worse_topics_are_those_beyond_a_multiple_of_the_best():
    assert worse_topics({1: 0.5, 2: 0.59, 3: 0.61}, 1.2, 1e-9) == [3]
    assert worse_topics({1: 0.0, 2: 1e-12, 3: 0.1}, 1.2, 1e-9) == [3]
    assert worse_topics({}, 1.2, 1e-9) == []


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(0, 30))
def test_gaps_in_a_publishers_numbers_are_counted_as_published(heard: list[int], before: int):
    estimate = SequenceEstimate()
    estimate.see((7,), message_id(3, 0), make_payload(message_id(3, 0), before, 64))
    estimate.turn_over()
    for sequence in heard:
        estimate.see((7,), message_id(3, sequence), make_payload(message_id(3, sequence), sequence, 64))
    assert estimate.published([7, 8], SECOND_NS) == {7: max(0, max(heard) - before), 8: 0}


def test_a_known_rate_needs_no_message():
    assert RateEstimate(2.5).published([1, 2], 4 * SECOND_NS) == {1: 10.0, 2: 10.0}


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1), st.integers(0, 100))
def test_a_payload_has_its_size_and_tells_its_number(identifier: int, sequence: int, size: int):
    payload = make_payload(identifier, sequence, size)
    assert len(payload) == size
    assert topic_sequence(payload) == (sequence if size >= 12 else None)


def make_node(degree: int = 3, interests: tuple[int, ...] = (1,), **parameters):
    overlay = {"name": "topiary", "degree": degree, "overlap_s": 0.5, "epoch_s": 5.0, **parameters}
    node = compose(0, 1, interests, Composition(overlay))
    node.handle(0, Started())
    return node


def test_the_slowest_neighbours_make_way_for_nodes_that_share_the_worse_topics():
    node = make_node(degree=5, interests=(1, 2))
    everybody = Directory(PeerInfo(number, (1,) if number < 40 else (2,)) for number in range(60))
    chosen = [e.peer for e in node.handle(0, PeerList(everybody)) if isinstance(e, Connect)]
    assert len(set(chosen)) == 5
    for peer in chosen:
        node.handle(1, LinkUp(peer, True))
    node.handle(SECOND_NS // 2, TimerFired("overlay/settled"))
    at = SECOND_NS
    for sequence in range(20):  # topic 1 comes from everybody in turn of the choice, topic 2 from nobody
        for lag, peer in enumerate(chosen):
            content = make_payload(message_id(50, sequence), sequence, 20)
            node.handle(
                at + lag * MILLISECOND_NS, FrameReceived(peer, Data(message_id(50, sequence), (1,), 1, 0, content))
            )
        at += SECOND_NS // 10
    for sequence in (0, 9):  # of topic 2's ten messages two came, late but from the first
        content = make_payload(message_id(51, sequence), sequence, 20)
        node.handle(at, FrameReceived(chosen[0], Data(message_id(51, sequence), (2,), 1, 0, content)))
    effects = node.handle(5 * SECOND_NS, TimerFired("overlay/epoch"))
    fresh = [effect.peer for effect in effects if isinstance(effect, Connect)]
    assert len(fresh) == 2
    assert all(peer >= 40 for peer in fresh), "topic 2 does worse, so its subscribers are drawn"
    released = node.handle(6 * SECOND_NS, TimerFired("overlay/settled"))
    gone = {effect.peer for effect in released if isinstance(effect, Send) and isinstance(effect.frame, Release)}
    assert len(gone) == 2
    assert chosen[0] not in gone, "nobody else brings as much as early"


@pytest.mark.parametrize(("waste_weight", "scores"), [(0.0, 1), (1.0, 2)])
def test_copies_of_topics_without_a_subscription_count_where_waste_does(waste_weight: float, scores: int):
    found = set()
    for unwanted in (0, 30):
        node = make_node(waste_weight=waste_weight)
        everybody = Directory(PeerInfo(number, (1, 2)) for number in range(20))
        chosen = [e.peer for e in node.handle(0, PeerList(everybody)) if isinstance(e, Connect)]
        for peer in chosen:
            node.handle(1, LinkUp(peer, True))
        node.handle(SECOND_NS // 2, TimerFired("overlay/settled"))
        for topic, count in ((1, 10), (2, unwanted)):
            for sequence in range(count):
                copy = Data(message_id(40 + topic, sequence), (topic,), 1, 0, make_payload(0, sequence, 20))
                for peer in chosen:
                    node.handle(SECOND_NS, FrameReceived(peer, copy))
        effects = node.handle(5 * SECOND_NS, TimerFired("overlay/epoch"))
        found |= {e.event.score for e in effects if isinstance(e, Trace) and e.event.event == "epoch"}
    assert len(found) == scores


@given(
    nodes=st.integers(4, 14),
    degree=st.integers(2, 4),
    seed=st.integers(0, 2**32),
    literal=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_degrees_hold_and_both_ends_agree_after_every_epoch(nodes, degree, seed, literal):
    draws = Random(seed)
    delays = {(a, b): draws.randrange(1, 80) * MILLISECOND_NS for a in range(nodes) for b in range(nodes)}
    interests = [tuple(sorted(draws.sample(range(TOPICS), draws.randrange(1, TOPICS + 1)))) for _ in range(nodes)]
    overlay = {"name": "topiary", "degree": degree, "epoch_s": 3.0, "overlap_s": 0.5, "literal": literal}
    made = {node: compose(node, seed, interests[node], Composition(overlay)) for node in range(nodes)}
    pump = Pump(made, lambda a, b: delays[a, b], seed=seed)
    pump.start()
    counts = [0] * nodes
    for _ in range(4):
        pump.run(SECOND_NS)
        for publisher in range(nodes):
            identifier = message_id(publisher, counts[publisher])
            payload = make_payload(identifier, counts[publisher], 32)
            pump.give(publisher, Publish(interests[publisher][:1], identifier, payload))
            counts[publisher] += 1
        pump.run(2 * SECOND_NS)
    pump.run(SECOND_NS)
    wanted = {node: set(made[node]._parts["overlay"]._chosen) for node in range(nodes)}
    assert all(len(mine) == min(degree, nodes - 1) for mine in wanted.values())
    expected = {(min(a, b), max(a, b)) for a, mine in wanted.items() for b in mine}
    assert pump.links() == expected, "every link is held by one end at least, and every held link is up"
    per_message: dict[tuple[int, int], int] = {}
    for _, node, message in pump.delivered:
        per_message[node, message.message_id] = per_message.get((node, message.message_id), 0) + 1
    assert set(per_message.values()) <= {1}
    epochs_ended = [event for event in pump.traced if event.event == "epoch"]
    assert all(math.isfinite(event.score) for event in epochs_ended)
