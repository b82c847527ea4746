"""One StAN node alone: what it answers to each frame and each end of a link."""

import pytest
from msgspec.structs import replace

from peer.core.bitset import bitset
from peer.core.contract import (
    Connect,
    Directory,
    Disconnect,
    Effect,
    Event,
    NodeId,
    PeerInfo,
    PeerList,
    Publish,
    Started,
    Subscribe,
    Trace,
    Unsubscribe,
    message_id,
)
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.protocols.registry import Composition, compose
from peer.protocols.stan.aligned_views import AlignedViews, weigh
from peer.protocols.stan.frames import StanCollect, StanQuit, StanReply, StanRide
from peer.protocols.stan.overlay import MOST_WALKS
from peer.testing import Solo, connects, deliveries, sends

MEMBERS = f"{bitset(range(40)):x}"
STRANGER = 77


class Lone(Solo):
    """Node 0, subscribed to topics 1 and 2 as all below 40 are, with 10 and 11 in both views; it has left topic 3."""

    def __init__(self, *linked: NodeId, **given: object) -> None:
        drawn = {"views": [(1, [10, 11]), (2, [10, 11])], "members": [(topic, MEMBERS) for topic in (1, 2, 3)]}
        overlay = {"name": "stan", **drawn, **given}
        super().__init__(compose(0, 1, (1, 2), Composition(overlay, {"name": "topic-flood"}, interests="private")))
        self.give(Started())
        self.begun = self.meet({})
        for peer in linked:
            self.link_up(peer)

    def give(self, event: Event) -> list[Effect]:
        self.now_ns += 1
        return super().give(event)

    def walk(self) -> list[Effect]:
        """Set out on a walk in both topics."""
        return self.fire("overlay/walk")

    def logical(self) -> dict[NodeId, tuple[int, ...]]:
        return {peer: neighbour.logical for peer, neighbour in self.node.state.neighbours.items()}


def rejected(effects: list[Effect]) -> str | None:
    [effect] = effects
    assert isinstance(effect, Trace)
    assert effect.event.event == "reject"
    return effect.event.reason


def test_a_link_is_opened_for_every_member_once_and_both_ends_are_told_what_rides_on_it():
    node = Lone()
    assert node.begun == [Connect(10), Connect(11)]
    up = node.link_up(10)
    assert sends(up) == [(10, StanRide((1, 2)))]
    assert [effect.event.event for effect in up if isinstance(effect, Trace)] == ["graft"]
    assert node.logical() == {10: (1, 2)}
    node.link_up(12, outbound=False)
    node.receive(12, StanRide((2,)))
    assert node.logical() == {10: (1, 2), 12: ()}
    assert node.node.state.neighbours[12].forwards == {2}


def test_a_link_closes_when_the_last_of_both_ends_has_no_use_for_it():
    node = Lone(10, 11)
    node.link_up(12, outbound=False)
    assert sends(node.receive(12, StanRide((1,)))) == []
    assert node.receive(12, StanRide(())) == [Disconnect(12, "unused")]
    assert node.receive(10, StanRide(())) == [], "it is in this node's views"


@pytest.mark.parametrize("literal", [False, True])
def test_a_walk_collects_the_view_unless_the_listing_is_taken_literally(literal: bool):
    node = Lone(10, 11, literal=literal)
    node.link_up(12, outbound=False)
    [(target, passed)] = sends(node.receive(12, StanCollect(12, 1, 3, (5,))))
    assert target in (10, 11)
    assert passed == StanCollect(12, 1, 2, (0, 5) if literal else (0, 5, 10, 11))


@pytest.mark.parametrize("learns", [False, True])
def test_a_walk_that_passes_changes_a_view_only_where_nodes_learn_from_it(learns: bool):
    node = Lone(10, 11, learn_from_walks=learns)
    views = node.part("overlay").views
    passing = range(12, 40)
    effects = [effect for peer in passing for effect in node.receive(10, StanCollect(peer, 1, 3, ()))]
    lightest = tuple(sorted(sorted([10, 11, *passing], key=lambda peer: weigh(0, peer))[:2]))
    assert lightest != (10, 11)
    assert views[1] == (lightest if learns else (10, 11))
    assert any(isinstance(effect, Connect) for effect in effects) == learns
    assert views[2] == (10, 11)


