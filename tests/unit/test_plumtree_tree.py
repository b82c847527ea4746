"""Plumtree in one node: eager and lazy links, announcements, requests; and what the protocol says of itself."""

import pytest

from peer.core.contract import (
    MessageId,
    NodeId,
    SetTimer,
    message_id,
)
from peer.core.frames import UNLIMITED_TTL, Data, Frame
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
)
from peer.protocols.plumtree.overlay import Hyparview
from peer.protocols.plumtree.tree import MOST_ANNOUNCED, Tree
from peer.protocols.registry import compose
from peer.testing import Solo, sends
from tests.lone_plumtree import SECOND_NS, Lone, composition


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
