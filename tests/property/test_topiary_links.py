"""A Topiary node's links: which it keeps, gives up and replaces, and that both ends agree."""

from __future__ import annotations

import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import LinkDown, LinkUp, Publish, message_id
from peer.core.payload import make_payload
from peer.protocols.registry import Composition, compose
from peer.testing import Pump
from tests.topiary_desk import SECOND_NS, Desk

MILLISECOND_NS = 1_000_000
TOPICS = 4


def test_a_neighbour_that_is_lost_is_replaced_and_one_that_may_come_back_is_not():
    desk = Desk(degree=3)
    desk.settle(SECOND_NS // 2)
    lost, kept, third = desk.chosen
    _, asked = desk.give(SECOND_NS, LinkDown(kept, "reset", True))
    assert asked == []
    desk.give(SECOND_NS, LinkUp(kept, True))
    desk.chosen.remove(lost)
    _, [newcomer] = desk.give(SECOND_NS, LinkDown(lost, "reset", False))
    for sequence in range(10):
        desk.copy(2 * SECOND_NS, (kept, third)[sequence % 2], 50, sequence)
    assert desk.end_epoch(5 * SECOND_NS) == []
    assert list(desk.node._parts["overlay"]._chosen) == [kept, third, newcomer]


def test_a_neighbour_that_is_given_up_and_drawn_again_is_not_released():
    desk = Desk(degree=2, kept_ratio=0.5, nodes=dict.fromkeys(range(3), (1,)))
    desk.settle(SECOND_NS // 2)
    for sequence in range(10):
        desk.copy(SECOND_NS, desk.chosen[0], 50, sequence)
    assert desk.end_epoch(5 * SECOND_NS) == [desk.chosen[1]], "there is nobody else"
    assert desk.settle(6 * SECOND_NS) == set()


def test_a_link_that_the_other_side_opened_counts_as_this_nodes_once_it_chose_it():
    desk = Desk(degree=2, kept_ratio=0.5, nodes=dict.fromkeys(range(4), (1,)))
    [incoming] = {1, 2, 3} - set(desk.chosen)
    desk.node.handle(1, LinkUp(incoming, False))
    desk.settle(SECOND_NS // 2)
    neighbours = desk.node.state.neighbours
    assert not neighbours[incoming].outbound
    for epoch in range(1, 20):
        desk.copy(5 * epoch * SECOND_NS - 1, desk.chosen[0], 50, epoch)
        desk.end_epoch(5 * epoch * SECOND_NS)
        desk.settle(5 * epoch * SECOND_NS + SECOND_NS // 2)
        if incoming in desk.chosen:
            break
    assert incoming in desk.chosen
    assert neighbours[incoming].outbound


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
