"""Plumtree over HyParView on the pump: views that agree, trees that reach everybody, and repair after failures."""

from collections import Counter
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from peer.core.contract import (
    Connect,
    Deliver,
    Directory,
    Disconnect,
    Effect,
    Event,
    MessageId,
    NodeId,
    PeerInfo,
    PeerList,
    Publish,
    Send,
    SetTimer,
    Started,
    Subscribe,
    TimerFired,
    Unsubscribe,
    message_id,
)
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.links import UNWANTED
from peer.core.node import StatefulNode
from peer.protocols.plumtree import PROTOCOL
from peer.protocols.plumtree.broadcast import MOST_ADVERTS, MOST_REPLIES, Broadcast
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
from peer.protocols.plumtree.overlay import MOST_DIALS, MOST_POSTED, SHUFFLE, Hyparview
from peer.protocols.plumtree.swarm import MOST_REQUESTS, UNUSED, Swarm
from peer.protocols.plumtree.tree import MOST_ANNOUNCED, Tree
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump, Solo, connects, disconnects, part_of, sends
from tests.hash_seeds import outputs_under_hash_seeds
from tests.remembered import numbers_stored

SECOND_NS = 1_000_000_000
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


def composition(**parameters: object) -> Composition:
    part = {"name": "plumtree", **parameters}
    return Composition(part, part, interests="private")


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


def overlay_of(core: StatefulNode) -> Hyparview:
    return part_of(core, "overlay")


def trees_of(core: StatefulNode) -> dict[SwarmId, Tree]:
    return part_of(core, "dissemination").trees


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


@settings(max_examples=15, deadline=None)
@given(networks)
def test_at_rest_views_are_symmetric_and_bounded_and_connect_every_swarm(network: dict):
    pump = start(network)
    rest(pump)
    check_views(pump, network)
    assert all(is_connected(active_links(places)) for places in swarms(pump).values())


@settings(max_examples=15, deadline=None)
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


@settings(max_examples=15, deadline=None)
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
@settings(max_examples=6, deadline=None)
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
@settings(max_examples=8, deadline=None)
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


@settings(max_examples=8, deadline=None)
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


@settings(max_examples=12, deadline=None)
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
@settings(max_examples=15, deadline=None)
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


# --------------------------------------------------------------------------------------------------------- one node


class Lone(Solo):
    """Node 1, alone in the swarm of topic 0."""

    def __init__(self, **parameters: object) -> None:
        super().__init__(compose(1, 3, (0,), composition(**parameters), nodes=200))
        self.give(Started())

    def befriend(self, *peers: NodeId) -> None:
        """Give the node these neighbours."""
        for peer in peers:
            self.link_up(peer, False)
            assert self.hear(peer, HyparviewNeighbour(0, True)) == [(peer, accept())]

    def befriend_anyway(self, peer: NodeId) -> None:
        """Give the node another neighbour, for which one may have to make room."""
        self.link_up(peer, False)
        assert (peer, accept()) in self.hear(peer, HyparviewNeighbour(0, True))

    def hear(self, peer: NodeId, frame: Frame) -> list[tuple[NodeId, Frame]]:
        """Receive a frame, and return what the node sends then."""
        return sends(self.receive(peer, frame))

    @property
    def swarm(self) -> Swarm:
        return overlay_of(self.node).swarms[0]

    @property
    def tree(self) -> Tree:
        return trees_of(self.node)[0]


def accept() -> HyparviewAnswer:
    return HyparviewAnswer(0, True)


def test_a_join_is_accepted_and_forwarded_and_in_a_full_view_a_member_makes_room():
    core = Lone(active_view=2, active_walk=4)
    core.befriend(2, 3)
    core.link_up(4, False)
    effects = core.receive(4, HyparviewJoin(0))
    views = core.swarm.views
    [displaced] = views.passive
    [kept] = views.active.keys() - {4}
    assert {displaced, kept} == {2, 3}
    walk = HyparviewForwardJoin(0, 4, 4)
    assert sends(effects) == [(displaced, HyparviewDisconnect(0, True, (kept,))), (4, accept()), (kept, walk)]
    assert Disconnect(displaced, UNUSED) in effects


def test_only_an_urgent_request_finds_a_place_in_a_full_view():
    core = Lone(active_view=2)
    core.befriend(4, 5)
    core.link_up(3, False)
    assert core.hear(3, HyparviewNeighbour(0, False)) == [(3, HyparviewAnswer(0, False))]
    assert list(core.swarm.views.active) == [4, 5]
    assert core.hear(4, HyparviewNeighbour(0, False)) == [(4, accept())], "it is a neighbour"
    assert (3, accept()) in core.hear(3, HyparviewNeighbour(0, True))
    assert set(core.swarm.views.active) in ({3, 4}, {3, 5})


