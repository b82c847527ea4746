"""StAN on the pump: what its views are at any instant, which links they leave at rest, and who learns what of whom."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import (
    Directory,
    Event,
    FrameReceived,
    NodeId,
    PeerInfo,
    PeerList,
    Publish,
    Send,
    Subscribe,
    Unsubscribe,
    message_id,
)
from peer.core.frames import Data, Frame
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.protocols.stan.aligned_views import weigh
from peer.protocols.stan.frames import StanCollect, StanQuit, StanReply, StanRide
from peer.protocols.stan.initial_views import draw_views, list_members
from peer.testing import Faults, Pump, outputs_under_hash_seeds, part_of
from tests.examples import examples, long_unless

SECOND_NS = 1_000_000_000
TOPICS = 5

interests = st.lists(st.sets(st.integers(0, TOPICS - 1)).map(sorted).map(tuple), min_size=2, max_size=14)
networks = st.fixed_dictionaries(
    {
        "interests": interests,
        "seed": st.integers(0, 2**32),
        "variant": st.sampled_from(["literal", "learn_from_walks", ""]),
    }
)
faulty = st.tuples(st.floats(0, 0.3), st.floats(0, 0.5), st.floats(0, 0.5)).map(lambda ratios: Faults(*ratios))
messages = st.lists(
    st.tuples(st.integers(0, 13), st.sets(st.integers(0, TOPICS - 1), min_size=1).map(sorted).map(tuple)), max_size=6
)

Told = tuple[NodeId, Frame, frozenset[int]]


class World(Pump):
    """StAN nodes with their initial views, as a plan draws them.

    Attributes:
        ever: the topics that each node has subscribed to so far, whether it still does or not.
        told: every frame that came to a node, with those topics of the node at that instant.
    """

    def __init__(
        self, network: dict, faults: Faults | None = None, dissemination: str = "topic-flood", **given: object
    ) -> None:
        wanted, seed = network["interests"], network["seed"]
        self.ever = [set(topics) for topics in wanted]
        self.told: list[Told] = []
        overlay = {"name": "stan", **given}
        if variant := network.get("variant"):
            overlay[variant] = True
        self.cores = {}
        drawn = draw_views(wanted, 1.0, seed)
        for node, (views, lists) in enumerate(zip(drawn, list_members(drawn), strict=True)):
            default = PROTOCOLS["stan"].composition
            parts = Composition(
                overlay | {"views": views, "members": lists},
                {"name": dissemination},
                default.membership,
                default.interests,
            )
            self.cores[node] = compose(node, seed, wanted[node], parts)
        draws = Random(seed)
        delays = {(a, b): draws.randrange(10**6, 10**8) for a in self.cores for b in self.cores}
        super().__init__(self.cores, lambda source, destination: delays[source, destination], faults, seed)

    def give(self, node: NodeId, event: Event) -> None:
        """Write down who is told what."""
        if isinstance(event, Subscribe):
            self.ever[node].add(event.topic)
        if isinstance(event, FrameReceived):
            self.told.append((node, event.frame, frozenset(self.ever[node])))
        super().give(node, event)

    def views(self) -> dict[tuple[NodeId, int], tuple[NodeId, ...]]:
        """(node, topic) -> the view."""
        return {
            (node, topic): part_of(self.cores[node], "overlay").views[topic]
            for node in self.cores
            for topic in part_of(self.cores[node], "overlay").views.topics
        }

    def present(self) -> set[tuple[NodeId, NodeId, int]]:
        """(node, member, topic) of all that is in a view and not taken for gone."""
        return {
            (node, peer, topic)
            for node, topic in self.views()
            for peer in part_of(self.cores[node], "overlay").views.present(topic)
        }

    def logical(self) -> set[tuple[NodeId, NodeId, int]]:
        return {
            (node, peer, topic)
            for node, core in self.cores.items()
            for peer, neighbour in core.state.neighbours.items()
            for topic in neighbour.logical
        }

    def rest(self) -> None:
        """Set out on no more walks, and wait until those under way have ended."""
        for node in self.nodes:
            self.clear_timers(node)
        self.run(4 * SECOND_NS)

    def publish(self, node: NodeId, topics: tuple[int, ...], number: int) -> int:
        identifier = message_id(node % len(self.cores), number)
        self.give(node % len(self.cores), Publish(topics, identifier, b"payload"))
        return identifier


def topics_in(frame: Frame) -> Iterator[int]:
    """Every topic that a frame names."""
    match frame:
        case StanCollect(_, topic) | StanReply(topic):
            yield topic
        case StanRide(topics) | StanQuit(topics):
            yield from topics
        case Data():
            yield from frame.topics
        case _:
            raise AssertionError(f"not a frame of StAN: {frame!r}")


def disclosures(world: World) -> list[Told]:
    """The frames by which a node was told of a topic to which it never subscribed."""
    return [told for told in world.told if not told[2].issuperset(topics_in(told[1]))]


def follow(present: set[tuple[NodeId, NodeId, int]], node: NodeId, topic: int) -> set[NodeId]:
    """Whom a node reaches along a topic's views."""
    found, frontier = {node}, [node]
    while frontier:
        at = frontier.pop()
        for one, peer, of in present:
            if (one, of) == (at, topic) and peer not in found:
                found.add(peer)
                frontier.append(peer)
    return found - {node}