def test_a_node_tells_only_of_those_to_whom_it_has_a_link():
    node = Lone(10)
    assert sends(node.receive(10, StanCollect(12, 1, 1, ()))) == [(10, StanCollect(12, 1, 0, (0, 10)))]


def test_the_answer_goes_straight_to_the_originator_over_a_link_of_its_own_if_need_be():
    node = Lone(10, 11)
    assert node.receive(10, StanCollect(12, 1, 0, ())) == [Connect(12)]
    assert node.receive(11, StanCollect(12, 2, 0, (5,))) == []
    answers = sends(node.link_up(12))
    assert answers == [(12, StanReply(1, (0, 10, 11))), (12, StanReply(2, (0, 5, 10, 11))), (12, StanRide(()))]
    assert node.logical() == {10: (1, 2), 11: (1, 2), 12: ()}
    assert sends(node.receive(11, StanCollect(11, 2, 0, ()))) == [(11, StanReply(2, (0, 10, 11)))]


def test_an_answer_that_cannot_be_given_is_forgotten():
    node = Lone(10, 11)
    node.receive(10, StanCollect(12, 1, 0, ()))
    assert node.link_down(12, "unreachable") == []
    assert node.receive(10, StanCollect(12, 1, 0, ())) == [Connect(12)]
    assert node.link_down(12, "reset", retrying=True) == [], "it is still being tried for the answer"


def test_what_does_not_concern_this_node_is_rejected():
    node = Lone(10, 11)
    assert rejected(node.receive(10, StanCollect(12, 3, 1, ()))) == "not_subscribed"
    assert rejected(node.receive(10, StanReply(3, (5,)))) == "not_subscribed"
    assert rejected(node.receive(10, StanCollect(12, 1, 6, ()))) == "walk_too_long"
    effects = node.receive(10, StanRide((1, 3, 4)))
    assert sends(effects) == [(10, StanQuit((3,)))], "nothing of what it never subscribed to"
    assert node.node.state.neighbours[10].forwards == {1, 2}
    assert node.receive(10, StanQuit((3,))) == []


def test_a_link_that_the_other_side_took_for_unused_is_opened_again():
    node = Lone(10, 11)
    prune, connect = node.link_down(10, "unused")
    assert isinstance(prune, Trace)
    assert connect == Connect(10)
    assert node.part("overlay").views.present(1) == (10, 11)


def test_a_lost_member_keeps_its_place_until_an_answer_brings_another():
    node = Lone(10, 11)
    node.link_down(10, "reset")
    views = node.part("overlay").views
    assert (views[1], views.present(1)) == ((10, 11), (11,))
    node.walk()
    effects = node.receive(11, StanReply(1, (10, 11, 12)))
    assert Connect(12) in effects
    assert Connect(10) not in effects
    assert (views[1], views.present(2)) == ((11, 12), (11,))


def test_a_missed_member_that_has_this_node_in_its_view_is_back():
    node = Lone(10, 11)
    node.link_down(10, "reset")
    node.link_up(10, outbound=False)
    effects = node.receive(10, StanRide((2,)))
    assert effects[0] == Connect(10)
    assert sends(effects) == [(10, StanRide((2,)))], "of the other topic it has said nothing"
    assert node.logical()[10] == (2,)


def test_a_node_without_members_walks_from_those_who_have_it_in_their_views():
    node = Lone(10, 11)
    for peer in (10, 11):
        node.link_down(peer, "reset")
    node.link_up(12, outbound=False)
    node.receive(12, StanRide((1,)))
    effects = node.walk()
    assert sends(effects) == [(12, StanCollect(0, 1, 5, ()))]
    assert [effect for effect in effects if isinstance(effect, Connect)] == [Connect(10), Connect(11)], "for topic 2"


