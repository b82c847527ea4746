"""Implicit groups: a CAST reaches all nodes whose addresses match its target, once each, and no others."""

from math import pi
from random import Random

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from peer.core.addressing.expression import parse
from peer.core.addressing.keywords import keyword
from peer.core.contract import Send
from peer.core.frames import Data
from peer.protocols.description import ParameterError
from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.protocols.implicit_groups.addressing.target import Target
from peer.protocols.implicit_groups.encoding import decode_way
from tests.examples import examples
from tests.group_network import COPIES, PROTOCOL, TOPICS, Network, draw_interests

SEEDS = st.integers(0, 2**32)
PHI = st.sampled_from([0.0, 0.5, 1.0, 2.0, pi, 6.2])
EVERYBODY = "|".join(map(keyword, range(TOPICS)))


@st.composite
def expressions(draw) -> str:
    terms = draw(st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=3, unique=True), min_size=1, max_size=3))
    return "|".join("&".join(map(keyword, term)) for term in terms)


@settings(max_examples=examples(12))
@given(
    nodes=st.integers(2, 30),
    seed=SEEDS,
    dimensions=st.integers(1, 4),
    phis=st.lists(PHI, min_size=1, max_size=3, unique=True),
    bits=st.sampled_from([5, 16, 33, 64, 256]),
    few_topics=st.booleans(),
    limit=st.sampled_from([1, 8, 64]),
    casts=st.lists(st.tuples(st.integers(0, 29), expressions()), min_size=1, max_size=4),
)
@example(30, 1, 2, [1.0], 64, False, 64, [(0, "a"), (1, "a|b&c")])
def test_all_members_get_a_cast_once_and_others_by_matching_addresses_alone(
    nodes, seed, dimensions, phis, bits, few_topics, limit, casts
):
    network = Network(
        draw_interests(nodes, seed, *((4, 2) if few_topics else (20, 5))),
        seed,
        dimensions=dimensions,
        branch_factor=phis[0],
        parallel_branch_factors=tuple(phis) if len(phis) > 1 else (),
        address_bits=bits,
        expansion_limit=limit,
    )
    scheme = BloomScheme(bits, 2)
    for source, text in casts:
        before = len(network.traced(*COPIES))
        got = network.cast(source % nodes, text, 3)
        target = Target.of(parse(text), scheme, dimensions)
        assert got.keys() == {node for node in network.up if target.matches(network.overlay(node).address)}
        assert got.keys() >= network.members(text, network.up)
        assert set(got.values()) <= {1}
        assert len(network.traced(*COPIES)) - before <= nodes * sum(copies_per_node(nodes, phi, limit) for phi in phis)
    assert not network.traced("reject")


def copies_per_node(nodes: int, phi: float, limit: int) -> int:
    """Most copies of a CAST per node: each branch of it has extents of its own, and passes each node once."""
    return 1 + min(nodes * (limit + 2), nodes if phi >= pi else nodes * limit)


def copies(phi: float) -> int:
    """How many copies a message to a part of 60 nodes takes."""
    network = Network(draw_interests(60, 8, 20, 5), 8, branch_factor=phi)
    assert network.members("a|b|c", network.up) <= network.cast(0, "a|b|c").keys()
    return len(network.traced(*COPIES))


def test_a_cast_with_one_branch_visits_one_extent_after_another_with_fewer_copies():
    one, several, most = map(copies, (pi, 1.0, 0.0))
    assert one < 2 * 60
    assert one < several < most


def test_cohabitants_get_what_the_manager_of_their_address_gets_and_inherit_its_extents():
    interests = [(1, 2), (1, 2), (1, 2), (3,), (4, 5), (2, 6), (7,)]
    network = Network(interests, 1, start="joins", join_spread_s=1.0)
    network.run(7)
    network.assert_exact()
    hosted = [node for node in (0, 1, 2) if network.overlay(node).host is not None]
    assert len(hosted) == 2
    for publisher in (3, *hosted):
        assert sorted(network.cast(publisher, "b&c")) == [0, 1, 2]
    manager = network.overlay(hosted[0]).host
    extents = network.overlay(manager).surface.extents
    network.leave(manager)
    network.run(8)
    network.assert_exact()
    assert [node for node in hosted if network.overlay(node).surface.extents == extents]
    assert sorted(network.cast(3, "b&c")) == hosted


@pytest.mark.parametrize("silently", [pytest.param(False, marks=pytest.mark.long), True])
def test_all_members_get_casts_again_after_a_fifth_of_the_nodes_has_crashed(silently: bool):
    network = Network(30, 2, takeover_s=2.0, heartbeat_s=1.0)
    network.crash(*network.draws.sample(network.up, 6), silently=silently)
    network.run(60)
    network.assert_exact()
    for number in range(3):
        text = network.draw_expression()
        assert network.members(text, network.up) <= network.cast(network.up[number], text).keys()


# Several branch factors in parallel


def reached(seed: int, **parameters: object) -> tuple[int, int, int]:
    """Messages in a network of which a fifth drops: (honest members, those of them reached, copies received)."""
    size = 40
    network = Network(size, seed, droppers=Random(seed).sample(range(size), size // 5), **parameters)
    honest = [node for node in range(size) if node not in network.droppers]
    wanted = got = 0
    for _ in range(10):
        publisher, text = network.draws.choice(honest), network.draw_expression()
        receivers = network.cast(publisher, text, 3)
        members = network.members(text, honest) - {publisher}
        assert max(receivers.values(), default=1) == 1
        wanted += len(members)
        got += len(members & receivers.keys())
    return wanted, got, len(network.traced(*COPIES))


@pytest.mark.long
def test_several_branch_factors_reach_more_members_past_droppers_for_more_copies():
    alone, together = reached(1), reached(1, parallel_branch_factors=(0.3, 1.0, 3.2))
    assert together[0] == alone[0] > alone[1]
    assert alone[1] + 0.1 * alone[0] < together[1]
    assert alone[2] < together[2]


def test_a_message_is_sent_once_per_branch_factor():
    network = Network(20, 4, parallel_branch_factors=(0.5, 3.2))
    sent: list[float] = []
    before = len(network.pump.effects)
    network.publish(0, 0, EVERYBODY)
    for _, node, effect in network.pump.effects[before:]:
        match effect:
            case Send(_, Data() as copy) if node == 0:
                sent.append(decode_way(copy.routing).branch_factor)
    assert set(sent) == {0.5, 3.2}
    assert sent.count(3.2) == 1, "above pi, a CAST does not branch"


def test_equal_branch_factors_are_refused():
    parameters = msgspec.convert({"parallel_branch_factors": [1.0, 1.0]}, PROTOCOL.parameters)
    with pytest.raises(ParameterError, match="parallel_branch_factors"):
        PROTOCOL.check(parameters, 10)