# ------------------------------------------------------------------------------------------------------- views


@settings(max_examples=examples(50), deadline=None)
@given(networks, faulty, st.data())
def test_views_keep_their_sizes_and_hold_other_subscribers_once_whatever_the_links_do(network, faults, data):
    world = World(network, faults)
    wanted = network["interests"]
    sizes = {key: len(view) for key, view in world.views().items()}
    world.start()
    for _ in range(20):
        world.run(SECOND_NS // 3)
        if links := sorted(world.links()):
            world.cut(*data.draw(st.sampled_from(links)))
        assert {key: len(view) for key, view in world.views().items()} == sizes
        for (node, topic), view in world.views().items():
            assert len(set(view)) == len(view)
            assert node not in view
            assert all(topic in wanted[peer] for peer in view)


@settings(max_examples=examples(40), deadline=None)
@given(networks, faulty)
def test_weights_only_fall(network, faults):
    world = World(network, faults)
    world.start()

    def weights() -> dict[tuple[NodeId, int], list[int]]:
        return {(node, topic): sorted(weigh(node, peer) for peer in view) for (node, topic), view in views.items()}

    views = world.views()
    before = weights()
    for _ in range(30):
        world.run(SECOND_NS // 4)
        views = world.views()
        now = weights()
        for key, found in now.items():
            assert all(new <= old for new, old in zip(found, before[key], strict=True))
        before = now


@pytest.mark.parametrize("seed", long_unless({0}, range(3)))
def test_views_become_the_lightest_of_all_that_are_reached(seed: int):
    """In the end no node reaches, along the views, anybody lighter than those in its own view."""
    draws = Random(seed)
    wanted = [tuple(topic for topic in range(2) if draws.random() < 0.8) for _ in range(12)]
    world = World({"interests": wanted, "seed": seed})
    first = world.views()
    world.start()
    world.run(250 * SECOND_NS)
    views = world.views()
    for (node, topic), view in views.items():
        others = follow(world.present(), node, topic)
        assert view == tuple(sorted(sorted(others, key=lambda peer: weigh(node, peer))[: len(view)]))
    assert views != first


def test_weights_are_the_same_in_all_topics_so_topics_come_to_share_neighbours():
    wanted = [tuple(range(TOPICS))] * 30
    world = World({"interests": wanted, "seed": 3})
    world.start()
    world.run(SECOND_NS // 2)
    pairs, links = {(node, peer) for node, peer, _ in world.present()}, len(world.links())
    world.run(40 * SECOND_NS)
    world.rest()
    assert len({(node, peer) for node, peer, _ in world.present()}) < 0.5 * len(pairs)
    assert len(world.links()) < 0.6 * links


# ------------------------------------------------------------------------------------------------------- links


def check_rest(world: World) -> None:
    """There is a link for every member of a view and no other, and both ends know what rides on it."""
    present = world.present()
    assert world.links() == {(min(node, peer), max(node, peer)) for node, peer, _ in present}
    assert world.logical() == present
    for node, core in world.cores.items():
        assert not part_of(core, "overlay").replies
        for peer, neighbour in core.state.neighbours.items():
            riding = {topic for one, other, topic in present if {one, other} == {node, peer}}
            assert neighbour.forwards == riding


@settings(max_examples=examples(60), deadline=None)
@given(networks, st.floats(0.5, 12))
def test_at_rest_the_links_are_those_of_the_views_and_none_of_an_answer_is_left(network, length_s):
    world = World(network)
    world.start()
    world.run(round(length_s * SECOND_NS))
    world.rest()
    check_rest(world)
    assert world.present() == {(node, peer, topic) for (node, topic), view in world.views().items() for peer in view}
    assert not [event for event in world.traced if event.event == "reject"]


@settings(max_examples=examples(40), deadline=None)
@given(networks, st.lists(st.tuples(st.integers(0, 13), st.integers(0, TOPICS - 1)), max_size=8), st.data())
def test_at_rest_after_lost_links_and_changes_of_interest(network, changes, data):
    world = World(network)
    wanted = [set(topics) for topics in network["interests"]]
    world.start({node: tuple(sorted(topics)) for node, topics in enumerate(wanted)})
    for node, topic in changes:
        node %= len(wanted)
        change = Unsubscribe(topic) if topic in wanted[node] else Subscribe(topic)
        wanted[node] ^= {topic}
        if isinstance(change, Subscribe):  # the others are told first, or they would take the node for a stranger
            told = Directory(PeerInfo(each, tuple(sorted(topics))) for each, topics in enumerate(wanted))
            for each in range(len(wanted)):
                world.give(each, PeerList(told))
        world.give(node, change)
        world.run(data.draw(st.integers(0, SECOND_NS)))
        if links := sorted(world.links()):
            world.cut(*data.draw(st.sampled_from(links)))
    world.run(6 * SECOND_NS)
    world.rest()
    check_rest(world)
    assert all(topic in wanted[node] & wanted[peer] for node, peer, topic in world.present())
    assert not disclosures(world)


def test_who_crashed_leaves_every_view_that_has_others_to_take():
    wanted = [(node % 2, 2) for node in range(24)]
    world = World({"interests": wanted, "seed": 8})
    sizes = {key: len(view) for key, view in world.views().items()}
    world.start()
    world.run(5 * SECOND_NS)
    dead = {1, 6, 7, 20}
    for node in sorted(dead):
        del world.cores[node]
        world.crash(node)
    world.run(20 * SECOND_NS)
    assert {key: len(view) for key, view in world.views().items()} == {
        key: size for key, size in sizes.items() if key[0] not in dead
    }
    held = {key: view for key, view in world.views().items() if dead & set(view)}
    assert len(held) <= 2
    for (node, topic), view in held.items():
        assert follow(world.present(), node, topic) < set(view), "it knows of nobody else"


def test_the_last_two_of_a_topic_find_each_other_again():
    world = World({"interests": [(0,), (0,)], "seed": 1})
    world.start()
    world.run(SECOND_NS)
    world.cut(0, 1)
    assert not world.links()
    world.run(3 * SECOND_NS)
    assert world.links() == {(0, 1)}
    world.rest()
    check_rest(world)


def test_nobody_keeps_asking_the_last_one_who_left():
    world = World({"interests": [(0,), (0,)], "seed": 1})
    world.start()
    world.run(SECOND_NS)
    world.give(1, Unsubscribe(0))
    world.run(SECOND_NS)
    told = len(world.told)
    world.run(20 * SECOND_NS)
    assert len(world.told) == told
    assert not world.links()


def test_a_walk_visits_one_node_more_than_its_ttl():
    for ttl in (0, 1, 5):
        world = World({"interests": [(0,)] * 4, "seed": 1}, walk_ttl=ttl)
        world.start()
        world.run(SECOND_NS)
        before = len(world.told)
        world.run(10 * SECOND_NS)
        frames = [frame for _, frame, _ in world.told[before:]]
        walks = Counter(frame.ttl for frame in frames if isinstance(frame, StanCollect))
        assert len(walks) == ttl + 1
        assert 0.9 * 40 < walks[ttl] <= 44
        assert sum(walks.values()) / walks[ttl] == pytest.approx(ttl + 1, rel=0.05)


# ----------------------------------------------------------------------------------------------------- privacy


@settings(max_examples=examples(60), deadline=None)
@given(networks, faulty, messages, st.booleans())
def test_no_frame_tells_a_node_of_a_topic_that_it_does_not_subscribe_to(network, faults, published, both):
    world = World(network, faults, both_directions=both)
    world.start()
    for number, (node, topics) in enumerate(published):
        world.run(SECOND_NS)
        world.publish(node, topics, number)
    world.run(3 * SECOND_NS)
    assert not disclosures(world)


def test_frames_do_tell_where_messages_are_flooded_without_regard_to_topics():
    """So that the property above is about something."""
    world = World({"interests": [(0, 1), (0,)], "seed": 1}, dissemination="flood")
    world.start()
    world.run(SECOND_NS)
    world.publish(0, (0, 1), 0)
    world.run(SECOND_NS)
    [(node, frame, _)] = disclosures(world)
    assert (node, frame.topics) == (1, (0, 1))


# ---------------------------------------------------------------------------------------------- dissemination


def reached(world: World, publisher: NodeId, topics: tuple[int, ...]) -> set[NodeId]:
    """Who is connected with the publisher within one of the topics that it subscribes to, whatever the direction."""
    found = set()
    edges = world.present()
    edges |= {(peer, node, topic) for node, peer, topic in edges}
    for topic in set(topics) & world.ever[publisher]:
        found |= {publisher} | follow(edges, publisher, topic)
    return found


@settings(max_examples=examples(60), deadline=None)
@given(networks, messages)
def test_a_message_reaches_all_that_its_topics_connect_and_crosses_a_link_once_for_each_topic(network, published):
    world = World(network)
    world.start()
    world.run(3 * SECOND_NS)
    world.rest()
    before = len(world.effects)
    for number, (node, topics) in enumerate(published):
        publisher = node % len(world.cores)
        identifier = world.publish(publisher, topics, number)
        world.run(3 * SECOND_NS)
        got = [node for _, node, message in world.delivered if message.message_id == identifier]
        assert len(got) == len(set(got))
        assert set(got) == reached(world, publisher, topics)
    crossings: Counter = Counter()
    copies: Counter = Counter()
    for _, node, effect in world.effects[before:]:
        if isinstance(effect, Send) and isinstance(effect.frame, Data):
            identifier = effect.frame.message_id
            copies[node, effect.peer, identifier] += 1
            crossings.update((node, effect.peer, identifier, topic) for topic in effect.frame.topics)
    assert set(crossings.values()) <= {1}
    for number, (node, _) in enumerate(published):
        own = [key for key in copies if key[0] == node % len(world.cores) and key[2] == message_id(key[0], number)]
        assert all(copies[key] == 1 for key in own), "the publisher sends one copy over each link"


@settings(max_examples=examples(40), deadline=None)
@given(networks, faulty, messages)
def test_nobody_gets_a_message_twice_under_loss_duplication_and_reordering(network, faults, published):
    world = World(network, faults)
    world.start()
    world.run(2 * SECOND_NS)
    for number, (node, topics) in enumerate(published):
        world.publish(node, topics, number)
        world.run(SECOND_NS // 5)
    world.run(3 * SECOND_NS)
    copies = Counter((node, message.message_id) for _, node, message in world.delivered)
    assert set(copies.values()) <= {1}
    for _, node, message in world.delivered:
        assert world.ever[node] & set(message.topics)


def test_without_both_directions_messages_follow_the_views_only():
    world = World({"interests": [(0,)] * 14, "seed": 5}, both_directions=False)
    world.start()
    world.run(3 * SECOND_NS)
    world.rest()
    world.publish(0, (0,), 0)
    world.run(3 * SECOND_NS)
    edges = {(node, peer) for node, peer, _ in world.present()}
    sent = {
        (node, effect.peer)
        for _, node, effect in world.effects
        if isinstance(effect, Send) and isinstance(effect.frame, Data)
    }
    got = {node for _, node, _ in world.delivered}
    assert 1 < len(got) < 14, "some of the views of this seed lead nowhere"
    assert sent <= edges
    unsent = {(node, peer) for node, peer in edges - sent if node in got}
    assert len(unsent) < len(got)
    assert unsent <= {(peer, node) for node, peer in sent}, "not back to where the first copy came from"


SCRIPT = """
import hashlib
from random import Random
from peer.core.contract import Unsubscribe
from peer.testing import Faults
from tests.property.test_stan import World, SECOND_NS
draws = Random(5)
wanted = [tuple(sorted(draws.sample(range(40), 12))) for _ in range(25)]
world = World({"interests": wanted, "seed": 5}, Faults(0.05, 0.1, 0.2))
world.start(dict(enumerate(wanted)))
for step in range(12):
    world.run(SECOND_NS // 3)
    world.cut(step, step + 1)
    world.give(step, Unsubscribe(wanted[step][0]))
    world.publish(step, (3, 17, 30), step)
assert len(world.effects) > 1000
print(hashlib.sha256(repr(world.effects).encode()).hexdigest())
"""


def test_the_same_seed_gives_the_same_effects_under_any_hash_seed():
    [digest] = outputs_under_hash_seeds(SCRIPT)
    assert len(digest.strip()) == 64
