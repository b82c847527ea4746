"""Scribe on the pump: trees that reach every member and hold no circle, degrees that hold, nobody is told twice."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.bitset import bitset
from peer.core.contract import Directory, Event, NodeId, PeerInfo, PeerList, Publish, Subscribe, Unsubscribe, message_id
from peer.protocols.registry import Composition, compose
from peer.protocols.scribe.forest import Forest, Tree
from peer.protocols.scribe.pastry import Pastry, distance, make_key, node_key
from peer.testing import Faults, Pump, outputs_under_hash_seeds
from tests.examples import examples

SECOND_NS = 1_000_000_000
TOPICS = 4
AMPLE = (100, 100)
"""Bounds of parents and children that never bind."""

networks = st.fixed_dictionaries(
    {
        "interests": st.lists(st.sets(st.integers(0, TOPICS - 1)).map(sorted).map(tuple), min_size=2, max_size=20),
        "seed": st.integers(0, 2**32),
        "parameters": st.fixed_dictionaries(
            {
                "grouping": st.sampled_from(["topic", "random"]),
                "groups": st.integers(1, 4),
                "digit_bits": st.sampled_from([1, 2, 4]),
                "leaf_set": st.sampled_from([2, 4, 16]),
                "heartbeat_s": st.just(2.0),
            }
        ),
    }
)


class BoundedPump(Pump):
    """Looks at a node's degrees after whatever it does."""

    bounds: tuple[int, int]

    def give(self, node: NodeId, event: Event) -> None:
        super().give(node, event)
        if node in self.nodes:
            check_degrees(self.part(node, "overlay").forest, self.bounds)


def start(network: dict, bounds: tuple[int, int], faults: Faults | None = None) -> Pump:
    """A network that has had twenty seconds to find itself."""
    part = {"name": "scribe", "degree": bounds[0], "children": bounds[1], **network["parameters"]}
    parts = Composition(part, part, interests="announced-only")
    numbers = Random(network["seed"]).sample(range(100), len(network["interests"]))
    interests = dict(zip(numbers, network["interests"], strict=True))
    nodes = {node: compose(node, network["seed"], topics, parts) for node, topics in interests.items()}
    pump = BoundedPump(nodes, lambda a, b: 10**6 * (1 + (a * 31 + b * 17) % 90), faults, network["seed"])
    pump.bounds = bounds
    pump.start()
    pump.run(20 * SECOND_NS)
    return pump


def forests(pump: Pump) -> dict[NodeId, Forest]:
    return {node: pump.part(node, "overlay").forest for node in pump.nodes}


def trees(pump: Pump) -> dict[int, dict[NodeId, Tree]]:
    """Every group's tree, by node."""
    found: dict[int, dict[NodeId, Tree]] = {}
    for node, forest in forests(pump).items():
        for group, tree in forest.trees.items():
            found.setdefault(group, {})[node] = tree
    return found


def members(pump: Pump) -> dict[int, set[NodeId]]:
    found: dict[int, set[NodeId]] = {}
    for node in pump.nodes:
        for group in pump.part(node, "overlay").own_groups():
            found.setdefault(group, set()).add(node)
    return found


def check_whole(pump: Pump) -> None:
    """At rest: both ends of every edge agree, each group has one root, all members hang on it, nobody idles."""
    wanted = members(pump)
    for group, places in trees(pump).items():
        [root] = [node for node, tree in places.items() if tree.is_root]
        keys = {node: node_key(node) for node in pump.nodes}
        key = make_key(f"group/{group}")
        assert root == min(keys, key=lambda node: (distance(keys[node], key), node))
        reached, frontier = {root}, [root]
        while frontier:
            node = frontier.pop()
            for child in places[node].children:
                assert child not in reached, "a circle, or two parents"
                assert places[child].parent == node
                reached.add(child)
                frontier.append(child)
        assert reached == places.keys()
        assert wanted.get(group, set()) <= reached
        assert all(tree.children or node in wanted.get(group, ()) for node, tree in places.items())
    assert wanted.keys() <= trees(pump).keys()
    linked = {(node, peer) for node, forest in forests(pump).items() for peer in {**forest.parents, **forest.children}}
    assert pump.links() == {(one, other) for one, other in linked if one < other}


def check_degrees(forest: Forest, bounds: tuple[int, int]) -> None:
    """A node has no more parents and children than it may, nor other ones than its trees say."""
    assert len(forest.parents) <= bounds[0]
    assert len(forest.children) <= bounds[1]
    below = Counter(child for tree in forest.trees.values() for child in tree.children)
    above = Counter(tree.parent for tree in forest.trees.values() if tree.parent is not None)
    assert {peer: len(groups) for peer, groups in forest.children.items()} == below
    assert {peer: len(groups) for peer, groups in forest.parents.items()} == above


