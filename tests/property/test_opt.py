"""OPT on the pump: its bound on entries or on all links, nodes that are refused, and a converged start."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from peer.core.contract import Directory, Event, NodeId, PeerInfo, PeerList, Started, TopicId
from peer.protocols.description import FirstNetwork
from peer.protocols.opt.contacts import USEFUL, draw_initial_state
from peer.protocols.opt.overlay import FULL, OptParameters
from peer.protocols.registry import PROTOCOLS, compose
from peer.protocols.tman.frames import Contact, Profile, TManRequest
from peer.testing import Pump, Solo, connects, disconnects, sends
from tests.examples import examples

SECOND_NS = 1_000_000_000
AGE_LIMIT = 5


def make_node(node: NodeId, topics: tuple[TopicId, ...], nodes: int, **parameters: object):
    composition = PROTOCOLS["opt"].composition
    return compose(node, 1, topics, replace(composition, overlay=composition.overlay | parameters), nodes=nodes)


class Watch(Pump):
    """A pump that remembers the most links that each node had at any time, without retired ones."""

    most: dict[NodeId, int]

    def give(self, node: NodeId, event: Event) -> None:
        super().give(node, event)
        overlay = self.part(node, "overlay")
        links = len(overlay.state.neighbours.keys() - overlay.retired.keys())
        self.most[node] = max(self.most.get(node, 0), links)


def start(interests: list[tuple[TopicId, ...]], rounds: int = 30, **parameters: object) -> Watch:
    """A network in which everybody knows everybody from the start."""
    pump = Watch({node: make_node(node, topics, len(interests), **parameters) for node, topics in enumerate(interests)})
    pump.most = {}
    for node in pump.nodes:
        pump.give(node, Started())
    for node in pump.nodes:
        pump.give(node, PeerList(Directory(PeerInfo(each, topics) for each, topics in enumerate(interests))))
    pump.run(rounds * SECOND_NS)
    return pump


def degrees(pump: Watch) -> list[int]:
    return [len(pump.part(node, "overlay").state.neighbours) for node in sorted(pump.nodes)]


HUB = [tuple(range(10)), *((topic,) for topic in range(10))]
"""A node that shares a topic with each of ten others, which share none with each other."""


def test_a_bound_on_entries_leaves_a_node_that_all_choose_with_many_links() -> None:
    assert degrees(start(HUB, table_size=4)) == [10, *[1] * 10]


def test_a_bound_on_links_holds_at_all_times_and_the_others_are_refused() -> None:
    pump = start(HUB, table_size=4, bound="links")
    assert sorted(degrees(pump)) == [0] * 6 + [1] * 4 + [4]
    assert pump.most[0] == 4, "the link that is one too many is closed in the turn in which it comes up"
    assert degrees(start(HUB, table_size=0, bound="links"))[0] == 10, "0 = no limit"


def test_nodes_that_are_refused_choose_others() -> None:
    interests = [(0, 1, 2, 3), *((0, 1 + node % 3) for node in range(9))]
    found = degrees(start(interests, table_size=3, bound="links"))
    assert max(found) == 3
    assert min(found) >= 1


drawn = st.lists(st.sets(st.integers(0, 5), max_size=4).map(sorted).map(tuple), min_size=2, max_size=14)


@settings(max_examples=examples(25))
@given(drawn, st.integers(1, 5))
def test_no_node_ever_has_more_links_than_its_bound(interests: list[tuple[TopicId, ...]], size: int) -> None:
    pump = start(interests, rounds=12, table_size=size, bound="links")
    assert max(pump.most.values()) <= size
    for node, own in enumerate(interests):
        table = pump.part(node, "overlay").table
        assert len(table) <= size
        assert all(set(own) & set(interests[peer]) for peer in table)


def full(size: int) -> Solo:
    """A node with as many links as it may have; the others opened them."""
    solo = Solo(make_node(0, (1,), 100, table_size=size, bound="links"))
    solo.start({})
    for peer in range(1, size + 1):
        solo.link_up(peer, outbound=False)
        solo.receive(peer, Profile(frozenset({1}), ()))
    solo.forget()
    return solo


def test_a_full_node_closes_the_next_link_and_ignores_what_comes_over_it() -> None:
    solo = full(2)
    assert (3, FULL) not in disconnects(solo.link_up(3, outbound=False))
    effects = solo.receive(3, Profile(frozenset({1}), ()))
    assert disconnects(effects) == [(3, FULL)]
    assert 3 not in solo.part("overlay").told
    assert not sends(solo.receive(3, TManRequest((Contact(4, 0, frozenset({1})),))))
    solo.link_down(3, FULL)
    solo.link_down(1, "released")
    solo.link_up(3, outbound=False)
    assert not disconnects(solo.receive(3, Profile(frozenset({1}), ()))), "there is room again"
    assert 3 in solo.part("overlay").told


def test_a_full_node_opens_no_link_for_a_topic_that_lacks_neighbours() -> None:
    solo = full(2)
    news = TManRequest((Contact(9, 0, frozenset({1})),))
    solo.receive(1, news)
    assert not connects(solo.advance(2 * SECOND_NS))
    roomy = full(2)
    roomy.link_down(2, "released")
    roomy.receive(1, news)
    assert 9 in connects(roomy.advance(2 * SECOND_NS))


def test_a_node_that_was_refused_tries_the_same_one_again_after_twice_the_age_limit() -> None:
    solo = Solo(make_node(0, (1,), 100, table_size=2, bound="links", contacts=(5,)))
    assert 5 in connects(solo.start({5: (1,)}))
    solo.link_up(5)
    solo.link_down(5, FULL)
    solo.advance((2 * AGE_LIMIT - 2) * SECOND_NS)
    assert 5 not in solo.part("overlay").table
    solo.advance(4 * SECOND_NS)
    assert 5 in solo.part("overlay").table


def test_a_converged_start_names_the_nodes_that_share_most_and_some_of_each_topic() -> None:
    popular = USEFUL + 50
    topics = [(0, 1, 2), *[(0, 1)] * 20, *[(0,)] * popular, (2,), (2, 3), ()]
    network = FirstNetwork(topics, [True] * len(topics), 1)
    assert draw_initial_state(network, OptParameters()) == [{}] * len(topics)
    wanted = OptParameters(start="converged", greedy_coverage=1, random_coverage=1)
    contacts = [each["contacts"] for each in draw_initial_state(network, wanted)]
    assert set(range(1, 21)) == set(contacts[0][:20]), "the nodes with two common topics come first"
    assert {21 + popular, 22 + popular} <= set(contacts[0]), "all subscribers of a topic that has few"
    assert USEFUL <= len(contacts[0]) <= USEFUL + 9
    assert all(node not in found and len(set(found)) == len(found) for node, found in enumerate(contacts))
    assert contacts[-1] == ()
    assert contacts == [each["contacts"] for each in draw_initial_state(network, wanted)]


def test_a_node_chooses_from_its_contacts_when_it_is_refused() -> None:
    solo = Solo(make_node(0, (1, 2), 100, table_size=1, bound="links", contacts=(5, 6)))
    solo.start({5: (1, 2), 6: (1,)} | dict.fromkeys(range(10, 100), (3,)))
    assert solo.part("overlay").table.keys() == {5}
    solo.link_up(5)
    solo.link_down(5, FULL)
    solo.advance(SECOND_NS)
    assert solo.part("overlay").table.keys() == {6}
