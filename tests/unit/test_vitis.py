"""Vitis's preference function and gateway election, by the paper's examples and rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core.ring import rank, topic_key
from peer.protocols.vitis.election import elect
from peer.protocols.vitis.frames import Proposal
from peer.protocols.vitis.utility import MOST_CACHED, Preference

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


@pytest.mark.parametrize(("one", "other", "utility"), [(P, Q, 0.25), (P, R, 0.125), (Q, R, 1 / 3)])
def test_the_papers_examples_of_the_utility(one, other, utility):
    assert Preference(one)[other] == Preference(other)[one] == pytest.approx(utility)


def test_a_topic_without_publications_is_ignored():
    rates = [1.0] * 8
    rates[C] = 0.0
    assert Preference(P, rates)[Q] == 0
    assert Preference(Q, rates)[R] == pytest.approx(1 / 5)


def test_a_shared_topic_with_a_high_rate_outweighs_several_others():
    rates = [1.0, 1.0, 100.0, 1.0]
    preference = Preference(frozenset({0, 1, 2}), rates)
    assert preference[frozenset({2, 3})] > preference[frozenset({0, 1})]


def test_topics_that_no_rate_is_known_of_weigh_nothing():
    preference = Preference(frozenset({0, 1}), [1.0, 1.0])
    assert preference[frozenset({0, 2**32 - 1})] == preference[frozenset({0})]


def test_nodes_without_topics_have_no_utility():
    assert Preference(frozenset())[frozenset()] == 0


def test_more_utilities_than_are_remembered_are_still_right():
    preference = Preference(frozenset({0}))
    for topic in range(2 * MOST_CACHED):
        assert preference[frozenset({0, topic + 1})] == 0.5
    assert preference[frozenset({0, 1})] == 0.5
    assert len(preference) <= MOST_CACHED


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
