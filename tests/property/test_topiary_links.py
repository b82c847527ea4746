"""A Topiary node's links: which it keeps, gives up and replaces, and that both ends agree."""

import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import Publish, message_id
from peer.core.payload import make_payload
from peer.protocols.registry import Composition, compose
from peer.testing import Pump, connects
from tests.examples import examples
from tests.lone_topiary import SECOND_NS, Lone

MILLISECOND_NS = 1_000_000
TOPICS = 4


def test_a_neighbour_that_is_lost_is_replaced_and_one_that_may_come_back_is_not():
    lone = Lone(degree=3)
    lone.settle(SECOND_NS // 2)
    lost, kept, third = lone.chosen
    assert connects(lone.at(SECOND_NS).link_down(kept, retrying=True)) == []
    lone.link_up(kept)
    lone.chosen.remove(lost)
    [newcomer] = connects(lone.link_down(lost))
    for sequence in range(10):
        lone.copy(2 * SECOND_NS, (kept, third)[sequence % 2], 50, sequence)
    assert lone.end_epoch(5 * SECOND_NS) == []
    assert lone.settle(6 * SECOND_NS) == set()
    assert all(map(lone.keeps, (kept, third, newcomer)))


def test_a_neighbour_that_is_given_up_and_drawn_again_is_not_released():
    lone = Lone(degree=2, kept_ratio=0.5, nodes=dict.fromkeys(range(3), (1,)))
    lone.settle(SECOND_NS // 2)
    for sequence in range(10):
        lone.copy(SECOND_NS, lone.chosen[0], 50, sequence)
    assert lone.end_epoch(5 * SECOND_NS) == [lone.chosen[1]], "there is nobody else"
    assert lone.settle(6 * SECOND_NS) == set()


def test_a_link_that_the_other_side_opened_counts_as_this_nodes_once_it_chose_it():
    lone = Lone(degree=2, kept_ratio=0.5, nodes=dict.fromkeys(range(4), (1,)))
    [incoming] = {1, 2, 3} - set(lone.chosen)
    lone.at(1).link_up(incoming, outbound=False)
    lone.settle(SECOND_NS // 2)
    neighbours = lone.node.state.neighbours
    assert not neighbours[incoming].outbound
    for epoch in range(1, 20):
        lone.copy(5 * epoch * SECOND_NS - 1, lone.chosen[0], 50, epoch)
        lone.end_epoch(5 * epoch * SECOND_NS)
        lone.settle(5 * epoch * SECOND_NS + SECOND_NS // 2)
        if incoming in lone.chosen:
            break
    assert incoming in lone.chosen
    assert neighbours[incoming].outbound


@given(
    nodes=st.integers(4, 14),
    degree=st.integers(2, 4),
    seed=st.integers(0, 2**32),
    literal=st.booleans(),
)
@settings(max_examples=examples(25), deadline=None)
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
    wanted = {
        node: {peer for peer, neighbour in core.state.neighbours.items() if neighbour.outbound}
        for node, core in made.items()
    }
    assert all(len(mine) == min(degree, nodes - 1) for mine in wanted.values())
    expected = {(min(a, b), max(a, b)) for a, mine in wanted.items() for b in mine}
    assert pump.links() == expected, "every link is held by one end at least, and every held link is up"
    per_message: dict[tuple[int, int], int] = {}
    for _, node, message in pump.delivered:
        per_message[node, message.message_id] = per_message.get((node, message.message_id), 0) + 1
    assert set(per_message.values()) <= {1}
    epochs_ended = [event for event in pump.traced if event.event == "epoch"]
    assert all(math.isfinite(event.score) for event in epochs_ended)