def test_who_leaves_a_topic_tells_those_who_have_it_in_their_views_and_those_in_its_own():
    node = Lone(10, 11)
    node.link_up(12, outbound=False)
    node.receive(12, StanRide((1, 2)))
    effects = node.give(Unsubscribe(1))
    assert sends(effects) == [(12, StanQuit((1,))), (10, StanRide((2,))), (11, StanRide((2,)))]
    assert node.node.state.neighbours[12].forwards == {2}
    assert rejected(node.receive(10, StanCollect(12, 1, 1, ()))) == "not_subscribed"


def test_who_quits_a_topic_is_missed_there_alone():
    node = Lone(10, 11)
    assert sends(node.receive(10, StanQuit((1, 7)))) == [(10, StanRide((2,)))]
    views = node.part("overlay").views
    assert (views.present(1), views.present(2)) == ((11,), (10, 11))


def test_a_new_topic_needs_somebody_who_tells_of_its_members():
    node = Lone(10, 11)
    _, refused = node.give(Subscribe(4))
    assert isinstance(refused, Trace)
    assert (refused.event.event, refused.event.reason) == ("reject", "no_members_known")
    effects = node.give(PeerList(Directory([PeerInfo(0, (4,)), PeerInfo(20, (4,)), PeerInfo(21, (5,))])))
    assert effects == [Connect(20)]


def test_a_message_goes_along_its_topics_links_under_the_topics_of_each():
    node = Lone(10, 11)
    node.receive(11, StanQuit((2,)))
    for peer in (12, 13):
        node.link_up(peer, outbound=False)
    node.receive(12, StanRide((2,)))
    copies = dict(sends(node.give(Publish((1, 2, 9), 77, b"x"))))
    assert {peer: copy.topics for peer, copy in copies.items()} == {10: (1, 2), 11: (1,), 12: (2,)}
    late_id = message_id(10, 8)
    late = node.receive(10, Data(late_id, (1,), 1, UNLIMITED_TTL, b""))
    assert sends(late) == [(11, Data(late_id, (1,), 2, UNLIMITED_TTL, b""))]
    again = node.receive(12, Data(late_id, (1, 2), 1, UNLIMITED_TTL, b""))
    assert sends(again) == [(10, Data(late_id, (2,), 2, UNLIMITED_TTL, b""))], "for the topic that is new"
    assert [effect.event.event for effect in again if isinstance(effect, Trace)] == ["duplicate"]
    assert sends(node.receive(11, Data(late_id, (1, 2), 1, UNLIMITED_TTL, b""))) == []


# --------------------------------------------------------------------------------------------------- strangers


QUESTIONS = [
    StanRide(tuple(range(6))),
    StanCollect(STRANGER, 1, 0, ()),
    StanCollect(STRANGER, 1, 5, ()),
    StanCollect(10, 1, 0, ()),
    StanReply(1, (STRANGER,)),
    StanQuit((1, 2)),
    Data(message_id(STRANGER, 0), (1,), 1, UNLIMITED_TTL, b"x"),
    Data(message_id(10, 0), (1, 2, 8, 50), 1, UNLIMITED_TTL, b"x"),
    Data(message_id(0, 0), (2, 9), 1, UNLIMITED_TTL, b"x"),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=repr)
def test_a_stranger_cannot_tell_a_subscriber_from_another_node(question: Frame):
    """Node 0 answers in the same way whether it subscribes to the topics or to none of them."""
    answers = []
    for topics in ((1, 2), (8, 9)):
        given = {"views": [(topic, [10, 11]) for topic in topics], "members": [(topic, MEMBERS) for topic in topics]}
        node = Lone(10, 11, **given)
        node.part("interests").write(topics=frozenset(topics))
        node.walk()
        node.link_up(STRANGER, outbound=False)
        at_once = node.receive(STRANGER, question)
        later = node.give(Publish((1, 2), 7, b"x")) + node.give(Unsubscribe(topics[0]))
        answers.append((at_once, [effect for effect in later if getattr(effect, "peer", None) == STRANGER]))
    assert answers[0] == answers[1], "it does the same, to whomever"
    assert not any(sends(effects) for effects in answers[0])