def test_a_request_that_is_accepted_when_the_view_is_full_is_taken_back():
    core = Lone(active_view=2)
    core.befriend(2)
    core.receive(2, HyparviewShuffleReply(0, (7,)))
    core.link_up(7)
    core.befriend(3)
    assert core.hear(7, accept()) == [(7, HyparviewDisconnect(0, True, ()))]
    assert list(core.swarm.views.active) == [2, 3]


def test_an_answer_that_is_older_than_a_disconnect_does_not_count():
    core = Lone(active_view=2)
    core.link_up(3, False)
    core.receive(3, HyparviewShuffleReply(0, (7,)))
    core.link_up(7)
    core.befriend(2)
    core.hear(7, HyparviewNeighbour(0, True))
    for newcomer in range(10, 20):
        if 7 in core.swarm.views.active:
            core.befriend_anyway(newcomer)
    assert core.hear(7, accept()) == [(7, HyparviewDisconnect(0, True, ()))]
    assert 7 not in core.swarm.views.active


def test_a_neighbour_that_disconnects_is_remembered_and_its_place_is_filled_from_the_nodes_that_it_names():
    core = Lone(active_view=2)
    core.befriend(2, 3)
    effects = core.receive(2, HyparviewDisconnect(0, True, (8,)))
    assert connects(effects) == [8]
    assert Disconnect(2, UNUSED) in effects
    assert list(core.swarm.views.active) == [3]
    assert set(core.swarm.views.passive) == {2, 8}
    core.link_up(8)
    assert connects(core.receive(8, HyparviewAnswer(0, False))) == []
    assert sends(core.at(10 * SECOND_NS).fire(SHUFFLE))


def test_a_node_that_is_not_in_the_swarm_is_forgotten():
    core = Lone(active_view=3)
    core.befriend(2, 3)
    core.receive(3, HyparviewDisconnect(0, False, ()))
    core.receive(2, HyparviewShuffleReply(0, (7,)))
    core.link_up(7)
    assert core.swarm.requests.keys() == {7}
    assert Disconnect(7, UNUSED) in core.receive(7, HyparviewDisconnect(0, False, ()))
    assert list(core.swarm.views.active) == [2]
    assert not core.swarm.views.passive
    assert not core.swarm.requests


def test_a_node_that_is_no_neighbour_cannot_name_others():
    core = Lone()
    core.befriend(2)
    core.link_up(4, False)
    assert core.receive(4, HyparviewDisconnect(0, True, (8,))) == []
    assert not core.swarm.views.passive


def test_a_node_without_neighbours_asks_the_one_that_disconnected_it_if_it_knows_no_other():
    core = Lone()
    core.befriend(2)
    assert core.hear(2, HyparviewDisconnect(0, True, ())) == [(2, HyparviewNeighbour(0, True))]


def test_as_many_nodes_are_asked_at_a_time_as_places_are_free():
    core = Lone(active_view=3)
    core.befriend(2)
    asked = [connects(core.receive(2, HyparviewShuffleReply(0, (node,)))) for node in (7, 8, 9)]
    assert asked == [[7], [8], []]


def test_no_more_nodes_are_asked_at_a_time_than_so_many():
    for frames in (
        [HyparviewForwardJoin(0, node, 0) for node in range(10, 60)],
        [HyparviewShuffleReply(0, (node,)) for node in range(10, 60)],
    ):
        core = Lone(active_view=60)
        core.befriend(2)
        asked = [peer for frame in frames for peer in connects(core.receive(2, frame))]
        assert len(asked) == len(core.swarm.requests) == MOST_REQUESTS


def test_a_forwarded_join_is_remembered_on_its_way_and_ends_at_a_new_neighbour():
    core = Lone(passive_walk=3)
    core.befriend(2, 3)
    assert core.hear(2, HyparviewForwardJoin(0, 10, 5)) == [(3, HyparviewForwardJoin(0, 10, 4))]
    assert 10 not in core.swarm.views.passive
    assert core.hear(2, HyparviewForwardJoin(0, 9, 3)) == [(3, HyparviewForwardJoin(0, 9, 2))]
    assert 9 in core.swarm.views.passive
    assert core.hear(2, HyparviewForwardJoin(0, 12, 1)) == [(3, HyparviewForwardJoin(0, 12, 0))]
    assert core.hear(2, HyparviewForwardJoin(0, 13, 255)) == [(3, HyparviewForwardJoin(0, 13, 5))]
    assert core.hear(2, HyparviewForwardJoin(0, 1, 5)) == core.hear(2, HyparviewForwardJoin(0, 500, 5)) == []
    assert list(core.swarm.views.passive) == [9]
    assert connects(core.receive(2, HyparviewForwardJoin(0, 11, 0))) == [11]
    assert sends(core.link_up(11, True)) == [(11, HyparviewNeighbour(0, True))]
    assert connects(core.receive(11, accept())) == [9]
    assert list(core.swarm.views.active) == [2, 3, 11]


