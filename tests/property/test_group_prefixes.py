"""Prefixes of addresses in implicit groups: their numbers, how nodes measure them, and that members are reached."""

from itertools import pairwise, permutations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from peer.core.addressing.keywords import keywords
from peer.core.contract import NodeId
from peer.protocols.description import FirstNetwork, ParameterError
from peer.protocols.implicit_groups.frames import GroupPing
from peer.protocols.implicit_groups.landmarks import prefix_of
from tests.examples import examples
from tests.group_network import PROTOCOL, Network

PREFIXED = {"prefix_bits": 4, "landmarks": 3, "join_timeout_s": 1.0}


def test_two_bits_of_four_landmarks_are_the_nearest_one():
    for order in permutations(range(4)):
        assert prefix_of([order.index(mark) for mark in range(4)], 2) == order[0]


@given(st.integers(1, 6), st.integers(0, 12))
def test_prefixes_rise_with_the_order_and_use_all_of_their_range(landmarks: int, bits: int):
    orders = sorted(permutations(range(landmarks)))[:800]
    prefixes = [prefix_of([order.index(mark) for mark in range(landmarks)], bits) for order in orders]
    assert prefixes[0] == 0
    assert all(low <= high for low, high in pairwise(prefixes))
    assert prefixes[-1] < 2**bits
    every = 2**bits
    assert len(set(prefixes)) == min(every, len(orders))
    counts = [prefixes.count(prefix) for prefix in set(prefixes)]
    assert max(counts) - min(counts) <= 1


def test_landmarks_that_are_equally_far_or_unknown_are_ordered_by_number():
    assert prefix_of([None, 5, 5], 8) == prefix_of([9, 1, 2], 8)
    assert prefix_of([None, None, None], 8) == 0


def expected_prefix(network: Network, node: NodeId, bits: int, marks: list[NodeId]) -> int:
    """The prefix by the delays of the pump's links; of the landmarks, those that are up."""
    delay_ns = network.pump.delay_ns
    times = [0 if mark == node else 2 * delay_ns(node, mark) if mark in marks else None for mark in range(3)]
    return prefix_of(times, bits)


@settings(deadline=None, max_examples=examples(8))
@given(st.integers(3, 20), st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([1, 2, 3]))
@example(6, 3, 16, 2)
@example(7, 258, 1, 1)  # a landmark closes its link to a node that waits for its answer
def test_nodes_that_join_measure_their_prefixes_and_members_are_reached(
    size: int, seed: int, bits: int, dimensions: int
):
    parameters = PREFIXED | {"prefix_bits": bits, "dimensions": dimensions}
    network = Network(size, seed, start="joins", join_spread_s=1.0, **parameters)
    network.run(25)
    network.assert_exact()
    for node in network.up:
        overlay = network.overlay(node)
        assert overlay.address >> 64 == expected_prefix(network, node, bits, [0, 1, 2])
        own = overlay.scheme.address
        assert overlay.address & 2**64 - 1 == own(keywords(network.interests[node]))
        needed = {overlay.host, *overlay.surface.neighbours, *overlay.cohabitants}
        assert {0, 1, 2} & set(overlay.state.wanted) <= needed, "it still wants a link to a landmark"
    for _ in range(2):
        text, publisher = network.draw_expression(), network.draws.randrange(size)
        receivers = network.cast(publisher, text)
        assert network.members(text, network.up) <= receivers.keys()
        assert set(receivers.values()) <= {1}


@pytest.mark.parametrize("silently", [False, True])
def test_a_node_joins_without_a_landmark_that_does_not_answer(silently: bool):
    network = Network(12, 5, late=1, takeover_s=1.0, heartbeat_s=1.0, **PREFIXED)
    network.crash(1, silently=silently)
    network.start(11)
    network.run(10)
    assert network.overlay(11).address >> 64 == expected_prefix(network, 11, 4, [0, 2])
    assert network.overlay(11).has_place


def test_the_plan_places_nodes_with_the_prefixes_that_they_would_measure():
    interests = [(node,) for node in range(8)]
    chosen = msgspec.convert({"start": "placed", **PREFIXED}, PROTOCOL.parameters)
    up = [node != 1 for node in range(8)]
    found = PROTOCOL.draw_initial_state(
        FirstNetwork(interests, up, 3, None, lambda one, other: 7 * abs(one - other)), chosen
    )
    for node in range(8):
        times = [7 * node, None, 7 * abs(node - 2)]
        assert found[node].get("prefix") == (prefix_of(times, 4) if up[node] else None)
    assert len({it.get("prefix") for it in found}) > 2


def test_placed_nodes_keep_the_prefix_of_the_plan_and_a_later_instance_measures():
    network = Network(6, 3, **PREFIXED)
    assert not [
        it for _, _, it in network.pump.effects if getattr(getattr(it, "frame", None), "kind", 0) == GroupPing.kind
    ]
    network = Network(6, 3, late=2, **PREFIXED)
    network.join(5)
    assert network.overlay(5).address >> 64 == expected_prefix(network, 5, 4, [0, 1, 2])


def test_without_prefixes_nobody_is_asked_and_answers_that_nobody_wants_are_ignored():
    network = Network(8, 3, start="joins")
    before = len(network.pump.effects)
    address = network.overlay(5).address
    network.say(0, 5, GroupPing(True))
    assert network.overlay(5).address == address
    network.say(0, 5, GroupPing(False))
    answers = [
        it
        for _, node, it in network.pump.effects[before:]
        if node == 5 and getattr(it, "frame", None) == GroupPing(True)
    ]
    assert len(answers) == 1


def test_more_landmarks_than_nodes_are_refused():
    parameters = msgspec.convert({"prefix_bits": 2, "landmarks": 4}, PROTOCOL.parameters)
    with pytest.raises(ParameterError, match="landmarks"):
        PROTOCOL.check(parameters, 3)
    PROTOCOL.check(parameters, 4)
    PROTOCOL.check(msgspec.convert({"landmarks": 4}, PROTOCOL.parameters), 3)
