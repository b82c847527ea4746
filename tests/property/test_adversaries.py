"""Adversaries on the pump: what they never do, and that nobody else does anything otherwise for it."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.adversary import ADVERSARIES
from peer.core.contract import (
    Connect,
    Disconnect,
    Publish,
    Send,
    SetTimer,
    Started,
    message_id,
    publisher_of,
)
from peer.core.frames import Data
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.testing import Faults, Pump, Solo, connects, deliveries
from tests.examples import examples

SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000
NODES = 12
FLOOD = Composition({"name": "random", "degree": 3}, {"name": "flood", "ttl": 255})
COMPLETE = Composition({"name": "complete"}, {"name": "flood", "ttl": 255})
protocols = st.sampled_from(["random", "complete", "spidercast", "gossipsub", "gossipsub-bounded", "topiary"])
adversaries = st.sets(st.integers(0, NODES - 1), min_size=1, max_size=6)
seeds = st.integers(0, 2**32)


def topics_of(node: int) -> tuple[int, ...]:
    return (0,) if node % 2 else (0, 1)


def make_pump(parts: Composition, behaviour: dict, bad: set[int], seed: int, faults: Faults | None = None) -> Pump:
    topics = {node: topics_of(node) for node in range(NODES)}
    made = {node: compose(node, seed, topics[node], parts, behaviour if node in bad else None) for node in range(NODES)}
    pump = Pump(made, lambda a, b: MILLISECOND_NS * (1 + (7 * a + 3 * b) % 40), faults, seed)
    pump.start(topics)
    return pump


def publish_all(pump: Pump, topics: tuple[int, ...]) -> None:
    for node in range(NODES):
        pump.give(node, Publish(topics, message_id(node, topics[0]), b"x"))
    pump.run(3 * SECOND_NS)


def copies(pump: Pump) -> list[tuple[int, int, Data]]:
    return [(n, e.peer, e.frame) for _, n, e in pump.effects if isinstance(e, Send) and isinstance(e.frame, Data)]


@settings(max_examples=examples(15), deadline=None)
@given(protocols, adversaries, seeds, st.sampled_from([1.0, 0.5]))
def test_a_topic_attacker_or_full_dropper_passes_nothing_on_whatever_the_protocol(protocol, bad, seed, share):
    attack = {"name": "topic-attacker", "victim_topics": (0,)} if share < 1 else {"name": "dropper", "drop_ratio": 1.0}
    pump = make_pump(PROTOCOLS[protocol].composition, attack, bad, seed)
    pump.run(5 * SECOND_NS)
    publish_all(pump, (0,))
    publish_all(pump, (1,))
    victims = {0} if share < 1 else {0, 1}
    for node, _, copy in copies(pump):
        assert node not in bad or publisher_of(copy.message_id) == node or victims.isdisjoint(copy.topics)
    withheld = [event for event in pump.traced if event.event == "withhold"]
    assert {event.node for event in withheld} <= bad
    assert all(victims & set(event.topics) and publisher_of(event.message_id) != event.node for event in withheld)
    # They still publish: every honest node that is next to one gets its messages.
    sent = {node for node, _, copy in copies(pump) if publisher_of(copy.message_id) == node}
    assert sent == {node for node in range(NODES) if pump.nodes[node].state.neighbours}


@settings(max_examples=examples(15), deadline=None)
@given(protocols, adversaries, seeds, st.permutations([0, 1, 7]))
def test_a_topic_attacker_looks_at_every_topic_of_a_message(protocol, bad, seed, topics):
    """The victim topic is 1, wherever it stands among the message's topics; nobody subscribes to 7."""
    pump = make_pump(PROTOCOLS[protocol].composition, {"name": "topic-attacker", "victim_topics": (1,)}, bad, seed)
    pump.run(5 * SECOND_NS)
    publish_all(pump, tuple(topics))
    foreign = [copy for node, _, copy in copies(pump) if node in bad and publisher_of(copy.message_id) != node]
    assert not [copy for copy in foreign if 1 in copy.topics]
    published = [copy for node, _, copy in copies(pump) if publisher_of(copy.message_id) == node]
    assert all(1 in copy.topics for copy in published)


