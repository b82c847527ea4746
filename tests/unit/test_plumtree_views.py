"""HyParView in one node: joins, requests, disconnects, walks, shuffles and lost links."""

from collections import Counter

import pytest

from peer.core.contract import (
    Connect,
    Deliver,
    Directory,
    Disconnect,
    PeerInfo,
    PeerList,
    Publish,
    Send,
    SetTimer,
    Started,
    Subscribe,
    Unsubscribe,
    message_id,
)
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.links import UNWANTED
from peer.protocols.plumtree.frames import (
    SHARED,
    HyparviewAnswer,
    HyparviewDisconnect,
    HyparviewForwardJoin,
    HyparviewJoin,
    HyparviewNeighbour,
    HyparviewShuffle,
    HyparviewShuffleReply,
    PlumtreePrune,
)
from peer.protocols.plumtree.overlay import MOST_DIALS, MOST_POSTED, SHUFFLE
from peer.protocols.plumtree.swarm import MOST_REQUESTS, UNUSED
from peer.protocols.registry import compose
from peer.testing import Solo, connects, disconnects, sends
from tests.lone_plumtree import SECOND_NS, Lone, accept, composition, trees_of


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