def test_a_forwarded_join_ends_at_a_node_whose_only_neighbour_sent_it():
    core = Lone()
    core.befriend(2)
    assert connects(core.receive(2, HyparviewForwardJoin(0, 9, 6))) == [9]


@pytest.mark.parametrize("frame", [HyparviewForwardJoin(0, 9, 6), HyparviewShuffle(0, 9, 6, ()), PlumtreePrune(0)])
def test_a_node_that_is_no_neighbour_is_told_so(frame: Frame):
    core = Lone()
    core.befriend(2)
    core.link_up(3, False)
    assert core.hear(3, frame) == [(3, HyparviewDisconnect(0, True, ()))]
    assert 9 not in core.swarm.views.passive


def test_a_shuffle_is_passed_on_to_another_neighbour():
    core = Lone(active_view=2)
    core.befriend(2, 3)
    for _ in range(8):
        assert core.hear(2, HyparviewShuffle(0, 9, 6, (11, 12))) == [(3, HyparviewShuffle(0, 9, 5, (11, 12)))]
    assert core.hear(2, HyparviewShuffle(0, 9, 255, ())) == [(3, HyparviewShuffle(0, 9, 5, ()))]
    [(_, walk)] = core.hear(2, HyparviewShuffle(0, 9, 6, tuple(range(20, 60))))
    assert isinstance(walk, HyparviewShuffle)
    assert walk.nodes == tuple(range(20, 28))
    assert core.hear(2, HyparviewShuffle(0, 1, 6, ())) == core.hear(2, HyparviewShuffle(0, 500, 6, ())) == []


def test_a_shuffle_is_answered_where_it_ends():
    core = Lone(active_view=2)
    core.befriend(2, 3)
    assert connects(core.receive(2, HyparviewShuffle(0, 9, 1, (11, 12, 500)))) == [9]
    assert set(core.swarm.views.passive) == {9, 11, 12}
    effects = core.link_up(9)
    [(receiver, reply)] = sends(effects)
    assert receiver == 9
    assert isinstance(reply, HyparviewShuffleReply)
    assert set(reply.nodes) == {2, 3}
    assert effects[-1] == Disconnect(9, UNUSED)


def test_a_shuffle_does_not_go_to_its_origin_but_its_answer_does():
    core = Lone()
    core.befriend(2, 3)
    for _ in range(8):
        assert core.hear(2, HyparviewShuffle(0, 3, 6, ())) == [(3, HyparviewShuffleReply(0, (2,)))]


def test_a_shuffle_is_answered_with_passive_nodes_and_with_neighbours_if_these_do_not_suffice():
    core = Lone(active_view=2)
    core.befriend(2, 3)
    core.hear(2, HyparviewShuffleReply(0, (20, 21)))
    assert core.hear(2, HyparviewShuffle(0, 3, 1, ())) in (
        [(3, HyparviewShuffleReply(0, (node,)))] for node in (20, 21)
    )
    [(_, reply)] = core.hear(2, HyparviewShuffle(0, 3, 1, (20, 21)))
    assert isinstance(reply, HyparviewShuffleReply)
    assert set(reply.nodes) == {20, 21, 2}


def test_a_full_view_forgets_what_was_sent_in_the_reply_first():
    core = Lone(active_view=2, passive_view=4)
    core.befriend(2, 3)
    core.hear(2, HyparviewShuffleReply(0, (20, 21, 22, 23)))
    for origin in range(30, 40):
        before = set(core.swarm.views.passive)
        core.hear(2, HyparviewShuffle(0, origin, 1, ()))
        [(_, reply)] = sends(core.link_up(origin))
        assert isinstance(reply, HyparviewShuffleReply)
        assert set(core.swarm.views.passive) == before - {*reply.nodes} | {origin}


