"""Plumtree over HyParView on the pump: views that agree, trees that reach everybody, and repair after failures."""

from collections import Counter
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from peer.core.contract import (
    Connect,
    Directory,
    Effect,
    Event,
    MessageId,
    NodeId,
    PeerInfo,
    PeerList,
    Publish,
    Send,
    Subscribe,
    TimerFired,
    Unsubscribe,
    message_id,
)
from peer.core.frames import Data
from peer.core.node import StatefulNode
from peer.protocols.plumtree.frames import (
    SHARED,
    Advert,
    HyparviewAnswer,
    HyparviewDisconnect,
    HyparviewForwardJoin,
    HyparviewJoin,
    HyparviewNeighbour,
    HyparviewShuffle,
    HyparviewShuffleReply,
    PlumtreeGraft,
    PlumtreeIhave,
    PlumtreePrune,
    SwarmId,
)
from peer.protocols.plumtree.overlay import SHUFFLE
from peer.protocols.plumtree.swarm import MOST_REQUESTS, Swarm
from peer.protocols.plumtree.tree import Tree
from peer.protocols.registry import compose
from peer.testing import Faults, Pump, numbers_stored, outputs_under_hash_seeds
from tests.examples import examples
from tests.lone_plumtree import SECOND_NS, composition, overlay_of, trees_of

TOPICS = 3
FAST = {"shuffle_s": 1.0, "request_timeout_s": 1.0}
PATIENT = {"missing_timeout_ms": 2000.0}
"""So long that no message is asked for that is still on its way over the tree."""

networks = st.fixed_dictionaries(
    {
        "interests": st.lists(st.sets(st.integers(0, TOPICS - 1)).map(sorted).map(tuple), min_size=2, max_size=16),
        "scope": st.sampled_from(["topic", "shared"]),
        "active_view": st.integers(4, 6),
        "passive_view": st.sampled_from([4, 12]),
        "seed": st.integers(0, 2**32),
    }
)


