"""Shortcuts of implicit groups: how routes use them, how nodes find and replace them, and what forged searches do."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import NodeId
from peer.protocols.implicit_groups.addressing.extent import AddressSpace
from peer.protocols.implicit_groups.addressing.geometry import distance
from peer.protocols.implicit_groups.encoding import pack, unpack
from peer.protocols.implicit_groups.frames import GroupShortcut
from peer.protocols.implicit_groups.placement import Partition
from peer.protocols.implicit_groups.shortcuts import MOST_PASSED, ShortcutOverlay, sample_way
from peer.protocols.implicit_groups.surface import Surface
from tests.examples import examples
from tests.group_network import Network

SPACE = AddressSpace(12, 2)


def make_surfaces(nodes: int, each: int, draws: Random) -> dict[NodeId, Surface]:
    """Some nodes on a divided surface, each with shortcuts to random ones; those of cohabitants are left out."""
    addresses = [SPACE.extent(draws.getrandbits(SPACE.bits)) for _ in range(nodes)]
    partition = Partition(SPACE, addresses, range(nodes))
    surfaces = {}
    for node in range(nodes):
        if not partition.extents(node):
            continue
        surfaces[node] = surface = Surface(SPACE, addresses[node].path)
        surface.take(partition.extents(node))
        for near in partition.linked(node):
            surface.learn(near, partition.extents(near))
    for node, surface in surfaces.items():
        others = sorted(surfaces.keys() - surface.neighbours.keys() - {node})
        for far in draws.sample(others, min(each, len(others))):
            surface.keep_shortcut(far, surfaces[far].extents)
    return surfaces


def route(surfaces: dict[NodeId, Surface], source: NodeId, goal: NodeId) -> int:
    """How many hops a frame takes to the address of a node; fails if a hop is not nearer than the one before."""
    aim, node, hops = surfaces[goal].own, source, 0
    while not surfaces[node].manages(aim):
        hop = surfaces[node].next_hop((aim,), ())
        assert hop is not None
        after, is_detour = hop
        assert not is_detour
        far = [min(distance(extent, aim, SPACE.depth) for extent in surfaces[at].extents) for at in (node, after)]
        assert far[1] < far[0]
        node, hops = after, hops + 1
    return hops


@settings(deadline=None, max_examples=examples(10))
@given(st.integers(2, 40), st.integers(0, 4), st.randoms(use_true_random=False))
def test_every_hop_is_nearer_to_the_destination_with_any_shortcuts(nodes: int, each: int, draws: Random):
    surfaces = make_surfaces(nodes, each, draws)
    for source in surfaces:
        route(surfaces, source, draws.choice(list(surfaces)))


def test_shortcuts_make_ways_shorter_and_none_is_taken_that_is_forgotten():
    surfaces = make_surfaces(120, 4, Random(3))
    pairs = [(source, goal) for source in list(surfaces)[::9] for goal in list(surfaces)[::9]]
    with_shortcuts = sum(route(surfaces, *pair) for pair in pairs)
    for surface in surfaces.values():
        for node in list(surface.shortcuts):
            surface.forget_shortcut(node)
    assert with_shortcuts < 0.8 * sum(route(surfaces, *pair) for pair in pairs)
    assert all(
        hop in surface.neighbours for surface in surfaces.values()
        for hop, _ in [surface.next_hop((surfaces[other].own,), ()) for other in (0, 50)
                       if not surface.manages(surfaces[other].own)]
    )  # fmt: skip


def overlays(network: Network) -> dict[NodeId, ShortcutOverlay]:
    return {node: network.overlay(node) for node in network.up}


def check_shortcuts(network: Network, wanted: int) -> None:
    """Nodes have as many shortcuts as they are to have, or as there are; they know what these manage, and no others."""
    found = overlays(network)
    for node, overlay in found.items():
        surface = overlay.surface
        if not surface.extents:
            assert not overlay.shortcuts
            continue
        others = [it for it in found if found[it].surface.extents and it != node and it not in surface.neighbours]
        assert len(overlay.shortcuts) <= wanted
        hosts = any(it.host is not None for it in found.values())  # a search by way of a cohabitant may find nobody
        assert len(overlay.shortcuts) >= min(wanted, len(others)) - hosts
        assert surface.shortcuts == {it: found[it].surface.extents for it in overlay.shortcuts}
        assert not overlay.shortcuts.keys() & surface.neighbours.keys()
        assert overlay.shortcuts.keys() <= network.pump.linked(node)


@settings(deadline=None, max_examples=examples(6))
@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(1, 3), st.sampled_from(["placed", "joins"]))
def test_nodes_find_shortcuts_and_all_members_receive_once(seed: int, size: int, wanted: int, start: str):
    network = Network(size, seed, start=start, shortcuts=wanted, join_timeout_s=1.0)
    network.run(60)
    check_shortcuts(network, wanted)
    text, publisher = network.draw_expression(), network.draws.randrange(size)
    receivers = network.cast(publisher, text)
    assert network.members(text, network.up) <= receivers.keys()
    assert set(receivers.values()) <= {1}


@pytest.mark.parametrize("end", [pytest.param("leave", marks=pytest.mark.long), "crash"])
def test_lost_shortcuts_are_replaced(end: str):
    network = Network(40, 7, shortcuts=2, takeover_s=1.0, heartbeat_s=1.0, join_timeout_s=1.0)
    network.run(20)
    gone = max(network.up, key=lambda node: sum(node in it.shortcuts for it in overlays(network).values()))
    assert sum(gone in it.shortcuts for it in overlays(network).values()) > 1
    if end == "leave":
        network.leave(gone)
    else:
        network.crash(gone)
    network.run(20)
    check_shortcuts(network, 2)


def test_without_shortcuts_no_search_is_sent():
    network = Network(20, 3)
    network.run(20)
    assert not any(it.shortcuts or it.surface.shortcuts for it in overlays(network).values())


def test_the_list_of_a_search_is_a_bounded_uniform_sample():
    draws, counts = Random(1), [0] * 64
    for _ in range(600):
        passed: tuple[NodeId, ...] = ()
        for node in range(64):
            passed = sample_way(passed, node, node + 1, draws)
        assert len(set(passed)) == len(passed) == MOST_PASSED
        for node in passed:
            counts[node] += 1
    assert all(95 < count < 210 for count in counts), "600 * 16 / 64 = 150 each"


searches = st.builds(
    GroupShortcut,
    node=st.integers(0, 12),
    goal=st.one_of(st.just(pack(AddressSpace(64, 2).extent(5))), st.binary(max_size=10)),
    hops=st.sampled_from([0, 1, 1024, 2**40]),
    visited=st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
    passed=st.lists(st.integers(0, 2**40), max_size=MOST_PASSED + 1).map(tuple),
)


def is_extent(content: bytes) -> bool:
    try:
        unpack(content, AddressSpace(64, 2))
    except ValueError:
        return False
    return True


def reject_reasons(network: Network) -> Counter[str | None]:
    return Counter(event.reason for event in network.traced("reject"))


@settings(deadline=None, max_examples=examples(8))
@given(st.lists(searches, max_size=12), st.integers(0, 2**32))
def test_forged_searches_raise_nothing_and_give_no_more_shortcuts(forged: list[GroupShortcut], seed: int):
    network = Network(10, seed, shortcuts=1)
    for search in forged:
        network.say(0, 1 + search.hops % 9, search)
    network.run(5)
    assert reject_reasons(network)["bad_extents"] >= sum(not is_extent(search.goal) for search in forged)
    for node, overlay in overlays(network).items():
        assert len(overlay.shortcuts) <= 1
        assert all(0 <= it < 10 and it != node for it in overlay.shortcuts)


@pytest.mark.parametrize(
    ("search", "reason"),
    [
        (GroupShortcut(3, b"\xff" * 9, 1, (), ()), "bad_extents"),
        (GroupShortcut(2**40, pack(AddressSpace(64, 2).extent(5)), 1, (), ()), "bad_node"),
        (GroupShortcut(3, pack(AddressSpace(64, 2).extent(5)), 1, (), tuple(range(MOST_PASSED + 1))), "bad_node"),
    ],
)
def test_a_malformed_search_is_traced_and_goes_no_further(search: GroupShortcut, reason: str):
    network = Network(10, 3)
    before = network.traced("reject")
    network.say(0, 1, search)
    network.run(1)
    assert [event.reason for event in network.traced("reject")[len(before) :]] == [reason]


def test_a_node_that_has_not_asked_takes_no_shortcut():
    network = Network(12, 3)
    network.say(0, 5, GroupShortcut(5, pack(network.overlay(5).surface.own), 1, (), (7, 8)))
    assert not overlays(network)[5].shortcuts