def test_a_shuffle_names_neighbours_and_others_and_a_full_view_forgets_those_that_were_sent():
    core = Lone(active_view=3, passive_view=3, shuffle_active=2, shuffle_passive=1)
    core.befriend(2, 3, 4)
    core.hear(2, HyparviewShuffleReply(0, (20, 21, 22)))
    for fresh in range(30, 40):
        before = set(core.swarm.views.passive)
        [(receiver, walk)] = sends(core.fire(SHUFFLE))
        assert isinstance(walk, HyparviewShuffle)
        assert (walk.origin, walk.ttl) == (1, 6)
        *neighbours, other = walk.nodes
        assert set(neighbours) == {2, 3, 4} - {receiver}
        assert other in before
        core.hear(2, HyparviewShuffleReply(0, (fresh,)))
        assert set(core.swarm.views.passive) == before - {other} | {fresh}


def test_no_more_names_are_taken_than_a_shuffle_has():
    core = Lone()
    core.befriend(2, 3)
    names = tuple(range(20, 60))
    core.hear(2, HyparviewShuffleReply(0, names))
    assert {*core.swarm.views.passive, *core.swarm.requests} == {*names[:8]}
    core.receive(2, HyparviewDisconnect(0, True, names[10:]))
    assert {*core.swarm.views.passive, *core.swarm.requests} == {2, *names[:8], *names[10:18]}


def test_a_lost_neighbour_is_replaced_from_the_passive_view():
    core = Lone(active_view=2)
    core.befriend(2, 3)
    assert not connects(core.receive(2, HyparviewShuffleReply(0, (7,))))
    assert connects(core.link_down(2, "crashed")) == [7]
    assert sends(core.link_up(7, True)) == [(7, HyparviewNeighbour(0, False))]
    core.hear(7, accept())
    assert list(core.swarm.views.active) == [3, 7]
    assert not core.swarm.views.passive


def test_a_neighbour_that_closes_its_link_is_remembered():
    core = Lone()
    core.befriend(2, 3)
    core.link_down(2, UNUSED)
    core.link_down(3, "crashed")
    assert core.swarm.views.passive.keys() | core.swarm.requests.keys() == {2}


def test_a_node_whose_link_is_lost_is_forgotten_even_if_it_was_not_a_neighbour():
    core = Lone(active_view=2)
    core.befriend(2, 3)
    core.hear(2, HyparviewShuffleReply(0, (7,)))
    core.link_up(7, False)
    core.link_down(7, "crashed")
    assert not core.swarm.views.passive


def test_a_lost_link_is_not_opened_again():
    core = Lone()
    core.befriend(2, 3)
    assert disconnects(core.link_down(2, "reset", retrying=True)) == [(2, "lost")]


def test_a_node_without_neighbours_insists():
    core = Lone()
    core.befriend(2)
    assert not connects(core.link_down(2, "crashed"))
    core.link_up(3, False)
    assert connects(core.receive(3, HyparviewShuffleReply(0, (7,)))) == [7]
    assert sends(core.link_up(7, True)) == [(7, HyparviewNeighbour(0, True))]


def test_a_node_that_refuses_is_kept_and_not_asked_again_before_the_next_shuffle():
    core = Lone(active_view=3)
    core.befriend(2)
    assert connects(core.receive(2, HyparviewShuffleReply(0, (7,)))) == [7]
    assert sends(core.link_up(7, True)) == [(7, HyparviewNeighbour(0, False))]
    assert Disconnect(7, UNUSED) in core.receive(7, HyparviewAnswer(0, False))
    core.link_down(7, UNUSED)
    assert list(core.swarm.views.passive) == [7]
    assert connects(core.receive(2, HyparviewShuffleReply(0, (7,)))) == []
    assert connects(core.at(10 * SECOND_NS).fire(SHUFFLE)) == [7]


@pytest.mark.parametrize(("reason", "retrying"), [(UNUSED, False), (UNWANTED, True)])
def test_a_request_whose_link_the_other_node_did_not_need_is_sent_again_once(reason: str, retrying: bool):
    core = Lone()
    core.befriend(2)
    core.receive(2, HyparviewShuffleReply(0, (7,)))
    core.link_up(7, True)
    assert core.link_down(7, reason, retrying)[-1] == Connect(7)
    assert sends(core.link_up(7, True)) == [(7, HyparviewNeighbour(0, False))]
    assert connects(core.link_down(7, reason, retrying)) == []


def test_a_request_that_is_not_answered_in_time_fails_and_a_later_answer_is_taken_back():
    core = Lone(request_timeout_s=2.0)
    core.befriend(2)
    effects = core.at(5).receive(2, HyparviewShuffleReply(0, (7,)))
    assert SetTimer("overlay/requests", 5 + 2 * SECOND_NS) in effects
    core.at(6).link_up(7, True)
    ended = core.at(5 + 2 * SECOND_NS).fire("overlay/requests")
    assert Disconnect(7, UNUSED) in ended
    assert 7 not in core.swarm.views.passive
    assert connects(core.receive(2, HyparviewShuffleReply(0, (7,)))) == [], "it did not answer"
    assert (7, HyparviewDisconnect(0, True, ())) in core.at(3 * SECOND_NS).hear(7, accept())