class LossyPump(Pump):
    """A pump that can lose the first copy of a message on its way to one node, and can stop all shuffles.

    Attributes:
        loses: the message, and the node that does not get the first copy.
        lost: the links on which copies were lost, as (sender, receiver).
        rests: whether nodes shuffle no more.
    """

    loses: tuple[MessageId, NodeId] | None = None
    lost: tuple[tuple[NodeId, NodeId], ...] = ()
    rests: bool = False

    def give(self, node: NodeId, event: Event) -> None:
        if not (self.rests and event == TimerFired(SHUFFLE)):
            super().give(node, event)

    def perform(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case Send(peer, Data(message_id=identifier)) if self.loses == (identifier, peer):
                self.loses, self.lost = None, (*self.lost, (node, peer))
            case _:
                super().perform(node, effect)


def start(network: dict, faults: Faults | None = None, **parameters: object) -> LossyPump:
    """Return a network after its first twenty seconds."""
    sizes = {key: network[key] for key in ("scope", "active_view", "passive_view")}
    parts, seed = composition(**(FAST | sizes | parameters)), network["seed"]
    nodes = {node: compose(node, seed, topics, parts) for node, topics in enumerate(network["interests"])}
    pump = LossyPump(nodes, lambda a, b: 10**6 * (1 + (a * 31 + b * 17) % 90), faults, seed)
    pump.start(dict(enumerate(network["interests"])))
    pump.run(20 * SECOND_NS)
    return pump


def rest(pump: LossyPump) -> None:
    """Stop all shuffles, and let what they began come to an end."""
    pump.rests = True
    pump.run(10 * SECOND_NS)


def swarms(pump: Pump) -> dict[SwarmId, dict[NodeId, Swarm]]:
    """Every swarm's places, by node."""
    found: dict[SwarmId, dict[NodeId, Swarm]] = {}
    for node, core in pump.nodes.items():
        for number, swarm in overlay_of(core).swarms.items():
            found.setdefault(number, {})[node] = swarm
    return found


def is_connected(links: dict[NodeId, set[NodeId]]) -> bool:
    reached = {min(links)}
    frontier = list(reached)
    while frontier:
        fresh = links[frontier.pop()] - reached
        reached |= fresh
        frontier += fresh
    return reached == links.keys()


def active_links(places: dict[NodeId, Swarm]) -> dict[NodeId, set[NodeId]]:
    return {node: set(swarm.views.active) for node, swarm in places.items()}


def check_views(pump: Pump, network: dict) -> None:
    """At rest: both ends of every link agree, views keep their bounds, and there are no other links."""
    pairs = set()
    for number, places in swarms(pump).items():
        for node, swarm in places.items():
            views = swarm.views
            assert len(views.active) <= network["active_view"]
            assert len(views.passive) <= network["passive_view"]
            assert not {node, *views.active} & views.passive.keys()
            assert not swarm.requests
            assert all(node in places[peer].views.active for peer in views.active)
            tree = trees_of(pump.nodes[node]).get(number, Tree())
            assert {*tree.eager, *tree.lazy} == views.active.keys()
            assert not tree.eager.keys() & tree.lazy.keys()
            pairs |= {(min(node, peer), max(node, peer)) for peer in views.active}
            if number != SHARED:
                assert all(number in pump.nodes[node].state.neighbours[peer].logical for peer in views.active)
    assert pump.links() == pairs


def check_tree(pump: Pump, number: SwarmId) -> None:
    """The eager links of a swarm have no cycle and connect all its nodes."""
    trees = {node: trees_of(pump.nodes[node]).get(number, Tree()) for node in swarms(pump)[number]}
    links = {node: set(tree.eager) for node, tree in trees.items()}
    assert all(node in links[peer] for node, peers in links.items() for peer in peers)
    assert sum(map(len, links.values())) == 2 * (len(links) - 1)
    assert is_connected(links)


def publish(pump: Pump, publisher: NodeId, topics: tuple[int, ...], number: int) -> int:
    """Publish a message, which all subscribers get once.

    Returns:
        How many copies were sent.
    """
    before, sent = len(pump.delivered), len(pump.effects)
    pump.give(publisher, Publish(topics, message_id(publisher, number), b"payload"))
    pump.run(10 * SECOND_NS)
    got = Counter(node for _, node, _ in pump.delivered[before:])
    assert got == {node: 1 for node, core in pump.nodes.items() if not core.state.topics.isdisjoint(topics)}
    return sum(isinstance(effect, Send) and isinstance(effect.frame, Data) for _, _, effect in pump.effects[sent:])


def draw_swarm(pump: Pump, data: st.DataObject) -> tuple[SwarmId, NodeId, tuple[int, ...]]:
    """A swarm, a node of it, and topics of messages that travel in it alone."""
    places = swarms(pump)
    assume(places)
    number = data.draw(st.sampled_from(sorted(places)))
    publisher = data.draw(st.sampled_from(sorted(places[number])))
    return number, publisher, (number if number != SHARED else data.draw(st.integers(0, TOPICS - 1)),)


# ------------------------------------------------------------------------------------------------------- networks


@settings(max_examples=examples(15), deadline=None)
@given(networks)
def test_at_rest_views_are_symmetric_and_bounded_and_connect_every_swarm(network: dict):
    pump = start(network)
    rest(pump)
    check_views(pump, network)
    assert all(is_connected(active_links(places)) for places in swarms(pump).values())


@settings(max_examples=examples(15), deadline=None)
@given(networks, st.data())
def test_messages_of_one_source_leave_a_tree_that_later_ones_cross_once(network: dict, data: st.DataObject):
    pump = start(network, **PATIENT)
    rest(pump)
    number, publisher, topics = draw_swarm(pump, data)
    publish(pump, publisher, topics, 0)
    check_tree(pump, number)
    for sequence in (1, 2):
        assert publish(pump, publisher, topics, sequence) == len(swarms(pump)[number]) - 1
        check_tree(pump, number)


@settings(max_examples=examples(15), deadline=None)
@given(networks, st.data())
def test_a_message_on_several_topics_reaches_all_their_subscribers_once(network: dict, data: st.DataObject):
    pump = start(network, **PATIENT)
    rest(pump)
    for sequence in range(3):
        publisher = data.draw(st.sampled_from(sorted(pump.nodes)))
        topics = data.draw(st.sets(st.integers(0, TOPICS - 1), min_size=1).map(sorted).map(tuple))
        publish(pump, publisher, topics, sequence)
    check_views(pump, network)


@pytest.mark.parametrize("scope", ["topic", "shared"])
@settings(max_examples=examples(6), deadline=None)
@given(st.integers(0, 2**32))
def test_after_the_crash_of_three_tenths_the_passive_views_repair_the_overlay(scope: str, seed: int):
    network = {"interests": [(0,)] * 24, "scope": scope, "active_view": 5, "passive_view": 12, "seed": seed}
    pump = start(network)
    pump.give(0, Publish((0,), message_id(0, 0), b"payload"))
    pump.run(5 * SECOND_NS)
    for node in Random(seed).sample(range(24), 7):
        pump.crash(node)
    pump.run(20 * SECOND_NS)
    rest(pump)
    check_views(pump, network)
    [places] = swarms(pump).values()
    assert is_connected(active_links(places))
    assert len(places) == 17
    free = sum(swarm.views.free for swarm in places.values())
    assert free <= 5, "the crashes freed about 25 places"
    for sequence, publisher in enumerate(sorted(places)[:2], 1):
        publish(pump, publisher, (0,), sequence)


@pytest.mark.parametrize("scope", ["topic", "shared"])
@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 11))
def test_a_lost_copy_is_asked_for_and_the_tree_is_whole_again(scope: str, seed: int, victim: NodeId):
    network = {"interests": [(0,)] * 12, "scope": scope, "active_view": 4, "passive_view": 12, "seed": seed}
    pump = start(network)
    rest(pump)
    for sequence in range(2):
        publish(pump, 0, (0,), sequence)
    identifier = message_id(0, 2)
    pump.loses = identifier, victim
    before = len(pump.effects)
    [number] = swarms(pump)
    publish(pump, 0, (0,), 2)
    assert [receiver for _, receiver in pump.lost] == [victim]
    asked = [effect.frame for _, _, effect in pump.effects[before:] if isinstance(effect, Send)]
    assert PlumtreeGraft(number, identifier) in asked
    publish(pump, 0, (0,), 3)
    check_tree(pump, number)


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 2**32))
def test_trees_that_are_optimised_still_reach_everybody(seed: int):
    network = {"interests": [(0,)] * 16, "scope": "topic", "active_view": 4, "passive_view": 12, "seed": seed}
    pump = start(network, optimisation_threshold=1, missing_timeout_ms=50.0, graft_timeout_ms=50.0)
    rest(pump)
    for sequence in range(6):
        publish(pump, sequence % 3, (0,), sequence)


