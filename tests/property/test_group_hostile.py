"""Implicit groups: hostile frames on a running network raise nothing, are traced, and cost bounded work.

The work is counted in frames that honest nodes send, and in divisions of extents.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.addressing.expression import MAX_DEPTH, MAX_LENGTH
from peer.core.addressing.keywords import keyword
from peer.core.contract import NodeId, Send, SendEach, message_id
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.cast import MOST_BRANCHES, MOST_UNEXPLORED
from peer.protocols.implicit_groups.encoding import Way, encode_way, pack, pack_all
from peer.protocols.implicit_groups.frames import (
    GroupAlive,
    GroupAsk,
    GroupFind,
    GroupJoin,
    GroupLeave,
    GroupRefusal,
    GroupUpdate,
    GroupWelcome,
)
from tests.examples import examples, long_unless
from tests.group_network import COPIES, TOPICS, Network, draw_interests

SIZE = 12
QUIET = {"check_s": 0, "replay_s": 60.0}
"""Without checks, nodes send nothing by themselves."""

ROOT = Extent(2)


class Frames:
    """Frames that the honest nodes of a network sent.

    Attributes:
        sent: how many; known when the block ends.
    """

    def __init__(self) -> None:
        self.sent = 0


@contextmanager
def frames_of(network: Network, attacker: NodeId, *goals: NodeId) -> Iterator[Frames]:
    """Count the frames that nodes other than the attacker send in a block; before, it opens links to some of them."""
    for goal in goals:
        network.say(attacker, goal)
    found, before = Frames(), len(network.pump.effects)
    yield found
    for _, node, effect in network.pump.effects[before:]:
        match effect:
            case SendEach(peers, _) if node != attacker:
                found.sent += len(peers)
            case Send() if node != attacker:
                found.sent += 1


def reasons(network: Network) -> set[str | None]:
    return {event.reason for event in network.traced("reject")}


# Anything

NODES = st.integers(0, SIZE + 1) | st.just(2**40)
PACKED = st.one_of(
    st.tuples(st.integers(0, 33), st.integers(0)).map(
        lambda drawn: pack(Extent(2, drawn[0], drawn[1] % 4 ** drawn[0]))
    ),
    st.binary(max_size=10),
)
REGIONS = st.lists(PACKED, max_size=4).map(tuple)
ENTRIES = st.lists(st.tuples(NODES, REGIONS), max_size=3).map(tuple)
ADDRESSES = st.one_of(st.binary(min_size=8, max_size=8), st.binary(max_size=10))
HOPS = st.sampled_from([0, 1, 1023, 1024, 2**40])
VISITED = st.lists(NODES, max_size=3).map(tuple)
WAYS = st.one_of(
    st.binary(max_size=20),
    st.builds(
        lambda *fields: encode_way(Way(*fields)),
        st.lists(ADDRESSES, min_size=1, max_size=3).map(tuple),
        REGIONS,
        st.sampled_from([0.0, 1.0, 6.2]),
        HOPS,
        VISITED,
    ),
)
FRAMES = st.one_of(
    st.builds(GroupJoin, NODES, ADDRESSES, HOPS, VISITED),
    st.builds(GroupWelcome, REGIONS, ENTRIES, VISITED),
    st.builds(GroupUpdate, REGIONS, ENTRIES),
    st.builds(GroupLeave, ENTRIES),
    st.builds(GroupRefusal, NODES),
    st.builds(GroupFind, NODES, PACKED, HOPS, VISITED),
    st.builds(GroupAlive),
    st.builds(GroupAsk, NODES, st.integers(0, 3), ADDRESSES, VISITED, WAYS),
    st.builds(
        lambda number, way: Data(message_id(0, number), (0,), 1, UNLIMITED_TTL, b"", way), st.integers(0, 3), WAYS
    ),
)
MOST_PER_FRAME = 16 * SIZE
"""Frames that one forged frame may cause in this network. The worst makes several nodes give up their extents and join
again: each tells its neighbours, is routed through the network, and is welcomed."""


@settings(max_examples=examples(25))
@given(st.integers(0, 2**20), st.lists(st.tuples(st.integers(0, SIZE - 1), FRAMES), min_size=1, max_size=8), st.data())
def test_forged_frames_raise_nothing_and_cause_a_bounded_number_of_frames(seed, forged, data):
    network = Network(SIZE, seed, **QUIET)
    network.cast(1, "a|b|c", 1)
    attacker = data.draw(st.sampled_from([0, SIZE - 1]), label="attacker")
    goals = [goal if goal != attacker else 1 for goal, _ in forged]
    with frames_of(network, attacker, *goals) as frames:
        for goal, (_, frame) in zip(goals, forged, strict=True):
            network.say(attacker, goal, frame)
        network.run(10)
    assert frames.sent <= MOST_PER_FRAME * len(forged)


# Expressions


@pytest.mark.parametrize(
    "text",
    [
        "&",
        "a" * (MAX_LENGTH + 1),
        "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
        "(" * 10**6,
        "&".join(f"({a}|{a}{a})" for a in "abcdefgh"),
        "a|!",
    ],
    ids=["no operands", "long", "deep", "very deep", "many terms", "no attribute"],
)
def test_a_bad_expression_is_traced_and_sends_nothing(text: str):
    network = Network(SIZE, 1, **QUIET)
    with frames_of(network, 0) as frames:
        network.cast(1, text)
    assert reasons(network) == {"bad_expression"}
    assert frames.sent == 0


def test_the_longest_and_deepest_expressions_are_cast():
    network = Network(SIZE, 1, **QUIET)
    terms = "&".join(f"({a}|{a}{a})" for a in "abcdef")
    for text in ("a" * MAX_LENGTH, "(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH, "(a|b)&" * 170 + "a", terms):
        assert network.cast(1, text).keys() >= network.members(text, network.up)
    assert not network.traced("reject")


# Extents of others


def test_forged_extents_take_nothing_from_nodes_with_lower_numbers():
    network = Network(SIZE, 1, **QUIET)
    attacker = SIZE - 1
    before = network.managers()
    forged = [GroupUpdate(pack_all([ROOT]), ())] * 5
    with frames_of(network, attacker, *range(attacker)) as frames:
        for goal in range(attacker):
            network.say(attacker, goal, *forged)
        network.run(5)
    others = {extent: nodes for extent, nodes in network.managers().items() if nodes != [attacker]}
    assert others.items() >= {extent: nodes for extent, nodes in before.items() if nodes != [attacker]}.items()
    assert reasons(network) >= {"overlapping_extents"}
    assert frames.sent <= MOST_PER_FRAME * 5 * attacker


def test_forged_extents_of_the_lowest_number_cost_bounded_work():
    """Others yield, and join again and again by way of it: there is no authentication."""
    network = Network(SIZE, 1, **QUIET)
    with frames_of(network, 0, *range(1, SIZE)) as frames:
        for goal in range(1, SIZE):
            network.say(0, goal, GroupUpdate(pack_all([ROOT]), ()))
        network.run(10)
    assert reasons(network) >= {"overlapping_extents"}
    assert frames.sent <= 30 * (SIZE - 1) * 12, "30 frames per node and second; a JOIN is repeated every 3 s"


# JOINs for taken space


def addresses_of(network: Network) -> dict[NodeId, bytes]:
    return {node: network.overlay(node).address.to_bytes(8, "big") for node in network.up}


@pytest.mark.parametrize("attacker", [0, SIZE - 1])
def test_joins_in_the_name_of_members_leave_the_surface_divided(attacker: NodeId):
    """For every member's address, in the name of every member: they refuse, and the managers take the extents back."""
    network = Network(SIZE, 2, **QUIET)
    addresses = addresses_of(network)
    goal = 1 if attacker != 1 else 2
    forged = [GroupJoin(node, address, 1, ()) for node in network.up for address in addresses.values()]
    with frames_of(network, attacker, goal) as frames:
        network.say(attacker, goal, *forged)
        network.run(20)
    network.assert_divided()
    assert reasons(network) >= {"not_the_manager"}
    assert frames.sent <= MOST_PER_FRAME * len(forged)