def test_a_strangers_message_is_taken_by_nobody_and_does_not_keep_the_genuine_one_out():
    node = Lone(10, 11)
    node.link_up(STRANGER, outbound=False)
    copy = Data(message_id(10, 0), (1, 2), 1, UNLIMITED_TTL, b"x")
    assert rejected(node.receive(STRANGER, copy)) == "stranger"
    effects = node.receive(10, copy)
    assert [message.payload for message in deliveries(effects)] == [b"x"]
    assert sends(effects) == [(11, replace(copy, hops=2))]


def test_of_a_message_on_several_topics_only_those_count_to_which_its_sender_subscribes():
    few = f"{bitset(range(12)):x}"
    node = Lone(10, 11, 12, members=[(1, MEMBERS), (2, few)])
    node.receive(12, StanRide((1,)))
    effects = node.receive(12, Data(message_id(12, 0), (1, 2, 9), 1, UNLIMITED_TTL, b"x"))
    [delivered] = deliveries(effects)
    assert delivered.topics == (1,)
    assert {copy.topics for _, copy in sends(effects)} == {(1,)}


def test_a_message_is_remembered_under_no_more_topics_than_the_nodes_own():
    """Whatever a subscriber that repeats it with ever more topics says."""
    everything = [(topic, MEMBERS) for topic in range(300)]
    node = Lone(10, 11, members=everything)
    dissemination = node.part("dissemination")
    for first in range(3, 290, 5):
        node.receive(10, Data(message_id(10, 0), (first, first + 1, 1), 1, UNLIMITED_TTL, b"x"))
    node.receive(10, Data(message_id(10, 0), (2, 2), 1, UNLIMITED_TTL, b"x"))
    assert dissemination.seen == {message_id(10, 0): (1, 2)}


def test_a_forged_copy_of_a_nodes_next_message_does_not_silence_it():
    node = Lone(10, 11)
    identifier = message_id(0, 0)
    assert rejected(node.receive(10, Data(identifier, (1,), 1, UNLIMITED_TTL, b"forged"))) == "own_message"
    effects = node.give(Publish((1,), identifier, b"genuine"))
    assert [message.payload for message in deliveries(effects)] == [b"genuine"]
    assert {peer for peer, _ in sends(effects)} == {10, 11}
    [back] = node.receive(10, Data(identifier, (1,), 2, UNLIMITED_TTL, b"genuine"))
    assert isinstance(back, Trace)
    assert back.event.event == "duplicate"


def test_strangers_in_walks_and_answers_are_ignored():
    node = Lone(10, 11)
    assert rejected(node.receive(10, StanCollect(STRANGER, 1, 0, ()))) == "stranger"
    [(_, passed)] = sends(node.receive(10, StanCollect(12, 1, 1, (5, STRANGER, 2**31 - 1))))
    assert passed == StanCollect(12, 1, 0, (0, 5, 10, 11))
    node.walk()
    assert not [effect for effect in node.receive(11, StanReply(1, (STRANGER,))) if isinstance(effect, Connect)]
    assert node.part("overlay").views[1] == (10, 11)


def test_a_stranger_has_no_part_in_walks_even_in_a_subscribers_name():
    node = Lone(10, 11)
    node.walk()
    node.link_up(STRANGER, outbound=False)
    assert rejected(node.receive(STRANGER, StanCollect(10, 1, 0, ()))) == "stranger"
    assert rejected(node.receive(STRANGER, StanReply(1, (12,)))) == "stranger"


def test_only_answers_to_own_walks_are_taken_and_each_walk_has_one():
    node = Lone(10, 11)
    answer = StanReply(1, tuple(range(12, 40)))
    assert rejected(node.receive(10, answer)) == "unasked"
    node.walk()
    assert Connect in map(type, node.receive(10, answer))
    assert rejected(node.receive(11, answer)) == "unasked"


def test_no_more_than_so_many_answers_are_awaited_in_a_topic():
    node = Lone(10, 11)
    for _ in range(MOST_WALKS + 5):
        node.walk()
    answers = [node.receive(10, StanReply(1, (10,))) for _ in range(MOST_WALKS + 1)]
    assert answers[:-1] == [[]] * MOST_WALKS
    assert rejected(answers[-1]) == "unasked"