def test_after_a_request_that_is_not_answered_in_time_another_node_is_asked():
    core = Lone(active_view=2, request_timeout_s=2.0)
    core.befriend(2)
    [first] = connects(core.receive(2, HyparviewShuffleReply(0, (7, 8))))
    assert connects(core.at(2 * SECOND_NS).fire("overlay/requests")) == [15 - first]
    assert core.timers["overlay/requests"] == 4 * SECOND_NS
    assert sends(core.link_up(first, False)) == [], "the request is not sent later"


def test_a_frame_for_a_node_that_cannot_be_reached_is_dropped():
    core = Lone()
    core.befriend(2, 3)
    core.hear(2, HyparviewShuffle(0, 9, 1, ()))
    core.link_down(9, "unreachable")
    assert sends(core.link_up(9, False)) == []


def test_a_node_that_cannot_enter_through_a_listed_node_tries_the_next_one():
    core = Lone()
    assert connects(core.meet({5: (0,), 6: (0,), 7: (1,)})) == [5]
    assert connects(core.link_down(5, "unreachable")) == [6]
    assert connects(core.link_down(6, "unreachable")) == []


def test_a_node_that_subscribes_enters_the_swarm_at_once():
    core = Lone()
    core.meet({5: (1,)})
    assert connects(core.give(Subscribe(1))) == [5]


@pytest.mark.parametrize(("active_view", "joins"), [(3, True), (2, False)])
def test_a_node_with_two_places_that_nobody_fills_joins_again_through_a_listed_node(active_view: int, joins: bool):
    core = Lone(active_view=active_view)
    core.befriend(2)
    core.meet({2: (0,), 3: (0,)})
    core.link_up(3)
    joined = (3, HyparviewJoin(0)) in sends(core.fire(SHUFFLE))
    assert joined is joins


def test_a_link_is_brief_until_it_is_a_neighbours():
    core = Lone()
    core.link_up(3, False)
    assert core.node.state.neighbours[3].brief
    core.hear(3, HyparviewNeighbour(0, True))
    assert not core.node.state.neighbours[3].brief


def test_in_the_shared_overlay_logical_links_are_the_topics_of_both_ends():
    core = Solo(compose(1, 3, (0,), composition(scope="shared"), nodes=200))
    core.start({})
    core.link_up(2, False)
    core.receive(2, HyparviewNeighbour(SHARED, True))
    core.meet({2: (0, 4)})
    assert core.node.state.neighbours[2].logical == (0,)
    core.give(Subscribe(4))
    assert core.node.state.neighbours[2].logical == (0, 4)


def test_a_node_whose_answer_is_under_way_is_not_told_that_it_is_no_neighbour():
    core = Lone()
    core.befriend(2)
    core.hear(2, HyparviewShuffleReply(0, (7,)))
    core.link_up(7, True)
    for early in (HyparviewShuffle(0, 9, 6, ()), PlumtreePrune(0)):
        assert core.hear(7, early) == []
    core.hear(7, accept())
    assert list(core.swarm.views.active) == [2, 7]


def test_who_unsubscribes_leaves_the_swarm_and_says_so_also_to_those_that_come_later():
    core = Lone()
    core.befriend(2, 3)
    core.receive(2, HyparviewShuffleReply(0, (7,)))
    goodbye = HyparviewDisconnect(0, False, ())
    effects = core.give(Unsubscribe(0))
    assert sends(effects) == [(2, goodbye), (3, goodbye)]
    assert disconnects(effects) == [(2, UNUSED), (3, UNUSED), (7, UNUSED)]
    assert not trees_of(core.node)
    assert core.hear(2, HyparviewJoin(0)) == [(2, goodbye)]
    assert core.hear(2, PlumtreePrune(0)) == [(2, goodbye)]
    assert core.hear(2, goodbye) == []
    copy = core.receive(2, Data(message_id(5, 1), (0,), 1, UNLIMITED_TTL, b"x"))
    assert not any(isinstance(effect, (Deliver, Send)) for effect in copy)


def test_all_nodes_enter_a_swarm_through_one_listed_node():
    parts = composition()
    listed = PeerList(Directory(PeerInfo(node, (5,)) for node in range(20)))
    asked = Counter()
    for node in range(20):
        core = compose(node, node, (5,), parts, nodes=20)
        asked.update(connects(core.handle(0, Started()) + core.handle(0, listed)))
    assert sorted(asked.values()) == [1, 19]