def test_joins_in_the_name_of_nodes_that_are_down_leave_the_surface_divided():
    network = Network(SIZE + 3, 2, late=3, **QUIET)
    for node in range(SIZE, SIZE + 3):
        network.pump.vanish(node)
    forged = [GroupJoin(SIZE + number, b"%08d" % number, 1, ()) for number in (0, 1, 2)]
    forged += [GroupJoin(2**40, bytes(8), 1, ()), GroupJoin(3, b"\xff" * 9, 1, ()), GroupJoin(3, bytes(8), 2**40, ())]
    with frames_of(network, 1, 2) as frames:
        network.say(1, 2, *forged)
        network.run(20)
    network.assert_exact()
    assert reasons(network) == {"bad_node", "bad_extents", "hop_limit"}
    assert frames.sent <= MOST_PER_FRAME * len(forged)


# Casts with wildcards everywhere


def cast_of(elements: list[int], unexplored: list[Extent], phi: float = 0.0) -> Data:
    way = Way(tuple(element.to_bytes(8, "big") for element in elements), pack_all(unexplored), phi, 0)
    return Data(message_id(0, 7), (0,), 1, UNLIMITED_TTL, b"", encode_way(way))


def small_extents(count: int) -> list[Extent]:
    """Extents all over the surface, none next to another one in the tree."""
    return [Extent(2, 14, index << 14) for index in range(count)]