def test_answers_to_one_node_wait_once_for_each_topic_however_often_it_asks():
    node = Lone(10, 11)
    effects = [
        effect for _ in range(50) for topic in (1, 2) for effect in node.receive(10, StanCollect(20, topic, 0, ()))
    ]
    assert effects == [Connect(20)]
    assert len(sends(node.link_up(20))) == 3, "two answers, and that it needs the link for nothing else"


def test_who_quits_a_topic_is_a_stranger_there_until_the_bootstrap_service_names_it():
    node = Lone(10, 11)
    node.link_up(12, outbound=False)
    node.receive(12, StanRide((1, 2)))
    node.receive(12, StanQuit((1, 7)))
    assert node.node.state.neighbours[12].forwards == {2}, "no message on the topic goes to it"
    assert 12 not in {peer for peer, _ in sends(node.give(Publish((1,), message_id(0, 0), b"x")))}
    assert rejected(node.receive(12, StanCollect(12, 1, 0, ()))) == "stranger"
    assert rejected(node.receive(12, Data(message_id(12, 0), (1,), 1, UNLIMITED_TTL, b"x"))) == "stranger"
    node.receive(12, StanRide((1, 2)))
    assert node.node.state.neighbours[12].forwards == {2}
    assert sends(node.receive(12, StanCollect(12, 2, 0, ()))), "in the other topic it is none"
    node.give(PeerList(Directory([PeerInfo(0, (1, 2)), PeerInfo(12, (1,))])))
    assert sends(node.receive(12, StanCollect(12, 1, 0, ())))
    node.receive(12, StanQuit((1,)))
    assert sends(node.receive(12, StanCollect(12, 1, 0, ()))), "as the bootstrap service still names it"


def test_who_quit_is_not_taken_for_present_again_when_all_others_of_the_view_are_lost():
    node = Lone(10, 11)
    node.receive(10, StanQuit((1,)))
    node.link_down(10, "reset")
    node.link_down(11, "reset")
    node.walk()
    assert node.part("overlay").views.present(1) == (11,)


# ------------------------------------------------------------------------------------------------------- dials


def test_a_node_that_takes_its_link_for_unused_each_time_is_dialled_once_a_period():
    node = Lone(10, 11)
    effects = node.link_down(10, "unused")
    for _ in range(50):
        node.link_up(10)
        effects += node.link_down(10, "unused")
    assert connects(effects) == [10]
    for _ in range(3):
        assert connects(node.walk()) == [10]
        node.link_up(10)
        assert connects(node.link_down(10, "unused")) == []
    node.link_up(10, outbound=False)
    assert connects(node.walk()) == [], "it is there"


def test_an_originator_is_dialled_twice_a_period_and_topic_at_most():
    node = Lone(10, 11)
    effects = []
    for _ in range(50):
        effects += node.receive(10, StanCollect(20, 1, 0, ()))
        node.link_up(20)
        node.link_down(20, "unused")
    assert connects(effects) == [20, 20]
    assert rejected(node.receive(10, StanCollect(20, 1, 0, ()))) == "too_many_walks"
    assert connects(node.receive(10, StanCollect(20, 2, 0, ()))) == [20], "another topic"
    node.link_down(20, "unreachable")
    node.walk()
    assert connects(node.receive(10, StanCollect(20, 1, 0, ()))) == [20]


# ------------------------------------------------------------------------------------------------- empty views


def test_a_topics_first_subscriber_takes_the_next_ones_into_its_view():
    node = Lone(views=[(1, []), (2, [10])], members=[(1, "1"), (2, MEMBERS)])
    views = node.part("overlay").views
    assert views[1] == ()
    told = node.give(PeerList(Directory([PeerInfo(0, (1,)), PeerInfo(20, (1,)), PeerInfo(21, (1,))])))
    assert len(views[1]) == 1
    assert told == [Connect(views[1][0])]


def test_an_empty_view_has_room_for_the_lightest_node_that_an_answer_brings():
    views = AlignedViews(0, [(1, [])])
    assert views.is_empty(1)
    assert views.is_empty(2)
    assert views.align(1, [5, 6, 7])
    assert views[1] == (min((5, 6, 7), key=lambda peer: weigh(0, peer)),)
    assert not views.is_empty(1)
