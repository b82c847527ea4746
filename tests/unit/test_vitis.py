"""Vitis's preference function and gateway election, by the paper's examples and rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.protocols.tman.ring import PrivateOrder, rank, topic_key
from peer.protocols.tman.shared_sets import MOST_TOPICS as MOST_KEPT
from peer.protocols.vitis.election import elect
from peer.protocols.vitis.frames import Proposal
from peer.protocols.vitis.friends import find_friends
from peer.protocols.vitis.utility import HIGHEST_TOPIC, Preference, Weights

A, B, C, D, E, F, G, H = range(8)
P, Q, R = frozenset({A, B, C}), frozenset({C, D}), frozenset({C, D, E, F, G, H})

TOPIC, SELF, D_HOPS = 7, 0, 5
BY_CLOSENESS = sorted(range(1, 60), key=lambda node: rank(node, topic_key(TOPIC)))
CLOSER = [node for node in BY_CLOSENESS if rank(node, topic_key(TOPIC)) < rank(SELF, topic_key(TOPIC))]
FARTHER = [node for node in BY_CLOSENESS if node not in CLOSER]
BEST, SECOND = CLOSER[:2]


def elected(offers: dict[int, Proposal], most_hops: int = D_HOPS, **given: object) -> Proposal:
    return elect(SELF, TOPIC, offers, most_hops=most_hops, **given)


# ---------------------------------------------------------------------------------------------------- utility


def utility(own: frozenset[int], theirs: frozenset[int], rates: list[float] | None = None) -> float:
    return Preference(own, Weights(rates)).utility(theirs)


@pytest.mark.parametrize(("one", "other", "expected"), [(P, Q, 0.25), (P, R, 0.125), (Q, R, 1 / 3)])
def test_the_papers_examples_of_the_utility(one, other, expected):
    assert utility(one, other) == utility(other, one) == pytest.approx(expected)


def test_a_topic_without_publications_is_ignored():
    rates = [1.0] * 8
    rates[C] = 0.0
    assert utility(P, Q, rates) == 0
    assert utility(Q, R, rates) == pytest.approx(1 / 5)


def test_a_shared_topic_with_a_high_rate_outweighs_several_others():
    rates = [1.0, 1.0, 100.0, 1.0]
    own = frozenset({0, 1, 2})
    assert utility(own, frozenset({2, 3}), rates) > utility(own, frozenset({0, 1}), rates)


def test_topics_that_no_rate_is_known_of_weigh_nothing():
    own = frozenset({0, 1})
    assert utility(own, frozenset({0, 2**32 - 1}), [1.0, 1.0]) == utility(own, frozenset({0}), [1.0, 1.0])


def test_nodes_without_topics_have_no_utility():
    assert utility(frozenset(), frozenset()) == 0


def test_topics_beyond_all_experiments_are_shared_with_nobody():
    own = frozenset({0, HIGHEST_TOPIC - 1, HIGHEST_TOPIC})
    assert utility(own, frozenset({HIGHEST_TOPIC - 1, HIGHEST_TOPIC})) == pytest.approx(1 / 4)


def test_weights_of_sets_that_others_invent_are_not_kept_without_limit():
    few, high = Weights(), Weights()
    for number in range(0, 3 * MOST_KEPT // 2, 5000):
        few[frozenset(range(number, number + 5000))]
    for number in range(2 * MOST_KEPT // (HIGHEST_TOPIC >> 9)):
        high[frozenset({HIGHEST_TOPIC - 1, number})]
    assert sum(map(len, few)) <= MOST_KEPT
    assert sum(bits.bit_length() for bits, _ in high.values()) <= 512 * MOST_KEPT


SUBSCRIPTIONS = st.lists(st.frozensets(st.integers(0, 9), max_size=6), min_size=2, max_size=12)


@pytest.mark.parametrize("rates", [None, [2.0, 1.0, 0.5, 3.0, 0.0, 1.5, 1.0, 0.25]])
@given(interests=SUBSCRIPTIONS, count=st.integers(1, 5))
def test_friends_of_a_converged_start_are_those_that_a_node_would_choose(rates, interests, count):
    weights = Weights(rates)
    topics = [tuple(sorted(one)) for one in interests]
    for node, friends in enumerate(find_friends(topics, count, weights)):
        others = [other for other in range(len(interests)) if other != node]
        rank = {other: Preference(interests[node], weights).utility(interests[other]) for other in others}
        place = PrivateOrder(node).place
        best = sorted(
            (other for other in others if rank[other]), key=lambda other: (-round(rank[other], 9), place(other))
        )
        assert [round(rank[friend], 9) for friend in friends] == [round(rank[other], 9) for other in best[:count]]
        if rates is None:
            assert list(friends) == best[:count]


# --------------------------------------------------------------------------------------------------- election


def test_a_node_alone_proposes_itself():
    assert elected({}) == Proposal(SELF, SELF, 0)


def test_the_gateway_closest_to_the_topic_is_proposed_one_hop_further():
    offers = {SECOND: Proposal(SECOND, SECOND, 0), 3: Proposal(BEST, 90, 2)}
    assert elected(offers) == Proposal(BEST, 3, 3)


def test_a_gateway_that_is_farther_than_this_node_is_not_proposed():
    assert elected({FARTHER[0]: Proposal(FARTHER[0], FARTHER[0], 0)}) == Proposal(SELF, SELF, 0)


@pytest.mark.parametrize("order", [(3, 4), (4, 3)])
def test_of_two_ways_to_a_gateway_the_shorter_is_proposed(order):
    hops = {3: 3, 4: 1}
    offers = {peer: Proposal(BEST, 90 + peer, hops[peer]) for peer in order}
    assert elected(offers) == Proposal(BEST, 4, 2)


def test_of_equal_ways_to_a_gateway_the_present_one_stays():
    offers = {3: Proposal(BEST, 93, 2), 4: Proposal(BEST, 94, 2), 5: Proposal(BEST, 95, 1)}
    assert elected({3: offers[3], 4: offers[4]}, parent=4) == Proposal(BEST, 4, 3)
    assert elected(offers, parent=4) == Proposal(BEST, 5, 2)
    assert elected({3: offers[3]}, parent=4) == Proposal(BEST, 3, 3)


def test_a_gateway_is_at_most_d_hops_away():
    assert elected({3: Proposal(BEST, 90, D_HOPS - 1)}) == Proposal(BEST, 3, D_HOPS)
    assert elected({3: Proposal(BEST, 90, D_HOPS)}) == Proposal(SELF, SELF, 0)


def test_a_proposal_that_a_neighbour_has_from_another_neighbour_does_not_count():
    offers = {3: Proposal(BEST, 4, 2), 4: Proposal(4, 4, 0)}
    assert elected(offers).gateway != BEST


def test_a_nodes_own_proposal_does_not_come_back_to_it():
    """The listing accepts it, since a node is not in its own routing table."""
    assert elected({3: Proposal(BEST, SELF, 2)}) == Proposal(SELF, SELF, 0)


def test_a_gateway_that_failed_is_not_taken_from_others():
    offers = {3: Proposal(BEST, 90, 1), SECOND: Proposal(SECOND, SECOND, 0)}
    assert elected(offers, failed=(BEST,)) == Proposal(SECOND, SECOND, 1)


@given(
    offers=st.dictionaries(
        st.integers(1, 20),
        st.builds(Proposal, st.integers(0, 59), st.integers(0, 59), st.integers(0, 255)),
        max_size=8,
    ),
    most_hops=st.integers(1, 8),
    parent=st.integers(0, 20),
)
def test_whatever_is_offered_the_proposal_is_bounded_and_no_worse_than_this_node(offers, most_hops, parent):
    proposal = elected(offers, most_hops, parent=parent)
    assert 0 <= proposal.hops <= most_hops
    assert rank(proposal.gateway, topic_key(TOPIC)) <= rank(SELF, topic_key(TOPIC))
    assert (proposal.hops == 0) == (proposal.gateway == SELF) == (proposal.parent == SELF)
    assert proposal.parent in {SELF, *offers}
