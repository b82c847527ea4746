"""Messages with expressions: what the measures make of their counts, and what the observer of a study counts."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.studies.groups import WatchedMessage, count_newcomers, measure_paths, sum_up_groups
from harness.studies.observer import Batch, Watch
from metrics.facts.groups import count_sets, predict
from metrics.measures.groups import GROUPS, NEWCOMER_S, NEWCOMERS, GroupMessages, Newcomers, gini
from metrics.measures.steiner import MOST_HOSTS
from peer.core.addressing.keywords import keyword, terms_of_topics
from peer.core.bitset import bitset, members
from peer.core.schedule import Population
from peer.protocols.implicit_groups import predict_false_positives
from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.trace import JOINED, LEFT, TraceEvent


def facts(**given: list[float]) -> GroupMessages:
    counts = {name: [0.0] for name in GroupMessages.__struct_fields__} | given
    return GroupMessages(**{name: np.array(values) for name, values in counts.items()})


def test_measures_of_some_messages() -> None:
    found = GROUPS.numbers(
        facts(
            members=[4, 0, 6],
            reached=[4, 0, 4],
            latecomers=[1, 0, 0],
            false_positives=[0, 1, 3],
            false_positives_predicted=[0.5, 1.5, 3],
            relays=[2, 1, 0],
            others=[5, 9, 6],
            copies=[9, 2, 9],
            delay_ms=[90, 10, 30],
            bound_ms=[40, np.nan, 20],
            sent=[10, 0, 6, 4],
            expressions=[1, 3, 1],
        )
    )
    assert found == {
        "group_size_mean": pytest.approx(10 / 3),
        "group_size_p50": 4,
        "group_size_p90": pytest.approx(5.6),
        "group_size_max": 6,
        "members_reached_ratio": 8 / 10,
        "latecomers_per_message": 1 / 3,
        "relays_per_message": 1,
        "copies_per_message": 20 / 3,
        "false_positives_per_message": 4 / 3,
        "false_positive_ratio": 4 / 20,
        "false_positive_ratio_predicted": 5 / 20,
        "non_members_reached_ratio": 7 / 20,
        "copies_per_member_reached": 20 / 8,
        "copy_delay_ms_mean": 130 / 20,
        "delay_cost_over_bound": 120 / 60,
        "sent_copies_gini": pytest.approx((10 * 3 + 6 * 1 - 4 * 1) / (4 * 20)),
        "sent_copies_max_over_mean": 2,
        "expressions_per_link_mean": 5 / 3,
    }


def test_nothing_is_computed_of_nothing() -> None:
    nothing = GroupMessages(*(np.empty(0, np.int64) for _ in GroupMessages.__struct_fields__))
    assert set(GROUPS.numbers(nothing).values()) == {None}
    assert GROUPS.numbers(facts(bound_ms=[np.nan]))["delay_cost_over_bound"] is None


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12))
def test_the_gini_coefficient_is_half_the_relative_mean_difference(values: list[int]) -> None:
    total, count = sum(values), len(values)
    found = gini(np.array(values))
    if not total:
        assert found is None
    else:
        assert found == pytest.approx(sum(abs(a - b) for a in values for b in values) / (2 * count * total))


# ------------------------------------------------------------------------------------------------- the observer


def event(name: str, at_ns: int, node: int, peer: int | None = None, **more: object) -> TraceEvent:
    return TraceEvent(name, at_ns, node, peer, message_id=None if name in ("join", "leave") else 7, **more)


def run_watch(*events: TraceEvent, adversaries: int = 0) -> Batch:
    """Node 0 publishes to ``a&b``; nodes 1 and 2 are in the group, 3 has a, 4 nothing."""
    population = Population({0: (0, 1), 1: (0, 1), 2: (0, 1, 2), 3: (0,), 4: ()})
    watched = Watch(
        population, adversaries, None, expressions={7: "a&b"}, delay_ns=lambda a, b: 1_000_000 * (10 * a + b)
    )
    for each in events:
        watched.trace(each)
    [batch] = watched.batches
    return batch


def watch(*events: TraceEvent, adversaries: int = 0) -> GroupMessages:
    """What measures read of ``run_watch``."""
    batch = run_watch(*events, adversaries=adversaries)
    honest = [node for node in range(6) if not adversaries >> node & 1]
    lengths = measure_paths(lambda a, b: 1_000_000 * (10 * a + b), 6)
    return sum_up_groups(batch.groups, [batch.sent], honest, lengths)


UNKNOWN = ("bound_ms", "false_positives_predicted")
PUBLISH = event("publish", 10, 0, topics=(1,))


def counts(found: GroupMessages) -> dict[str, list[float]]:
    return {name: getattr(found, name).tolist() for name in GroupMessages.__struct_fields__ if name not in UNKNOWN}


def test_members_others_and_copies_are_told_apart() -> None:
    found = watch(
        PUBLISH,
        event("deliver", 10, 0),  # its own
        event("deliver", 11, 1, 0),
        event("relay", 12, 3, 0),
        event("deliver", 13, 4, 3),
        event("duplicate", 14, 1, 4),
        event("duplicate", 14, 0, 4),
    )
    assert counts(found) == {
        "members": [2],
        "reached": [1],
        "latecomers": [0],
        "false_positives": [1],
        "relays": [1],
        "others": [2],
        "copies": [5],
        "delay_ms": [1 + 3 + 34 + 41 + 40],
        "sent": [2, 0, 0, 1, 2, 0],
        "expressions": [1, 1, 1, 1, 1],
    }
    assert found.bound_ms.tolist() == [1], "of publisher and member 1, who are linked directly"


def test_the_group_is_that_of_the_publication() -> None:
    joins = event("join", 11, 5, reason=JOINED, topics=(0, 1))
    changes = [joins, event("join", 11, 3, topics=(1,)), event("leave", 11, 1, topics=(1,))]
    receipts = [event("deliver", 12, node, 0) for node in (1, 2, 3, 5)]
    after = watch(PUBLISH, *changes, *receipts)
    assert (after.members, after.reached, after.latecomers, after.false_positives, after.others) == (2, 2, 2, 0, 2)
    before = watch(*changes, PUBLISH, *receipts)
    assert (before.members, before.reached, before.latecomers, before.false_positives) == (3, 3, 0, 1)
    assert before.others == 2, "nodes 1 and 4"
    gone = watch(event("leave", 5, 4, reason=LEFT, topics=()), PUBLISH)
    assert gone.others == 1, "a node that is down is no node that could be reached wrongly"


def newcomers(*events: TraceEvent, adversaries: int = 0) -> Newcomers:
    return count_newcomers(run_watch(*events, adversaries=adversaries).groups)


def test_newcomers_are_nodes_that_join_soon_and_satisfy_the_expression() -> None:
    soon, late = 10 + NEWCOMER_S * 10**9, 11 + NEWCOMER_S * 10**9

    def join(node: int, at_ns: int, topics: tuple[int, ...] = (0, 1)) -> TraceEvent:
        return event("join", at_ns, node, reason=JOINED, topics=topics)

    assert newcomers(PUBLISH, join(5, soon)) == Newcomers(1, 0)
    assert newcomers(PUBLISH, join(5, soon), event("deliver", soon + 5, 5, 1)) == Newcomers(1, 1)
    assert newcomers(PUBLISH, join(5, late), event("deliver", late + 5, 5, 1)) == Newcomers(0, 0)
    assert newcomers(PUBLISH, join(5, soon, (0,))) == Newcomers(0, 0), "it lacks b"
    assert newcomers(join(5, 5), PUBLISH, event("deliver", 12, 5, 1)) == Newcomers(0, 0), "a member"
    assert newcomers(PUBLISH, join(5, soon), adversaries=1 << 5) == Newcomers(0, 0)
    again = (event("leave", 11, 1, reason=LEFT, topics=(0, 1)), join(1, 12), event("deliver", 13, 1, 2))
    assert newcomers(PUBLISH, *again) == Newcomers(0, 0), "it was up at the publication"
    assert newcomers(PUBLISH, event("join", 12, 3, topics=(1,)), event("deliver", 13, 3, 1)) == Newcomers(0, 0)
    assert NEWCOMERS.numbers(Newcomers(0, 0))["newcomers_reached_ratio"] is None
    assert NEWCOMERS.numbers(Newcomers(4, 3)) == {"newcomers": 4, "newcomers_reached_ratio": 0.75}


def test_what_adversaries_receive_does_not_count() -> None:
    found = watch(
        PUBLISH,
        event("deliver", 11, 1, 0),
        event("deliver", 11, 2, 1),
        event("relay", 12, 3, 1),
        event("relay", 12, 4, 3),
        adversaries=1 << 1 | 1 << 3,
    )
    assert counts(found) == {
        "members": [1],
        "reached": [1],
        "latecomers": [0],
        "false_positives": [0],
        "relays": [1],
        "others": [1],
        "copies": [2],
        "delay_ms": [12 + 34],
        "sent": [0, 0, 0, 0],
        "expressions": [1, 1],
    }


def test_a_link_carries_an_expression_in_either_direction_and_for_several_messages_once() -> None:
    def message(expression: str, *copies: tuple[int, int]) -> WatchedMessage:
        made = WatchedMessage(expression, 0, 0, 0)
        for peer, node in copies:
            made.receive(event("duplicate", 5, node, peer), {}, 1)
        return made

    messages = [message("a", (1, 2), (2, 3)), message("a", (2, 1)), message("b", (2, 1)), message("b&a", (4, 0))]
    found = sum_up_groups(messages, [], [], None)
    assert sorted(found.expressions.tolist()) == [1, 1, 2]


def test_a_node_that_passes_a_message_on_and_delivers_it_is_no_relay() -> None:
    """In either order: copies on different topics may arrive one after the other."""
    found = watch(PUBLISH, event("relay", 11, 3, 0), event("deliver", 12, 3, 1), event("deliver", 12, 4, 1))
    assert (found.relays, found.false_positives) == (0, 2)
    found = watch(PUBLISH, event("deliver", 12, 3, 1), event("relay", 13, 3, 0), event("relay", 13, 4, 0))
    assert (found.relays, found.false_positives) == (1, 1)


def test_large_networks_have_no_bound() -> None:
    assert measure_paths(lambda a, b: 1, MOST_HOSTS + 1) is None
    found = watch(PUBLISH)
    assert found.bound_ms.tolist() == [0]


TOPICS = 5
SETS = st.lists(st.frozensets(st.integers(0, TOPICS - 1)), min_size=1, max_size=12)


@given(SETS, st.lists(st.frozensets(st.integers(0, TOPICS - 1), min_size=1, max_size=3), min_size=1, max_size=3))
def test_predicted_false_positives_are_those_of_each_node(
    interests: list[frozenset[int]], terms: list[frozenset[int]]
) -> None:
    expression = "|".join("&".join(map(keyword, sorted(term))) for term in terms)
    subscribers = {
        topic: bitset(node for node, topics in enumerate(interests) if topic in topics) for topic in range(TOPICS)
    }
    left = terms_of_topics(expression)
    others = bitset(node for node, topics in enumerate(interests) if not any(term <= topics for term in left))

    def rate(attributes: int, lacking: tuple[int, ...]) -> float:
        return attributes + 100 * sum((place + 1) * number for place, number in enumerate(lacking))

    expected = sum(
        rate(len(interests[node]), tuple(len(term - interests[node]) for term in left)) for node in members(others)
    )
    assert predict(rate, expression, count_sets(others, subscribers.values()), subscribers) == expected


def test_terms_count_as_independent_in_the_prediction() -> None:
    parameters = {"address_bits": 64, "hashes": 2}
    one, two = (predict_false_positives(parameters, 6, (lacking,)) for lacking in (1, 2))
    assert one == pytest.approx(BloomScheme(64, 2).false_positive_rate(6, 1))
    assert predict_false_positives(parameters, 6, (1, 2)) == pytest.approx(one + two - one * two)


@pytest.mark.parametrize(("bits", "hashes"), [(64, 2), (32, 2)])
def test_the_prediction_is_the_rate_over_many_hash_keys(bits: int, hashes: int) -> None:
    """With one key, the positions of few popular keywords decide; so studies with few seeds are far from the mean."""
    draws = Random(5)
    words = [f"w{number}" for number in range(100)]
    matched, predicted = 0, 0.0
    for key in range(300):
        scheme = BloomScheme(bits, hashes, str(key))
        for _ in range(20):
            *own, other = draws.sample(words, draws.randint(6, 9))
            wanted = scheme.address((other,))
            matched += scheme.address(own) & wanted == wanted
            predicted += scheme.false_positive_rate(len(own), 1)
    assert matched == pytest.approx(predicted, rel=0.1)
    assert matched > 100
