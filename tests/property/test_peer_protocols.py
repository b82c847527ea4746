"""The protocols on the pump: who gets a message, that nobody gets it twice, and that a seed says it all."""

import heapq
from collections import Counter, defaultdict
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import Publish, Send, Subscribe, Unsubscribe, message_id
from peer.core.frames import UNLIMITED_TTL, Data
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump, outputs_under_hash_seeds
from tests.examples import examples

SECOND_NS = 1_000_000_000
TOPICS = 3

networks = st.fixed_dictionaries(
    {
        "interests": st.lists(st.sets(st.integers(0, TOPICS - 1)).map(sorted).map(tuple), min_size=2, max_size=12),
        "degree": st.integers(1, 4),
        "ttl": st.sampled_from([0, 1, 2, 3, UNLIMITED_TTL]),
        "overlay": st.sampled_from(["random", "complete"]),
        "topics": st.sets(st.integers(0, TOPICS - 1), min_size=1).map(sorted).map(tuple),
        "seed": st.integers(0, 2**32),
    }
)


def make_pump(network: dict, faults: Faults | None = None) -> Pump:
    overlay = {"name": network["overlay"]}
    if network["overlay"] == "random":
        overlay["degree"] = network["degree"]
    parts = Composition(overlay, {"name": "flood", "ttl": network["ttl"]})
    interests = network["interests"]
    nodes = {node: compose(node, network["seed"], topics, parts) for node, topics in enumerate(interests)}
    delays = Delays(network["seed"])
    pump = Pump(nodes, delays, faults, network["seed"])
    pump.start()
    pump.run(SECOND_NS)
    return pump


