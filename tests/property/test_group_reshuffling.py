"""Reshuffling of implicit groups: it ends, the surface stays divided, and nobody is left with much more than others."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from peer.core.contract import Effect, NodeId, Send, TimerFired
from peer.protocols.implicit_groups.encoding import pack_all
from peer.protocols.implicit_groups.frames import GroupRefusal, GroupWelcome
from peer.protocols.implicit_groups.reshuffling import OVERLOAD, RESHUFFLE
from peer.protocols.implicit_groups.surface import cells
from tests.examples import examples
from tests.group_network import SECOND_NS, Network


def loads(network: Network) -> dict[NodeId, int]:
    """What each node manages."""
    overlays = {node: network.overlay(node) for node in network.up}
    return {node: cells(it.surface.extents, it.surface.space.depth) for node, it in overlays.items()}


def hand_overs(network: Network, since_s: float = 0.0) -> list[tuple[NodeId, GroupWelcome]]:
    """The giver and the Welcome of each hand-over of extents to a node that had some."""
    return [
        (node, effect.frame)
        for at_ns, node, effect in network.pump.effects
        if at_ns >= since_s * SECOND_NS and isinstance(effect, Send) and isinstance(effect.frame, GroupWelcome)
    ]


@settings(deadline=None, max_examples=examples(5))
@given(
    st.integers(2, 25), st.integers(0, 2**32), st.integers(1, 3), st.sampled_from(["placed", "joins"]),
    st.sampled_from([1, 60, 400]),
)  # fmt: skip
def test_reshuffling_ends_and_leaves_the_surface_divided(size: int, seed: int, dimensions: int, start: str, ms: int):
    network = Network(size, seed, start=start, dimensions=dimensions, reshuffle_s=1.0, longest_ms=ms, join_spread_s=2.0)
    largest = max(loads(network).values())
    network.run(40)
    calm_s = network.pump.now_ns / SECOND_NS
    network.run(10)
    assert not hand_overs(network, calm_s)
    network.assert_exact()
    if start == "placed":
        assert max(loads(network).values()) <= largest
    check_that_no_hand_over_is_left(network)


def check_that_no_hand_over_is_left(network: Network) -> None:
    """No overloaded node could give a spare extent to a neighbour that would then not manage more than the node."""
    for node, load in loads(network).items():
        surface = network.overlay(node).surface
        depth = surface.space.depth
        around = {it: cells(region, depth) for it, region in surface.neighbours.items()}
        if len(surface.extents) < 2 or load * len(around) <= OVERLOAD * sum(around.values()):
            continue
        for extent in surface.extents:
            near = surface.next_to(frozenset({extent}))
            if not extent.covers(surface.own) and near:
                size = cells((extent,), depth)
                assert min(around[it] for it in near) + size > load - size


def test_loads_become_fairer_and_every_node_keeps_its_address():
    before, after = Network(30, 4), Network(30, 4, reshuffle_s=1.0)
    before.run(10)
    after.run(10)
    assert hand_overs(after)
    assert not hand_overs(before)
    assert max(loads(after).values()) < max(loads(before).values())
    assert sum(load**2 for load in loads(after).values()) < sum(load**2 for load in loads(before).values())
    assert after.misplaced() == []


@settings(deadline=None, max_examples=examples(4))
@given(st.integers(5, 25), st.integers(0, 2**32))
@example(25, 1)
def test_members_receive_once_while_nodes_reshuffle(size: int, seed: int):
    network = Network(size, seed, reshuffle_s=0.5)
    for _ in range(4):
        text, publisher = network.draw_expression(), network.draws.randrange(size)
        receivers = network.cast(publisher, text, 1.0)
        assert network.members(text, network.up) <= receivers.keys()
        assert set(receivers.values()) <= {1}


def test_reshuffling_goes_on_after_nodes_have_left_and_crashed():
    network = Network(30, 6, reshuffle_s=1.0, takeover_s=1.0, heartbeat_s=1.0)
    network.run(10)
    network.leave(7)
    network.crash(3, 11)
    network.run(40)
    network.assert_exact()
    check_that_no_hand_over_is_left(network)


def test_an_heir_refuses_what_would_make_it_manage_more_than_the_giver() -> None:
    def refusals(stays: bool, **parameters: object) -> list[str | None]:
        """Of the node that manages the most, when a neighbour hands it the largest of its extents."""
        network = Network(20, 2, **parameters)
        sizes = loads(network)
        heir = max(sizes, key=sizes.__getitem__)
        around = network.overlay(heir).surface.neighbours
        giver = min(around, key=sizes.__getitem__)
        given = min(around[giver], key=lambda extent: extent.depth)
        network.say(giver, heir, GroupWelcome(pack_all([given]), ((giver, ()),) if stays else (), ()))
        sent = [effect.frame for _, node, effect in network.pump.effects if node == heir and isinstance(effect, Send)]
        reasons = [it.reason for it in network.traced("reject") if it.node == heir and it.kind == GroupWelcome.kind]
        assert sum(isinstance(frame, GroupRefusal) for frame in sent) == len(reasons)
        return reasons

    assert refusals(True, reshuffle_s=1000.0) == ["overloaded"]
    assert refusals(False, reshuffle_s=1000.0) == [], "the giver leaves"
    assert refusals(True) == [], "reshuffling is off"


def test_what_an_heir_refuses_its_giver_manages_again():
    network = Network(30, 4, reshuffle_s=1000.0)
    sizes = loads(network)
    overloaded = {
        node
        for node, size in sizes.items()
        if (around := network.overlay(node).surface.neighbours)
        and size > 2 * sum(sizes[it] for it in around) / len(around)
    }
    before = {node: network.overlay(node).surface.extents for node in network.up}
    perform = network.pump.perform

    def refuse(node: NodeId, effect: Effect) -> None:
        """Let heirs answer with a refusal instead of taking anything."""
        if isinstance(effect, Send) and isinstance(effect.frame, GroupWelcome):
            perform(effect.peer, Send(node, GroupRefusal(effect.peer)))
        else:
            perform(node, effect)

    network.pump.perform = refuse
    for node in network.up:
        network.pump.give(node, TimerFired(RESHUFFLE))
    givers = {node for node, _ in hand_overs(network)}
    assert givers
    assert givers <= overloaded < set(network.up)
    assert not network.is_partition(), "what is under way is nobody's"
    network.run(3)
    assert {node: network.overlay(node).surface.extents for node in network.up} == before
    network.assert_exact()