@settings(max_examples=examples(15), deadline=None)
@given(protocols, adversaries, seeds)
def test_an_attacker_without_an_occasion_is_an_honest_node(protocol, bad, seed):
    runs = []
    for behaviour in ({"name": "topic-attacker", "victim_topics": (9,)}, {"name": "dropper", "drop_ratio": 0.0}, None):
        pump = make_pump(PROTOCOLS[protocol].composition, behaviour, bad if behaviour else set(), seed)
        pump.run(3 * SECOND_NS)
        publish_all(pump, (0, 1))
        runs.append(pump.effects)
    assert runs[0] == runs[1] == runs[2]


@settings(max_examples=examples(20), deadline=None)
@given(adversaries, seeds)
def test_what_honest_nodes_do_with_what_they_get_is_unchanged(bad, seed):
    """Every honest node passes its first copy on to all neighbours but the sender, as without adversaries."""
    pump = make_pump(FLOOD, {"name": "dropper", "drop_ratio": 1.0}, bad, seed)
    pump.run(SECOND_NS)
    publish_all(pump, (0,))
    passed = defaultdict(set)
    for node, peer, copy in copies(pump):
        passed[node, copy.message_id].add(peer)
    source = {(e.node, e.message_id): e.peer for e in pump.traced if e.event in ("deliver", "relay")}
    for (node, message), peer in source.items():
        if node not in bad:
            assert passed[node, message] == set(pump.nodes[node].state.neighbours) - {peer}


def test_a_dropper_drops_the_share_it_is_told_to():
    counts = Counter()
    for seed in range(12):
        pump = make_pump(COMPLETE, {"name": "dropper", "drop_ratio": 0.3}, {0, 1}, seed)
        pump.run(SECOND_NS)
        publish_all(pump, (0,))
        counts["withheld"] += sum(event.event == "withhold" for event in pump.traced)
        counts["passed"] += sum(node in (0, 1) and publisher_of(c.message_id) != node for node, _, c in copies(pump))
    total = counts.total()
    assert total == 12 * 2 * 11 * 10  # each of the two has eleven messages to pass on to ten others
    assert abs(counts["withheld"] / total - 0.3) < 4 * (0.3 * 0.7 / total) ** 0.5


@settings(max_examples=examples(20), deadline=None)
@given(protocols, adversaries, seeds, st.booleans())
def test_eclipse_attackers_are_linked_with_each_other_and_mend_their_mesh(protocol, bad, seed, cut):
    pump = make_pump(PROTOCOLS[protocol].composition, {"name": "eclipse", "accomplices": tuple(sorted(bad))}, bad, seed)
    pump.run(2 * SECOND_NS)
    mesh = {(one, other) for one in bad for other in bad if one < other}
    assert pump.links() >= mesh
    if cut and mesh:
        for pair in sorted(mesh):
            pump.cut(*pair)
        assert not pump.links() & mesh
        pump.run(3 * SECOND_NS)
        assert pump.links() >= mesh
    publish_all(pump, (0,))
    assert not [event for event in pump.traced if event.event == "withhold"]


def test_a_mesh_link_comes_back_although_the_protocol_does_not_want_it():
    parts = Composition({"name": "topiary", "degree": 1})
    solo = Solo(compose(3, 1, (0,), parts, {"name": "eclipse", "accomplices": (1, 3, 5)}))
    assert connects(solo.start({1: ()})) == [1]
    assert connects(solo.meet({1: (), 3: (), 5: ()})) == [5], "the overlay has all the links that it wants"
    solo.at(1).link_up(5)
    effects = solo.at(2).link_down(5, retrying=True)
    assert Disconnect(5, "released") in effects
    assert SetTimer("adversary/mesh", 2 + 100 * MILLISECOND_NS) in effects
    assert solo.advance(100 * MILLISECOND_NS) == [Connect(5)]


