"""SpiderCast on the pump: what holds at every instant, what holds at rest, and that rest is found again."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import (
    Connect,
    Directory,
    Effect,
    Event,
    FrameReceived,
    Leaving,
    LinkDown,
    NodeId,
    PeerInfo,
    PeerList,
    Send,
    Subscribe,
    Unsubscribe,
)
from peer.core.frames import Frame
from peer.protocols.registry import Composition, compose
from peer.protocols.spidercast.frames import SpiderConnect, SpiderDisconnect, SpiderDisconnectOk, SpiderLeave
from peer.testing import Faults, Pump, outputs_under_hash_seeds, part_of
from tests.examples import examples

SECOND_NS = 1_000_000_000
TOPICS = 5
TASKS = 2

networks = st.fixed_dictionaries(
    {
        "interests": st.lists(
            st.sets(st.integers(0, TOPICS - 1), min_size=1).map(sorted).map(tuple), min_size=2, max_size=14
        ),
        "greedy": st.integers(1, 3),
        "random": st.integers(0, 2),
        "margin": st.integers(0, 4),
        "seed": st.integers(0, 2**32),
    }
)


class World(Pump):
    """Nodes whose interests are known to an observer, and some of which may be gone.

    Attributes:
        asked_to_part: how often any node asked any other.
    """

    def __init__(self, network: dict, faults: Faults | None = None, **given: object) -> None:
        self.asked_to_part = 0
        self.margin = network["margin"]
        self._requested_ns: dict[tuple[NodeId, NodeId], int] = {}
        self.wanted = {node: frozenset(topics) for node, topics in enumerate(network["interests"])}
        overlay = {
            "name": "spidercast",
            "greedy_coverage": network["greedy"],
            "random_coverage": network["random"],
            "margin": network["margin"],
            **given,
        }
        parts = Composition(overlay, {"name": "flood", "ttl": 0}, interests="private")
        seed, draws = network["seed"], Random(network["seed"])
        self.cores = {node: compose(node, seed, topics, parts) for node, topics in enumerate(network["interests"])}
        delays = {(a, b): draws.randrange(10**6, 2 * 10**8) for a in self.cores for b in self.cores}
        super().__init__(self.cores, lambda source, destination: delays[source, destination], faults, seed)
        self.start({node: tuple(topics) for node, topics in self.wanted.items()})

    def lose(self, node: NodeId) -> None:
        """A node dies without a word: its links look alive to the others."""
        self.vanish(node)
        del self.cores[node], self.wanted[node]

    def perform(self, node: NodeId, effect: Effect) -> None:
        if isinstance(effect, Connect) or (isinstance(effect, Send) and isinstance(effect.frame, SpiderConnect)):
            self._requested_ns[min(node, effect.peer), max(node, effect.peer)] = self.now_ns
        self.asked_to_part += isinstance(effect, Send) and isinstance(effect.frame, SpiderDisconnect)
        super().perform(node, effect)

    def tell_all(self) -> None:
        """The bootstrap service answers anew."""
        everybody = Directory(PeerInfo(node, tuple(sorted(topics))) for node, topics in self.wanted.items())
        for node in self.cores:
            self.give(node, PeerList(everybody))

    def task(self, node: NodeId, code: int):
        return part_of(self.cores[node], "overlay").tasks[code]

    def covers(self, node: NodeId, topic: int, code: int) -> int:
        """How many neighbours share the topic, by their true interests."""
        return sum(topic in self.wanted.get(peer, ()) for peer in self.task(node, code).neighbours)

    def uncovered(self, node: NodeId, code: int) -> list[int]:
        times = self.task(node, code).aim.times
        return [topic for topic in sorted(self.wanted[node]) if self.covers(node, topic, code) < times]

    def check_rest(self) -> None:
        """Both ends agree on everything, every node has what it can get, and nobody asks in vain again and again."""
        asked = self.asked_to_part
        self.run(5 * SECOND_NS)
        assert self.asked_to_part == asked
        pairs = set()
        for node in self.cores:
            for code in range(TASKS):
                for peer in self.task(node, code).neighbours:
                    assert node in self.task(peer, code).neighbours, (node, peer, code)
                    pairs.add((min(node, peer), max(node, peer)))
                self.check_coverage(node, code)
        # Who lacks coverage and finds nobody with room asks again after each quarantine, over a link of its own.
        asking = {pair for pair, at_ns in self._requested_ns.items() if at_ns > self.now_ns - 3 * SECOND_NS}
        assert {pair for pair in self.links() if set(pair) <= self.cores.keys()} - asking == pairs - asking
        for node, core in self.cores.items():
            for peer, neighbour in core.state.neighbours.items():
                pair = (min(node, peer), max(node, peer))
                assert pair in pairs | asking
                if pair in pairs:
                    assert neighbour.interests == neighbour.forwards == self.wanted[peer]
                    assert set(neighbour.logical) == self.wanted[node] & self.wanted[peer]

    def check_coverage(self, node: NodeId, code: int) -> None:
        """A topic is K-covered, unless this node has L_max neighbours, or others have no room for it."""
        task = self.task(node, code)
        if len(task.neighbours) >= task.limit:
            return
        for topic in self.uncovered(node, code):
            others = [peer for peer in self.cores if peer != node and topic in self.wanted[peer]]
            for peer in others:
                theirs = self.task(peer, code)
                assert peer in task.neighbours or len(theirs.neighbours) >= theirs.limit + self.margin, (node, topic)


class Observer(World):
    """Watches every parting that two nodes agree on, while nothing but their own decisions parts them.

    Attributes:
        agreed: partings that the asked node agreed to.
        above: those of them that were agreed to by a node with more neighbours than its target.
    """

    def __init__(self, network: dict) -> None:
        self.agreed = self.above = 0
        self._asked_above: dict[tuple[NodeId, NodeId, int], bool] = {}
        self._hurt: dict[tuple[NodeId, int], int] = {}
        self._asked_ns: dict[tuple[NodeId, NodeId, int], int] = {}
        super().__init__(network)

    def give(self, node: NodeId, event: Event) -> None:
        """Look at the node before and after."""
        frame: Frame | None = event.frame if isinstance(event, FrameReceived) else None
        if isinstance(frame, SpiderDisconnect | SpiderDisconnectOk):
            self.watch(node, event.peer, frame, lambda: super(Observer, self).give(node, event))
        else:
            if isinstance(frame, SpiderLeave) or isinstance(event, LinkDown):
                for code in range(TASKS):
                    self._hurt[node, code] = self.now_ns
            super().give(node, event)
        for code in range(TASKS):
            assert len(self.task(node, code).neighbours) <= self.task(node, code).limit + self.margin

    def watch(self, node: NodeId, peer: NodeId, frame: SpiderDisconnect | SpiderDisconnectOk, handle) -> None:
        task = self.task(node, frame.task)
        before, target = len(task.neighbours), task.target
        handle()
        if len(task.neighbours) == before:
            return
        assert peer not in task.neighbours
        if isinstance(frame, SpiderDisconnect):
            self.agreed += 1
            self.above += before > target
            assert before > target or not self.uncovered(node, frame.task)
        elif self._hurt.get((node, frame.task), -1) < self._asked_ns[node, peer, frame.task]:
            assert self._asked_above[node, peer, frame.task] or not self.uncovered(node, frame.task)

    def perform(self, node: NodeId, effect: Effect) -> None:
        if isinstance(effect, Send) and isinstance(effect.frame, SpiderDisconnect):
            task = self.task(node, effect.frame.task)
            key = (node, effect.peer, effect.frame.task)
            self._asked_above[key] = len(task.neighbours) > task.limit
            self._asked_ns[key] = self.now_ns
        super().perform(node, effect)


@settings(max_examples=examples(60), deadline=None)
@given(networks)
def test_no_parting_leaves_a_side_under_covered_that_has_no_more_neighbours_than_its_target(network: dict):
    Observer(network).run(25 * SECOND_NS)


def test_nodes_do_part_for_either_reason():
    """So that the property above is not about nothing."""
    draws = Random(3)
    interests = [tuple(sorted(draws.sample(range(TOPICS), 3))) for _ in range(40)]
    world = Observer({"interests": interests, "greedy": 2, "random": 1, "margin": 3, "seed": 1})
    world.run(25 * SECOND_NS)
    assert world.agreed > world.above > 0


@settings(max_examples=examples(60), deadline=None)
@given(networks)
def test_at_rest_both_ends_agree_and_every_node_is_covered_as_far_as_others_have_room(network: dict):
    world = World(network)
    world.run(60 * SECOND_NS)
    world.check_rest()


@settings(max_examples=examples(40), deadline=None)
@given(networks, st.floats(0, 0.4), st.floats(0, 0.5), st.floats(0, 0.5))
def test_rest_is_found_once_the_links_behave(network: dict, drop: float, duplicate: float, reorder: float):
    world = World(network, Faults(drop, duplicate, reorder))
    world.run(15 * SECOND_NS)
    world.faults = Faults()
    world.run(60 * SECOND_NS)
    world.check_rest()


@settings(max_examples=examples(40), deadline=None)
@given(networks, st.lists(st.tuples(st.integers(0, 13), st.integers(0, TOPICS - 1)), min_size=1, max_size=8))
def test_rest_is_found_after_changes_of_interest(network: dict, changes: list[tuple[int, int]]):
    world = World(network)
    world.run(10 * SECOND_NS)
    for node, topic in changes:
        node %= len(world.cores)
        world.give(node, Unsubscribe(topic) if topic in world.wanted[node] else Subscribe(topic))
        world.wanted[node] ^= {topic}
        world.run(SECOND_NS // 3)
    world.tell_all()
    world.run(60 * SECOND_NS)
    world.check_rest()


@settings(max_examples=examples(40), deadline=None)
@given(networks, st.lists(st.tuples(st.integers(0, 13), st.sampled_from(["leave", "crash", "cut"])), max_size=5))
def test_rest_is_found_after_departures_and_lost_links(network: dict, losses: list[tuple[int, str]]):
    world = World(network)
    world.run(10 * SECOND_NS)
    for number, kind in losses:
        node = sorted(world.cores)[number % len(world.cores)]
        if kind == "cut":
            for pair in sorted(world.links()):
                if node in pair and set(pair) <= world.cores.keys():
                    world.cut(*pair)
                    break
        elif len(world.cores) > 2:
            if kind == "leave":
                world.give(node, Leaving())
            world.lose(node)
            world.tell_all()
        world.run(SECOND_NS)
    world.run(60 * SECOND_NS)
    world.check_rest()


SCRIPT = """
import hashlib
from peer.core.contract import Publish, Subscribe, Unsubscribe, message_id
from peer.protocols.registry import Composition, compose
from peer.testing import Faults, Pump
digest = hashlib.sha256()
for overlay in (
    {"name": "spidercast", "adaptive": True},
    {"name": "spidercast", "greedy_coverage": 2, "random_coverage": 1},
    {"name": "similarity", "similar": 2, "random": 2},
    {"name": "ring-per-topic"},
):
    parts = Composition(overlay, {"name": "flood", "ttl": 0}, interests="private")
    interests = {n: tuple(t for t in range(40) if (n * 7 + t * 3) % 9 == 0) for n in range(15)}
    nodes = {n: compose(n, 5, topics, parts) for n, topics in interests.items()}
    pump = Pump(nodes, lambda a, b: 10**6 + a * 1000 + b, Faults(0.05, 0.1, 0.2), 3)
    pump.start(interests)
    for step in range(20):
        pump.run(500_000_000)
        pump.give(step % 15, Publish((step,), message_id(step % 15, step), b"x"))
        pump.give((step * 2) % 15, Subscribe(step))
        pump.give((step * 3) % 15, Unsubscribe(39 - step))
        pump.cut(step % 15, (step + 1) % 15)
    pump.run(10_000_000_000)
    digest.update(repr(pump.effects).encode())
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_effects_under_any_hash_seed():
    [digest] = outputs_under_hash_seeds(SCRIPT)
    assert len(digest.strip()) == 64