def test_the_swarms_of_different_topics_have_different_contacts():
    core = Solo(compose(1, 3, tuple(range(10)), composition(), nodes=200))
    assert len(set(connects(core.start({node: tuple(range(10)) for node in range(2, 200)})))) == 10


def test_a_message_on_a_topic_of_others_goes_to_a_subscriber_to_which_there_is_a_link():
    core = Lone()
    core.meet(dict.fromkeys(range(5, 20), (4,)))
    core.link_up(6, False)
    for sequence in range(5):
        copy = Data(message_id(1, sequence), (4,), 1, UNLIMITED_TTL, b"payload")
        assert sends(core.give(Publish((4,), copy.message_id, b"payload"))) == [(6, copy)]


# --------------------------------------------------------------------------------------------------------- the tree


def copy_of(identifier: MessageId, hops: int = 1) -> Data:
    return Data(identifier, (0,), hops, UNLIMITED_TTL, b"payload")


def test_first_copies_go_on_to_eager_neighbours_and_are_announced_to_lazy_ones_in_batches():
    core = Lone(ihave_delay_ms=5.0)
    core.befriend(2, 3, 4)
    assert core.hear(4, PlumtreePrune(0)) == []
    first, second = message_id(9, 1), message_id(9, 2)
    effects = core.at(7).receive(2, copy_of(first))
    assert sends(effects) == [(3, copy_of(first, 2))]
    assert SetTimer("dissemination/announce", 7 + 5_000_000) in effects
    assert core.at(8).hear(2, copy_of(second, 4)) == [(3, copy_of(second, 5))]
    announced = PlumtreeIhave(0, (Advert(first, 2), Advert(second, 5)))
    assert sends(core.at(5_000_007).fire("dissemination/announce")) == [(4, announced)]
    core.hear(2, copy_of(message_id(9, 3), 255))
    assert core.timers["dissemination/announce"] == 10_000_007
    core.link_down(4, "crashed")
    assert sends(core.fire("dissemination/announce")) == []


def test_a_message_is_not_announced_to_the_neighbour_that_sent_it():
    core = Lone()
    core.befriend(2)
    core.hear(2, PlumtreePrune(0))
    core.hear(2, copy_of(message_id(9, 1)))
    assert "dissemination/announce" not in core.timers


def test_announcements_are_sent_in_frames_of_bounded_length():
    core = Lone()
    core.befriend(2, 3)
    core.hear(3, PlumtreePrune(0))
    for sequence in range(MOST_ADVERTS + 1):
        core.hear(2, copy_of(message_id(9, sequence)))
    frames = [frame for _, frame in sends(core.fire("dissemination/announce"))]
    assert [len(frame.adverts) for frame in frames if isinstance(frame, PlumtreeIhave)] == [MOST_ADVERTS, 1]


def test_the_number_of_hops_has_an_upper_bound():
    core = Lone()
    core.befriend(2, 3)
    identifier = message_id(9, 1)
    assert core.hear(2, copy_of(identifier, 255)) == [(3, copy_of(identifier, 255))]


def test_another_copy_makes_its_link_lazy_until_it_brings_a_first_one():
    core = Lone()
    core.befriend(2, 3)
    core.hear(2, copy_of(message_id(9, 1)))
    assert core.hear(3, copy_of(message_id(9, 1))) == [(3, PlumtreePrune(0))]
    assert core.hear(2, copy_of(message_id(9, 2))) == []
    core.hear(3, copy_of(message_id(9, 3)))
    assert list(core.tree.eager) == [2, 3]


def test_an_announced_message_that_does_not_come_is_asked_for_in_turn():
    core = Lone(missing_timeout_ms=40.0, graft_timeout_ms=20.0)
    core.befriend(2, 3)
    missing = message_id(9, 1)
    timer = f"dissemination/missing/0/{missing}"
    for peer in (2, 3):
        core.hear(peer, PlumtreePrune(0))
    announced = PlumtreeIhave(0, (Advert(missing, 3),))
    assert SetTimer(timer, 40_000_000) in core.receive(3, announced)
    assert not core.at(1).receive(2, announced), "the timer runs already"
    effects = core.at(40_000_000).fire(timer)
    assert sends(effects) == [(3, PlumtreeGraft(0, missing))]
    assert SetTimer(timer, 60_000_000) in effects
    assert sends(core.at(60_000_000).fire(timer)) == [(2, PlumtreeGraft(0, missing))]
    assert list(core.tree.eager) == [3, 2]
    assert core.at(80_000_000).fire(timer) == []
    assert not core.tree.missing