class Delays:
    """A delay for every directed pair, drawn so finely that no two paths take equally long."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.known: dict[tuple[int, int], int] = {}

    def __call__(self, source: int, destination: int) -> int:
        if (source, destination) not in self.known:
            self.known[source, destination] = self.random.randrange(10**6, 10**8)
        return self.known[source, destination]


def reference(network: dict, links: set[tuple[int, int]], delay, publisher: int):
    """Topiary's rule on a graph, without any protocol code.

    Returns:
        node -> (arrival, hops) of the first copy; and every transmission as (sender, receiver).
    """
    interested = [bool(set(mine) & set(network["topics"])) for mine in network["interests"]]
    neighbours = defaultdict(set)
    for a, b in links:
        neighbours[a].add(b)
        neighbours[b].add(a)
    first: dict[int, tuple[int, int]] = {publisher: (0, 0)}
    heap = []
    transmissions = Counter()

    def relay(node: int, source: int | None, ttl: int, at: int, hops: int) -> None:
        for peer in neighbours[node] - {source}:
            if ttl > 0 or interested[peer]:
                transmissions[node, peer] += 1
                heapq.heappush(heap, (at + delay(node, peer), peer, node, ttl, hops + 1))

    relay(publisher, None, network["ttl"], 0, 0)
    while heap:
        at, node, source, ttl, hops = heapq.heappop(heap)
        if node not in first:
            first[node] = (at, hops)
            if not interested[node] and ttl != UNLIMITED_TTL:
                ttl = max(ttl - 1, 0)
            relay(node, source, ttl, at, hops)
    return first, transmissions


@given(networks, st.data())
def test_exactly_those_whom_the_rule_reaches_get_the_message_once(network: dict, data: st.DataObject):
    pump = make_pump(network)
    publisher = data.draw(st.integers(0, len(network["interests"]) - 1))
    identifier = message_id(publisher, 4)
    start_ns = pump.now_ns
    pump.give(publisher, Publish(network["topics"], identifier, b"payload"))
    pump.run(10 * SECOND_NS)
    reached, transmissions = reference(network, pump.links(), pump.delay_ns, publisher)
    interested = {node for node, mine in enumerate(network["interests"]) if set(mine) & set(network["topics"])}
    got = [(node, (at - start_ns, message.hops)) for at, node, message in pump.delivered]
    assert len(got) == len(dict(got))
    assert dict(got) == {node: first for node, first in reached.items() if node in interested}
    assert {m.payload for _, _, m in pump.delivered} <= {b"payload"}
    sends = [(node, effect) for _, node, effect in pump.effects if isinstance(effect, Send)]
    assert Counter((node, send.peer) for node, send in sends if isinstance(send.frame, Data)) == transmissions
    relays = {event.node for event in pump.traced if event.event == "relay"}
    assert relays == reached.keys() - interested - {publisher}


@given(networks, st.data())
def test_without_a_limit_the_message_reaches_the_whole_component(network: dict, data: st.DataObject):
    network = network | {"ttl": UNLIMITED_TTL}
    pump = make_pump(network)
    publisher = data.draw(st.integers(0, len(network["interests"]) - 1))
    pump.give(publisher, Publish(network["topics"], message_id(publisher, 0), b""))
    pump.run(10 * SECOND_NS)
    component, frontier = {publisher}, [publisher]
    while frontier:
        node = frontier.pop()
        new = {b if a == node else a for a, b in pump.links() if node in (a, b)} - component
        component |= new
        frontier += new
    handled = {event.node for event in pump.traced if event.event in ("deliver", "relay")}
    assert handled | {publisher} == component


@given(networks, st.floats(0, 0.5), st.floats(0, 0.8), st.floats(0, 0.8))
def test_nobody_gets_a_message_twice_whatever_the_links_do(
    network: dict, drop: float, duplicate: float, reorder: float
):
    pump = make_pump(network, Faults(drop, duplicate, reorder))
    nodes = len(network["interests"])
    for sequence in range(5):
        pump.give(sequence % nodes, Publish(network["topics"], message_id(sequence % nodes, sequence), b"x"))
    pump.run(10 * SECOND_NS)
    copies = Counter((node, message.message_id) for _, node, message in pump.delivered)
    assert set(copies.values()) <= {1}
    for _, node, message in pump.delivered:
        assert set(message.topics) & set(network["interests"][node])


@given(networks)
def test_every_node_has_the_links_that_its_overlay_promises(network: dict):
    pump = make_pump(network)
    nodes = len(network["interests"])
    if network["overlay"] == "complete":
        assert pump.links() == {(a, b) for b in range(nodes) for a in range(b)}
        return
    asked = Counter(node for _, node, effect in pump.effects if type(effect).__name__ == "Connect")
    assert asked == dict.fromkeys(range(nodes), min(network["degree"], nodes - 1))


@given(networks)
def test_logical_links_are_the_shared_topics_of_physical_ones(network: dict):
    pump = make_pump(network)
    grafted = {
        (event.node, event.peer, topic) for event in pump.traced if event.event == "graft" for topic in event.topics
    }
    shared = {
        (one, other, topic)
        for pair in pump.links()
        for one, other in (pair, pair[::-1])
        for topic in set(network["interests"][one]) & set(network["interests"][other])
    }
    assert grafted == shared
    assert not [event for event in pump.traced if event.event in ("prune", "reject")]


@given(networks, st.lists(st.tuples(st.integers(0, 11), st.booleans(), st.integers(0, TOPICS - 1)), max_size=12))
def test_neighbours_follow_every_change_of_interest(network: dict, changes: list[tuple[int, bool, int]]):
    pump = make_pump(network)
    wanted = [set(topics) for topics in network["interests"]]
    for node, join, topic in changes:
        node %= len(wanted)
        pump.give(node, Subscribe(topic) if join else Unsubscribe(topic))
        (wanted[node].add if join else wanted[node].discard)(topic)
        pump.run(SECOND_NS // 20)
    pump.run(SECOND_NS)
    held: dict[tuple[int, int], set[int]] = defaultdict(set)
    for event in pump.traced:
        if event.event == "graft":
            assert not held[event.node, event.peer] & set(event.topics)
            held[event.node, event.peer] |= set(event.topics)
        elif event.event == "prune":
            assert held[event.node, event.peer] >= set(event.topics)
            held[event.node, event.peer] -= set(event.topics)
    for pair in pump.links():
        for one, other in (pair, pair[::-1]):
            assert held[one, other] == wanted[one] & wanted[other]


@settings(max_examples=examples(30))
@given(networks, st.data())
def test_a_lost_link_is_replaced_and_its_logical_links_end(network: dict, data: st.DataObject):
    pump = make_pump(network)
    one, other = data.draw(st.sampled_from(sorted(pump.links())))
    before = len(pump.effects)
    pump.cut(one, other)
    ended = [event for event in pump.traced if event.event == "prune"]
    shared = set(network["interests"][one]) & set(network["interests"][other])
    assert {(event.node, event.peer, event.topics) for event in ended} == (
        {(one, other, tuple(sorted(shared))), (other, one, tuple(sorted(shared)))} if shared else set()
    )
    pump.run(20 * SECOND_NS)
    # A full network has nobody else to offer: then the same link comes back, once the node has waited.
    assert any(type(effect).__name__ == "Connect" for _, _, effect in pump.effects[before:])


SCRIPT = """
import hashlib
from peer.core.contract import Publish, Send, Subscribe, message_id
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump
digest = hashlib.sha256()
for overlay in ({"name": "random", "degree": 3}, {"name": "complete"}):
    parts = Composition(overlay, {"name": "flood", "ttl": 2})
    nodes = {n: compose(n, 5, tuple(t for t in range(40) if (n * 7 + t * 3) % 4 == 0), parts) for n in range(15)}
    pump = Pump(nodes, lambda a, b: 10**6 + a * 1000 + b, Faults(0.05, 0.1, 0.2), 3)
    pump.start()
    for step in range(20):
        pump.run(50_000_000)
        pump.give(step % 15, Publish((step, 39 - step), message_id(step % 15, step), b"x"))
        pump.give((step * 2) % 15, Subscribe(step))
        pump.cut(step % 15, (step + 1) % 15)
    pump.run(20_000_000_000)
    digest.update(repr(pump.effects).encode())
    assert len(pump.delivered) > 50
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_effects_under_any_hash_seed():
    [digest] = outputs_under_hash_seeds(SCRIPT)
    assert len(digest.strip()) == 64