def check_deliveries(pump: Pump, grouping: str, publisher: NodeId, topics: tuple[int, ...], sequence: int) -> None:
    """All subscribers in the trees of the message's groups get it, and nobody else."""
    before = len(pump.delivered)
    pump.give(publisher, Publish(topics, message_id(publisher, sequence), b"payload"))
    pump.run(10 * SECOND_NS)
    got = Counter(node for _, node, _ in pump.delivered[before:])
    subscribers = {node for node, core in pump.nodes.items() if not core.state.topics.isdisjoint(topics)}
    if grouping == "random":
        [group] = pump.part(publisher, "overlay").own_groups()
        subscribers &= trees(pump)[group].keys()
    assert got == dict.fromkeys(subscribers, 1)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sets(st.integers(0, 300), min_size=1, max_size=60), st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4, 16])
)
def test_routes_end_at_the_node_whose_key_is_closest(nodes: set[NodeId], digit_bits: int, leaf_set: int):
    everybody = bitset(nodes)
    routers = {node: Pastry(node, digit_bits, leaf_set) for node in nodes}
    for key in map(node_key, range(1000, 1005)):
        closest = min(nodes, key=lambda node: (distance(node_key(node), key), node))
        for first in nodes:
            node, hops = first, 0
            while (hop := routers[node].next_hop(key, everybody & ~(1 << node), attempt=first)) is not None:
                node, hops = hop, hops + 1
                assert hops <= len(nodes)
            assert node == closest


@settings(max_examples=examples(50), deadline=None)
@given(networks, st.data())
def test_trees_are_whole_and_messages_reach_their_groups(network: dict, data: st.DataObject):
    pump = start(network, AMPLE)
    check_whole(pump)
    for sequence in range(3):
        publisher = data.draw(st.sampled_from(sorted(pump.nodes)))
        topics = data.draw(st.sets(st.integers(0, TOPICS - 1), min_size=1, max_size=2).map(sorted).map(tuple))
        if pump.nodes[publisher].state.topics.issuperset(topics):
            check_deliveries(pump, network["parameters"]["grouping"], publisher, topics, sequence)


events = st.lists(
    st.tuples(st.sampled_from(["cut", "crash", "change"]), st.integers(0, 50), st.integers(0, TOPICS - 1)), max_size=6
)


def disturb(pump: Pump, changes: list[tuple[str, int, int]]) -> None:
    """Links are cut, nodes crash, and interests change; then the bootstrap service says who is left."""
    for what, which, topic in changes:
        node = sorted(pump.nodes)[which % len(pump.nodes)]
        links = sorted(pump.links())
        if what == "cut" and links:
            pump.cut(*links[which % len(links)])
        elif what == "crash" and len(pump.nodes) > 2:
            pump.crash(node)
        elif what == "change":
            is_subscribed = topic in pump.nodes[node].state.topics
            pump.give(node, Unsubscribe(topic) if is_subscribed else Subscribe(topic))
        pump.run(SECOND_NS // 5)
    everybody = Directory(PeerInfo(node) for node in pump.nodes)
    for node in tuple(pump.nodes):
        pump.give(node, PeerList(everybody))


@settings(max_examples=examples(100), deadline=None)
@given(networks, events, st.floats(0, 0.2))
def test_trees_are_whole_again_after_losses_and_churn(network: dict, changes: list[tuple[str, int, int]], drop: float):
    pump = start(network, AMPLE, Faults(drop, drop, drop))
    disturb(pump, changes)
    pump.faults = Faults()
    pump.run(90 * SECOND_NS)
    check_whole(pump)


@settings(max_examples=examples(100), deadline=None)
@given(networks, st.tuples(st.integers(1, 4), st.integers(1, 4)), events, st.floats(0, 0.3))
def test_no_degree_is_exceeded_and_nobody_is_told_twice(
    network: dict, bounds: tuple[int, int], changes: list[tuple[str, int, int]], drop: float
):
    pump = start(network, bounds, Faults(drop, drop, drop))
    for sequence, change in enumerate(changes):
        disturb(pump, [change])
        publisher = sorted(pump.nodes)[0]
        topics = tuple(sorted(pump.nodes[publisher].state.topics))
        if topics:
            pump.give(publisher, Publish(topics, message_id(publisher, sequence), b"payload"))
            pump.run(3 * SECOND_NS)
    copies = Counter((node, message.message_id) for _, node, message in pump.delivered)
    assert set(copies.values()) <= {1}


SCRIPT = """
import hashlib
from peer.core.contract import Publish, Subscribe, Unsubscribe, message_id
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump
digest = hashlib.sha256()
for grouping in ("topic", "random"):
    part = {"name": "scribe", "grouping": grouping, "groups": 3, "degree": 3, "children": 3, "heartbeat_s": 1.0}
    parts = Composition(part, part, interests="announced-only")
    nodes = {n: compose(n, 5, tuple(t for t in range(6) if (n * 7 + t * 3) % 4 < 2), parts) for n in range(20)}
    pump = Pump(nodes, lambda a, b: 10**6 + a * 1000 + b, Faults(0.05, 0.1, 0.2), 3)
    pump.start()
    for step in range(20):
        pump.run(300_000_000)
        pump.give(step % 15, Publish((step % 6, (step + 1) % 6), message_id(step % 15, step), b"x"))
        pump.give((step * 2) % 15, (Subscribe if step % 2 else Unsubscribe)(step % 6))
        pump.cut(step % 15, (step + 1) % 15)
    pump.run(20_000_000_000)
    digest.update(repr(pump.effects).encode())
    assert len(pump.delivered) > 50
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_effects_under_any_hash_seed():
    [digest] = outputs_under_hash_seeds(SCRIPT)
    assert len(digest.strip()) == 64