def test_a_message_that_comes_in_time_and_one_that_is_here_are_not_asked_for():
    core = Lone()
    core.befriend(2, 3)
    identifier = message_id(9, 1)
    core.hear(3, PlumtreePrune(0))
    core.hear(3, PlumtreeIhave(0, (Advert(identifier, 3),)))
    core.hear(2, copy_of(identifier))
    assert not core.tree.missing
    assert not any(name.startswith("dissemination/missing") for name in core.timers)
    assert core.receive(3, PlumtreeIhave(0, (Advert(identifier, 3), Advert(message_id(1, 0), 3)))) == []


@pytest.mark.parametrize(("copy_hops", "is_replaced"), [(8, True), (7, False)])
def test_a_much_shorter_lazy_link_replaces_the_eager_one(copy_hops: int, is_replaced: bool):
    core = Lone(optimisation_threshold=7)
    core.befriend(2, 3, 4)
    identifier = message_id(9, 1)
    for peer, hops in ((4, 6), (3, 1)):
        core.hear(peer, PlumtreePrune(0))
        core.hear(peer, PlumtreeIhave(0, (Advert(identifier, hops),)))
    changes = core.hear(2, copy_of(identifier, copy_hops))
    tree = core.tree
    assert changes == ([(3, PlumtreeGraft(0, None)), (2, PlumtreePrune(0))] if is_replaced else [])
    assert list(tree.eager) == ([3] if is_replaced else [2])


def test_a_shorter_link_is_grafted_although_it_is_eager_at_this_end():
    core = Lone(optimisation_threshold=1)
    core.befriend(2, 3)
    identifier = message_id(9, 1)
    core.hear(3, PlumtreeIhave(0, (Advert(identifier, 1),)))
    copy, *changes = core.hear(2, copy_of(identifier, 2))
    assert copy == (3, copy_of(identifier, 3))
    assert changes == [(3, PlumtreeGraft(0, None)), (2, PlumtreePrune(0))]


def test_a_message_is_sent_on_request_a_few_times_while_it_is_kept():
    core = Lone(cache_s=10.0)
    core.befriend(2, 3)
    identifier = message_id(9, 1)
    core.hear(2, copy_of(identifier))
    asked = PlumtreeGraft(0, identifier)
    core.hear(3, PlumtreePrune(0))
    replies = [core.hear(3, asked) for _ in range(MOST_REPLIES + 1)]
    assert replies == [[(3, copy_of(identifier, 2))]] * MOST_REPLIES + [[]]
    assert list(core.tree.eager) == [2, 3]
    core.at(11 * SECOND_NS).hear(2, copy_of(message_id(9, 2)))
    assert core.at(11 * SECOND_NS).hear(2, asked) == []


def test_no_more_messages_are_kept_than_are_remembered():
    core = Lone(seen_messages=2)
    core.befriend(2, 3)
    identifiers = [message_id(9, number) for number in range(3)]
    for identifier in identifiers:
        core.hear(2, copy_of(identifier))
    replies = [core.hear(3, PlumtreeGraft(0, identifier)) for identifier in identifiers]
    assert replies == [[], *([(3, copy_of(identifier, 2))] for identifier in identifiers[1:])]


def test_a_message_on_two_topics_is_sent_on_once_in_each_swarm():
    core = Solo(compose(1, 3, (0, 1), composition(), nodes=200))
    core.start({})
    for peer in (2, 3):
        core.link_up(peer, False)
        for topic in (0, 1):
            core.receive(peer, HyparviewNeighbour(topic, True))
    copies = [Data(message_id(9, 1), (topic,), 1, UNLIMITED_TTL, b"payload") for topic in (0, 1, 0)]
    receivers = [[peer for peer, frame in sends(core.receive(2, copy)) if isinstance(frame, Data)] for copy in copies]
    assert receivers == [[3], [3], []]


def test_a_message_may_return_after_its_id_was_forgotten():
    core = Solo(compose(1, 3, (0, 1), composition(seen_messages=2), nodes=200))
    core.start({})
    core.link_up(2, False)
    for number, topic in ((0, 0), (1, 0), (0, 1), (2, 0), (0, 1), (3, 0), (4, 0), (5, 0)):
        core.receive(2, Data(message_id(9, number), (topic,), 1, UNLIMITED_TTL, b"payload"))