@contextmanager
def counted_divisions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many extents were divided in the block, in one place."""
    count, split = [0], Extent.split

    def counting(self: Extent) -> Any:
        count[0] += 1
        return split(self)

    with monkeypatch.context() as patch:
        patch.setattr(Extent, "split", counting)
        yield count


@pytest.mark.parametrize(
    "frame",
    [
        cast_of([0], [ROOT]),
        cast_of([1], [ROOT]),
        cast_of([0b11] * 64 + [0b111], [ROOT]),
        cast_of([0b11], small_extents(257)),
        cast_of([0b11], small_extents(4097)),
    ],
    ids=["empty element", "fewer bits than a keyword's", "many elements", "many extents", "too many extents"],
)
def test_too_general_casts_go_nowhere(frame: Frame):
    network = Network(SIZE, 1, **QUIET)
    with frames_of(network, 0, 1) as frames:
        network.say(0, 1, frame)
        network.run(3)
    assert reasons(network) == {"bad_cast"}
    assert frames.sent == 0


@pytest.mark.parametrize("phi", long_unless({0.0, 6.2}, [0.0, 1.0, 6.2]))
@pytest.mark.parametrize(
    ("elements", "unexplored"),
    [
        ([0b11], [ROOT]),
        ([0b11 << bit for bit in range(62)], [ROOT]),
        ([0b11], small_extents(256)),
    ],
    ids=["one element", "62 elements", "256 extents"],
)
def test_the_most_general_casts_need_bounded_work(monkeypatch, phi, elements, unexplored):
    network = Network(draw_interests(SIZE, 5, 40, 5), 5, **QUIET)
    with frames_of(network, 0, 1) as frames, counted_divisions(monkeypatch) as divisions:
        network.say(0, 1, cast_of(elements, unexplored, phi))
        network.run(5)
    copies = len(network.traced(*COPIES))
    assert 1 <= copies <= SIZE * 2 * MOST_BRANCHES
    assert frames.sent <= SIZE * 2 * MOST_BRANCHES
    assert divisions[0] <= copies * MOST_UNEXPLORED * 32, "at most all of a copy's extents, at each depth"


def test_a_copy_with_the_most_extents_is_divided_into_copies_that_others_accept():
    """A node may have more to reach than one copy may carry, by what its own extents divide."""
    network = Network(draw_interests(20, 5), 5, dimensions=4, **QUIET)
    scheme = BloomScheme(64, 2)
    name = next(name for name in map(str, range(1000)) if min(scheme.positions(name)) >= 16)
    element = scheme.address((name,))
    unexplored = [Extent(4, 4, index << 8) for index in range(256)]  # by the first 16 bits, of which it sets none
    way = Way((element.to_bytes(8, "big"),), pack_all(unexplored), 6.2, 0)
    network.say(0, 1, Data(message_id(0, 7), (0,), 1, UNLIMITED_TTL, b"", encode_way(way)))
    network.run(5)
    assert len(network.traced(*COPIES)) > 1, "not only the forged one"
    assert reasons(network) == set()


def test_requests_with_wildcards_everywhere_are_refused():
    network = Network(SIZE, 1, **QUIET)
    network.cast(1, "a|b")
    way = Way((bytes(8),), pack_all([ROOT]), 1.0, 0)
    with frames_of(network, 0, 1) as frames:
        network.say(0, 1, GroupAsk(3, 1, b"\xff" * 8, (), encode_way(way)))
        network.run(3)
    assert reasons(network) == {"bad_extents"}
    assert frames.sent == 0


def test_a_lowest_node_that_claims_the_whole_surface_takes_it():
    """The limit that docs/protocols/implicit-groups.md names: there is no authentication."""
    network = Network(20, 1)
    everybody = "|".join(map(keyword, range(TOPICS)))
    assert len(network.cast(5, everybody)) == 20
    for node in range(1, 20):
        network.say(0, node, GroupUpdate((pack(ROOT),), ()))
    network.run(30)
    assert len(network.cast(5, everybody)) == 1