@settings(max_examples=examples(20), deadline=None)
@given(adversaries, seeds, st.integers(1, 400), st.sampled_from([None, Faults(0.0, 0.3, 0.3)]))
def test_a_slow_node_handles_everything_so_much_later(bad, seed, delay_ms, faults):
    pump = make_pump(COMPLETE, {"name": "slow", "delay_ms": delay_ms}, bad, seed, faults)
    pump.run(2 * SECOND_NS)
    start_ns = pump.now_ns
    pump.give(NODES - 1, Publish((0,), message_id(NODES - 1, 0), b"x"))
    pump.run(2 * SECOND_NS)
    at = {node: instant - start_ns for instant, node, _ in pump.delivered}
    assert set(at) == set(range(NODES))
    assert len(pump.delivered) == NODES
    if faults is None:
        direct = {node: pump.delay_ns(NODES - 1, node) for node in range(NODES - 1)}
        for node in set(at) - {NODES - 1}:
            # Complete overlay: nobody is faster than the publisher by more than a detour over honest nodes.
            late = delay_ms * MILLISECOND_NS if node in bad else 0
            assert at[node] <= direct[node] + late
            if node in bad:
                assert at[node] > late


def test_the_frames_of_a_link_that_ends_are_handled_at_its_end_and_in_order():
    slow = Solo(compose(0, 1, (0,), COMPLETE, {"name": "slow", "delay_ms": 100}))
    slow.start({5: None, 6: None})
    for peer in (5, 6):
        slow.at(1).link_up(peer)
    first, second, third = (Data(message_id(9, n), (0,), 1, 0, b"") for n in range(3))
    assert slow.at(10).receive(5, first) == [SetTimer("adversary/late", 10 + 100 * MILLISECOND_NS)]
    assert slow.at(11).receive(6, second) == []
    assert slow.at(12).receive(5, third) == []
    at_the_end = deliveries(slow.at(20).link_down(5, "bye"))
    assert [message.message_id for message in at_the_end] == [first.message_id, third.message_id]
    assert slow.at(10 + 100 * MILLISECOND_NS).fire("adversary/late") == [
        SetTimer("adversary/late", 11 + 100 * MILLISECOND_NS)
    ]
    last = deliveries(slow.at(11 + 100 * MILLISECOND_NS).fire("adversary/late"))
    assert [message.message_id for message in last] == [second.message_id]


@settings(max_examples=examples(20), deadline=None)
@given(seeds, st.integers(1, 50), st.sampled_from([None, {"name": "slow", "delay_ms": 30}]))
def test_honest_nodes_may_take_their_time_and_a_slow_one_is_late_on_top(seed, processing_ms, behaviour):
    processing_ns = processing_ms * MILLISECOND_NS
    late_ns = 30 * MILLISECOND_NS if behaviour else 0
    nodes = {node: compose(node, seed, (0,), COMPLETE, behaviour, processing_ns) for node in range(3)}
    pump = Pump(nodes, lambda a, b: MILLISECOND_NS, seed=seed)
    pump.start(dict.fromkeys(range(3), (0,)))
    pump.run(2 * SECOND_NS)
    start_ns = pump.now_ns
    pump.give(0, Publish((0,), message_id(0, 0), b"x"))
    pump.run(SECOND_NS)
    at = {node: instant - start_ns for instant, node, _ in pump.delivered}
    assert at == {0: 0, 1: MILLISECOND_NS + processing_ns + late_ns, 2: MILLISECOND_NS + processing_ns + late_ns}


@pytest.mark.parametrize(
    "behaviour",
    [{"name": "nobody"}, {}, {"name": "slow", "delay_ms": 0}, {"name": "dropper", "drop_ratio": 2}, {"name": "eclipse"},
     {"name": "topic-attacker", "victim_topics": [-1, "x"]}],
)  # fmt: skip
def test_behaviours_that_do_not_exist_are_refused(behaviour: dict):
    with pytest.raises(ValueError, match="behaviour"):
        compose(0, 1, (), FLOOD, behaviour)


@pytest.mark.parametrize("name", ADVERSARIES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_takes_every_behaviour(name: str, protocol: str):
    behaviour = {
        "topic-attacker": {"victim_topics": [0]},
        "eclipse": {"accomplices": [3, 5]},
        "slow": {"delay_ms": 10},
        "dropper": {"drop_ratio": 0.5},
        "asker": {"topics": 3},
    }[name]
    solo = Solo(compose(3, 1, (1, 2), PROTOCOLS[protocol].composition, {"name": name} | behaviour))
    assert all(isinstance(effect, SetTimer) for effect in solo.give(Started()))
    assert solo.node.state.node == 3