def test_a_neighbour_that_goes_takes_its_announcements_along():
    core = Lone()
    core.befriend(2, 3)
    missing = message_id(9, 1)
    core.hear(3, PlumtreeIhave(0, (Advert(missing, 3),)))
    core.link_down(3, "crashed")
    assert not sends(core.at(SECOND_NS).fire(f"dissemination/missing/0/{missing}"))


def test_a_neighbour_that_announces_too_much_does_not_hide_what_others_announce():
    core = Lone()
    core.befriend(2, 3)
    for first in range(0, 3 * MOST_ANNOUNCED, MOST_ANNOUNCED):
        core.hear(2, PlumtreeIhave(0, tuple(Advert(message_id(9, first + n), 1) for n in range(MOST_ANNOUNCED))))
    core.hear(3, PlumtreeIhave(0, (Advert(message_id(8, 0), 1),)))
    missing = core.tree.missing
    assert len(missing) == MOST_ANNOUNCED + 1
    assert message_id(8, 0) in missing


def test_announcements_count_until_they_are_used_or_the_neighbour_is_gone():
    def fill(tree: Tree, first: int) -> bool:
        """Whether one announcement more than the limit is taken."""
        tree.promote(2)
        return any([tree.note(2, Advert(first + number, 1)) for number in range(MOST_ANNOUNCED + 1)][MOST_ANNOUNCED:])

    tree = Tree()
    assert not fill(tree, 0)
    for number in range(MOST_ANNOUNCED):
        assert tree.next_announcer(number) == 2
    assert not fill(tree, 10_000)
    assert len(tree.missing) == 2 * MOST_ANNOUNCED
    for number in range(MOST_ANNOUNCED):
        tree.forget(10_000 + number)
    assert not fill(tree, 20_000)
    tree.drop(2)
    assert not fill(tree, 30_000)
    assert len(tree.missing) == 3 * MOST_ANNOUNCED


def test_the_same_announcement_counts_once():
    tree = Tree()
    tree.promote(2)
    for _ in range(MOST_ANNOUNCED):
        tree.note(2, Advert(1, 1))
    assert tree.note(2, Advert(2, 1))


# ----------------------------------------------------------------------------------------------------- description

TELLING = [
    (HyparviewJoin(4), [9]),
    (HyparviewForwardJoin(4, 5, 6), [9, 5]),
    (HyparviewNeighbour(4, False), [9]),
    (HyparviewAnswer(4, False), [9]),
    (HyparviewDisconnect(4, True, (5,)), [9, 5]),
    (HyparviewDisconnect(4, False, ()), []),
    (HyparviewShuffle(4, 5, 6, (7, 8)), [9, 5, 7, 8]),
    (HyparviewShuffleReply(4, (7, 8)), [9, 7, 8]),
    (PlumtreeIhave(4, ()), [9]),
    (PlumtreeGraft(4, None), [9]),
    (PlumtreePrune(4), [9]),
    (HyparviewShuffle(SHARED, 5, 6, (7, 8)), []),
]


@pytest.mark.parametrize(("frame", "subscribers"), TELLING)
def test_a_frame_tells_that_the_nodes_that_it_names_subscribe_to_its_topic(frame: Frame, subscribers: list[NodeId]):
    assert [(node, tuple(topics)) for node, topics in frame.disclosed(9)] == [(node, (4,)) for node in subscribers]


def test_whoever_is_in_a_topics_swarm_answers_a_request_and_others_say_that_they_are_not():
    core = Lone()
    core.link_up(2, False)
    mine, foreign = Hyparview.ask_interests(2, (0, 4))
    told = [list(frame.disclosed(1)) for question in (mine, foreign) for _, frame in core.hear(2, question)]
    assert told == [[(1, (0,))], []]


def test_copies_follow_links_in_the_swarms_of_topics_and_shuffles_are_background():
    assert Broadcast.copies_follow_links({}, told=False, several=True)
    assert not Broadcast.copies_follow_links({"scope": "shared"}, told=False, several=True)
    assert set(PROTOCOL.background_frames) == {HyparviewShuffle, HyparviewShuffleReply}


def test_no_more_links_are_opened_at_a_time_than_so_many():
    core = Lone()
    core.befriend(2, 3)
    opened = set()
    for origin in range(4, 4 + 2 * MOST_DIALS):
        opened.update(connects(core.receive(2, HyparviewShuffle(0, origin, 1, ()))))
    assert len(opened) == MOST_DIALS


def test_no_more_frames_wait_for_a_link_than_so_many():
    core = Lone()
    core.befriend(2, 3)
    for _ in range(2 * MOST_POSTED):
        core.hear(2, HyparviewShuffle(0, 9, 1, ()))
    assert len(sends(core.link_up(9, True))) == MOST_POSTED


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
