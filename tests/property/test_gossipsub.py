"""GossipSub on the pump: meshes agree on both ends and keep their bounds, nobody gets a message twice."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import (
    Directory,
    PeerInfo,
    PeerList,
    Publish,
    Started,
    Subscribe,
    Unsubscribe,
    message_id,
)
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump, Solo, connects, disconnects, outputs_under_hash_seeds, part_of
from tests.examples import examples

SECOND_NS = 1_000_000_000
TOPICS = 3
interests = st.lists(st.sets(st.integers(0, TOPICS - 1)).map(sorted).map(tuple), min_size=2, max_size=12)

networks = st.fixed_dictionaries(
    {
        "interests": interests,
        "seed": st.integers(0, 2**32),
        "parameters": st.fixed_dictionaries(
            {
                "profile": st.sampled_from(["spec", "go", "js"]),
                "connections": st.integers(0, 4),
                "discovery": st.sampled_from(["random", "topics"]),
                "flood_publish": st.booleans(),
                "scoring": st.booleans(),
                "peer_exchange": st.booleans(),
                "idontwant": st.booleans(),
                "heed_idontwant": st.booleans(),
                "idontwant_min_bytes": st.just(0),
                "d": st.just(3),
                "d_lo": st.just(2),
                "d_hi": st.integers(3, 4),
                "d_out": st.integers(0, 1),
                "prune_backoff_s": st.sampled_from([1.0, 3.0, 60.0]),
                "unsubscribe_backoff_s": st.sampled_from([1.0, 10.0]),
            }
        ),
    }
)


def start(network: dict, faults: Faults | None = None) -> tuple[Pump, dict]:
    """A network that has had five seconds to find itself, and its nodes."""
    part = {"name": "gossipsub"} | network["parameters"]
    parts = Composition(part, part, interests="announced-only")
    nodes = {node: compose(node, network["seed"], topics, parts) for node, topics in enumerate(network["interests"])}
    pump = Pump(nodes, lambda a, b: 10**6 * (1 + (a * 31 + b * 17) % 90), faults, network["seed"])
    everybody = Directory(PeerInfo(node, topics) for node, topics in enumerate(network["interests"]))
    for node in nodes:
        pump.give(node, Started())
        pump.give(node, PeerList(everybody))
    pump.run(5 * SECOND_NS)
    return pump, nodes


def meshes(nodes: dict) -> dict[int, dict[int, dict[int, None]]]:
    return {number: part_of(node, "overlay").peers for number, node in nodes.items()}


def settle(pump: Pump) -> None:
    """Run to an instant at which no GRAFT or PRUNE is under way."""
    pump.run(3 * SECOND_NS)
    for _ in range(400):
        before = len(pump.effects)
        pump.run(200_000_000)
        names = {type(getattr(effect, "frame", None)).__name__ for _, _, effect in pump.effects[before:]}
        if not names & {"Graft", "Prune", "Subscriptions"}:
            return
    raise AssertionError("meshes never come to rest")


@settings(max_examples=examples(60), deadline=None)
@given(networks, st.floats(0, 0.4), st.floats(0, 0.8), st.floats(0, 0.8))
def test_nobody_gets_a_message_twice_whatever_the_links_do(
    network: dict, drop: float, duplicate: float, reorder: float
):
    pump, nodes = start(network, Faults(drop, duplicate, reorder))
    for sequence in range(6):
        publisher = sequence % len(nodes)
        topics = (sequence % TOPICS,) if sequence < 3 else (0, 2)
        pump.give(publisher, Publish(topics, message_id(publisher, sequence), b"x"))
        pump.run(SECOND_NS // 2)
    pump.run(6 * SECOND_NS)
    copies = Counter((node, message.message_id) for _, node, message in pump.delivered)
    assert set(copies.values()) <= {1}
    for _, node, message in pump.delivered:
        assert set(message.topics) & set(network["interests"][node])


changes = st.lists(st.tuples(st.integers(0, 11), st.booleans(), st.integers(0, TOPICS - 1)), max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(networks, changes)
def test_at_rest_a_mesh_is_the_same_from_both_ends(network: dict, steps: list[tuple[int, bool, int]]):
    pump, nodes = start(network)
    for node, join, topic in steps:
        pump.give(node % len(nodes), Subscribe(topic) if join else Unsubscribe(topic))
        pump.run(2 * SECOND_NS)
    settle(pump)
    held = meshes(nodes)
    for node, mine in held.items():
        assert set(mine) == nodes[node].state.topics
        for topic, peers in mine.items():
            for peer in peers:
                assert topic in nodes[peer].state.topics
                assert node in held[peer][topic]


@settings(max_examples=examples(60), deadline=None)
@given(networks, changes)
def test_degrees_keep_their_bounds(network: dict, steps: list[tuple[int, bool, int]]):
    pump, nodes = start(network)
    p = network["parameters"]
    highest = p["d_hi"] + p["d_out"] + 2
    for node, join, topic in steps:
        pump.give(node % len(nodes), Subscribe(topic) if join else Unsubscribe(topic))
        pump.run(2 * SECOND_NS)
    settle(pump)
    for node, mine in meshes(nodes).items():
        state = nodes[node].state
        for topic, peers in mine.items():
            linked = [peer for peer, it in state.neighbours.items() if topic in it.interests]
            assert len(peers) <= highest
            free = [peer for peer in linked if not part_of(nodes[node], "overlay").backoffs.holds(topic, peer)]
            assert len(peers) >= min(p["d_lo"], len(set(free) | set(peers)))


@settings(max_examples=examples(60), deadline=None)
@given(networks, st.data())
def test_every_subscriber_that_links_lead_to_gets_every_message(network: dict, data: st.DataObject):
    """By mesh, or by gossip: with as many lazy peers as there are nodes, no subscriber is left out."""
    network["parameters"] |= {"d_lazy": 12}
    pump, _ = start(network)
    settle(pump)
    topic = data.draw(st.integers(0, TOPICS - 1))
    subscribers = {node for node, mine in enumerate(network["interests"]) if topic in mine}
    if not subscribers:
        return
    publisher = data.draw(st.sampled_from(sorted(subscribers)))
    reached, frontier = {publisher}, [publisher]
    while frontier:
        node = frontier.pop()
        new = {b if a == node else a for a, b in pump.links() if node in (a, b)} & subscribers - reached
        reached |= new
        frontier += new
    pump.give(publisher, Publish((topic,), message_id(publisher, 1), b"x"))
    pump.run(40 * SECOND_NS)
    assert {node for _, node, _ in pump.delivered} == reached


bounded = st.fixed_dictionaries({"interests": interests, "degree": st.integers(1, 8), "seed": st.integers(0, 2**32)})


@given(bounded)
def test_bounded_gossipsub_shares_its_degree_out_among_the_topics(network: dict):
    told = network["interests"]
    parts = Composition({"name": "gossipsub-bounded", "degree": network["degree"]})
    solo = Solo(compose(0, network["seed"], told[0], parts))
    chosen = connects(solo.start(dict(enumerate(told))))
    assert len(set(chosen)) == len(chosen) == min(network["degree"], len(told) - 1)
    slots = solo.part("overlay").links.chosen
    dealt = Counter(topic for topic in slots.values() if topic is not None)
    for peer, topic in slots.items():
        assert topic is None or topic in told[peer]
    for topic in told[0]:
        left = [peer for peer, mine in enumerate(told) if topic in mine and peer and peer not in slots]
        # A topic that still has subscribers to choose from is never two links behind another, nor left for no topic.
        assert not left or dealt[topic] >= max(dealt.values(), default=0) - 1
        assert not left or None not in slots.values()


@given(bounded, st.integers(0, TOPICS - 1))
def test_bounded_gossipsub_deals_again_when_interests_change(network: dict, topic: int):
    told = [(0, 1, 2), *network["interests"]]
    parts = Composition({"name": "gossipsub-bounded", "degree": network["degree"]})
    solo = Solo(compose(0, network["seed"], told[0], parts))
    solo.start(dict(enumerate(told)))
    slots = solo.part("overlay").links.chosen
    before = dict(slots)
    effects = solo.at(1).give(Unsubscribe(topic))
    dropped = {peer for peer, _ in disconnects(effects)}
    asked = set(connects(effects))
    assert dropped == {peer for peer, served in before.items() if served not in solo.node.state.topics}
    assert slots.keys() == (before.keys() - dropped) | asked
    assert not dropped & asked
    assert topic not in slots.values()
    assert len(slots) == min(network["degree"], len(told) - 1 - len(dropped))


SCRIPT = """
import hashlib
from peer.core.contract import Publish, Subscribe, Unsubscribe, message_id
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump
digest = hashlib.sha256()
for profile in ("spec", "go", "js"):
    part = {"name": "gossipsub", "profile": profile, "connections": 4, "d": 4, "d_lo": 3, "d_hi": 6, "d_out": 1,
            "peer_exchange": True, "scoring": True, "prune_backoff_s": 2.0}
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