events = st.lists(
    st.tuples(st.sampled_from(["cut", "crash", "change", "publish"]), st.integers(0, 50), st.integers(0, TOPICS - 1)),
    max_size=6,
)


def disturb(pump: Pump, changes: list[tuple[str, int, int]]) -> None:
    """Cut links, crash nodes, change interests and publish; then give all nodes the present list."""
    for sequence, (what, which, topic) in enumerate(changes):
        node = sorted(pump.nodes)[which % len(pump.nodes)]
        links = sorted(pump.links())
        if what == "cut" and links:
            pump.cut(*links[which % len(links)])
        elif what == "crash" and len(pump.nodes) > 2:
            pump.crash(node)
        elif what == "change":
            is_subscribed = topic in pump.nodes[node].state.topics
            pump.give(node, Unsubscribe(topic) if is_subscribed else Subscribe(topic))
        elif what == "publish":
            pump.give(node, Publish((topic,), message_id(node, sequence), b"payload"))
        pump.run(SECOND_NS // 5)
    listed = Directory(PeerInfo(node, tuple(sorted(core.state.topics))) for node, core in pump.nodes.items())
    for node in tuple(pump.nodes):
        pump.give(node, PeerList(listed))


@settings(max_examples=examples(12), deadline=None)
@given(networks, events, st.floats(0, 0.2))
def test_views_agree_again_after_losses_and_churn_and_nobody_is_told_twice(
    network: dict, changes: list[tuple[str, int, int]], drop: float
):
    pump = start(network, Faults(drop, drop, drop))
    disturb(pump, changes)
    pump.faults = Faults()
    pump.run(45 * SECOND_NS)
    rest(pump)
    check_views(pump, network)
    copies = Counter((node, message.message_id) for _, node, message in pump.delivered)
    assert set(copies.values()) <= {1}


# ---------------------------------------------------------------------------------------------------- hostile nodes


class Hostile:
    """A node that sends only what the test has it send."""

    def handle(self, now_ns: int, event: object) -> list[Effect]:
        return []


NODES = 8
NO_NODES = {*range(NODES, 200), 2**31 - 1}
number = st.one_of(st.integers(0, NODES - 1), st.sampled_from(sorted(NO_NODES)))
numbers = st.lists(number, max_size=40).map(tuple)
swarm_id = st.sampled_from([SHARED, 0, 0, 1, 1, 2, 77, 2**32 - 1])
hops = st.sampled_from([0, 1, 3, 6, 255])
identifier = st.one_of(st.integers(2**32, 2**40), st.just(2**63 - 1))
adverts = st.lists(st.builds(Advert, identifier, hops), max_size=20).map(tuple)
HOSTILE_FRAMES = st.one_of(
    st.builds(HyparviewJoin, swarm_id),
    st.builds(HyparviewForwardJoin, swarm_id, number, hops),
    st.builds(HyparviewNeighbour, swarm_id, st.booleans()),
    st.builds(HyparviewAnswer, swarm_id, st.booleans()),
    st.builds(HyparviewDisconnect, swarm_id, st.booleans(), numbers),
    st.builds(HyparviewShuffle, swarm_id, number, hops, numbers),
    st.builds(HyparviewShuffleReply, swarm_id, numbers),
    st.builds(PlumtreeIhave, swarm_id, adverts),
    st.builds(PlumtreeGraft, swarm_id, st.one_of(st.none(), identifier)),
    st.builds(PlumtreePrune, swarm_id),
    st.builds(Data, identifier, st.lists(st.integers(0, 5), max_size=4).map(tuple), hops, hops, st.just(b"x")),
)


@pytest.mark.parametrize("scope", ["topic", "shared"])
@settings(max_examples=examples(15), deadline=None)
@given(st.lists(HOSTILE_FRAMES, min_size=5, max_size=40))
def test_whatever_a_node_says_nothing_grows_and_nobody_is_dialled_beyond_the_runs_nodes(scope: str, frames: list):
    parts, interests = composition(scope=scope, passive_view=3, active_view=3, **FAST), [(0, 1)] * NODES
    nodes: dict = {0: Hostile()}
    nodes |= {node: compose(node, 3, interests[node], parts) for node in range(1, NODES)}
    pump = Pump(nodes)
    pump.start(dict(enumerate(interests)))
    pump.run(3 * SECOND_NS)
    for frame in frames:
        for node in range(1, NODES):
            pump.perform(0, Connect(node))
        pump.run(SECOND_NS // 100)
        for node in range(1, NODES):
            pump.perform(0, Send(node, frame))
        pump.run(SECOND_NS // 50)
        for node in range(1, NODES):
            check_bounds(nodes[node])
    assert {effect.peer for _, _, effect in pump.effects if isinstance(effect, Connect)} <= set(range(NODES))
    for node in range(1, NODES):
        assert numbers_stored(overlay_of(nodes[node])).isdisjoint(NO_NODES)


def check_bounds(core: StatefulNode) -> None:
    overlay, everybody = overlay_of(core), set(range(NODES))
    assert overlay.swarms.keys() in ({SHARED}, {0, 1})
    for swarm in overlay.swarms.values():
        assert len(swarm.views.active) <= 3
        assert len(swarm.views.passive) <= 3
        assert len(swarm.requests) <= MOST_REQUESTS
        assert {*swarm.views.active, *swarm.views.passive, *swarm.requests} <= everybody
        assert core.state.node not in {*swarm.views.active, *swarm.views.passive, *swarm.requests}
        assert swarm.views.active.keys() <= core.state.neighbours.keys()
    assert trees_of(core).keys() <= overlay.swarms.keys()
    assert core.state.numbers == NODES


# ------------------------------------------------------------------------------------------------ reproducibility

SCRIPT = """
import hashlib
from peer.core.contract import Publish, Subscribe, Unsubscribe, message_id
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump
digest = hashlib.sha256()
for scope in ("topic", "shared"):
    part = {"name": "plumtree", "scope": scope, "shuffle_s": 1.0, "active_view": 3, "passive_view": 4}
    parts = Composition(part, part, interests="private")
    wanted = {n: tuple(t for t in range(6) if (n * 7 + t * 3) % 4 < 2) for n in range(20)}
    pump = Pump({n: compose(n, 5, topics, parts) for n, topics in wanted.items()},
                lambda a, b: 10**6 + a * 1000 + b, Faults(0.05, 0.1, 0.2), 3)
    pump.start(wanted)
    for step in range(20):
        pump.run(300_000_000)
        pump.give(step % 15, Publish((step % 6, (step + 1) % 6), message_id(step % 15, step), b"x"))
        pump.give((step * 2) % 15, (Subscribe if step % 2 else Unsubscribe)(step % 6))
        pump.cut(step % 15, (step + 1) % 15)
    pump.run(10_000_000_000)
    digest.update(repr(pump.effects).encode())
    assert len(pump.delivered) > 50
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_effects_under_any_hash_seed():
    [digest] = outputs_under_hash_seeds(SCRIPT)
    assert len(digest.strip()) == 64
