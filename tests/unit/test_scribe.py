"""What one Scribe node does when its degree binds, when others misbehave, and with messages on several topics."""

from __future__ import annotations

from typing import Any

import pytest

from peer.core.contract import (
    Connect,
    Deliver,
    Directory,
    Disconnect,
    Effect,
    FrameReceived,
    LinkDown,
    LinkUp,
    NodeId,
    PeerInfo,
    PeerList,
    Send,
    Started,
    Subscribe,
    TimerFired,
    Trace,
    Unsubscribe,
    message_id,
)
from peer.core.frames import UNLIMITED_TTL, Data, Frame, Subscriptions
from peer.protocols.registry import Composition, compose
from peer.protocols.scribe.forest import Forest
from peer.protocols.scribe.frames import ScribeHeartbeat, ScribeJoin, ScribeLeave, ScribeRedirect
from peer.protocols.scribe.overlay import MOST_DEPTH

SECOND_NS = 1_000_000_000


class Desk:
    """Node 0, driven by hand; where it knows no others it is the root of all groups."""

    def __init__(self, topics: tuple[int, ...] = (), others: int = 0, **parameters: object) -> None:
        part: dict[str, Any] = {"name": "scribe", **parameters}
        self.core = compose(0, 1, topics, Composition(part, part, interests="announced-only"))
        self.now_ns = 0
        self.core.handle(0, Started())
        self.met = self.core.handle(0, PeerList(Directory(PeerInfo(node) for node in range(others + 1))))

    @property
    def forest(self) -> Forest:
        return self.core._parts["overlay"].forest

    def give(self, event: Any) -> list[Effect]:
        return self.core.handle(self.now_ns, event)

    def hear(self, peer: NodeId, frame: Frame) -> list[tuple[NodeId, Frame]]:
        """A frame comes from a peer, which is linked before.

        Returns:
            The frames that the node answers, to whomever.
        """
        if peer not in self.core.state.neighbours:
            self.give(LinkUp(peer, False))
        return sent(self.give(FrameReceived(peer, frame)))

    def adopt(self, group: int, *peers: NodeId) -> None:
        for peer in peers:
            assert self.hear(peer, ScribeJoin((group,))) == [(peer, ScribeHeartbeat((group,), 1))]


def sent(effects: list[Effect]) -> list[tuple[NodeId, Frame]]:
    return [
        (effect.peer, effect.frame)
        for effect in effects
        if isinstance(effect, Send) and not isinstance(effect.frame, Subscriptions)
    ]


def asked(effects: list[Effect]) -> list[NodeId]:
    return [effect.peer for effect in effects if isinstance(effect, Connect)]


def test_a_full_node_sends_the_latest_child_of_its_largest_group_down_to_the_others():
    desk = Desk(children=4)
    desk.adopt(7, 1, 2)
    desk.adopt(8, 3, 4)
    desk.adopt(8, 1)
    answers = desk.hear(5, ScribeJoin((9,)))
    assert answers == [(4, ScribeRedirect(8, (3, 1))), (5, ScribeHeartbeat((9,), 1))]
    assert set(desk.forest.children) == {1, 2, 3, 5}


def test_the_new_child_of_the_largest_group_goes_down_itself():
    desk = Desk(children=3)
    desk.adopt(7, 1, 2)
    desk.adopt(8, 3)
    assert desk.hear(4, ScribeJoin((7,))) == [(4, ScribeRedirect(7, (1, 2)))]
    assert set(desk.forest.children) == {1, 2, 3}


def test_where_no_child_can_be_spared_the_new_one_is_refused():
    desk = Desk(children=2)
    desk.adopt(7, 1)
    desk.adopt(8, 2)
    assert desk.hear(3, ScribeJoin((9,))) == [(3, ScribeRedirect(9, ()))]
    assert 9 not in desk.forest.trees
    desk.adopt(9, 1)


def test_a_child_sent_down_asks_one_of_the_siblings_that_it_knows():
    desk = Desk((5,), others=20)
    [parent] = asked(desk.met)
    assert sent(desk.give(LinkUp(parent, True))) == [(parent, ScribeJoin((5,)))]
    sibling = next(node for node in range(1, 20) if node != parent)
    assert desk.hear(sibling, ScribeRedirect(5, (3,))) == [], "it is no parent, and cannot send anybody down"
    effects = desk.give(FrameReceived(parent, ScribeRedirect(5, (99, 0, sibling))))
    assert sent(effects) == [(sibling, ScribeJoin((5,)))]
    assert Disconnect(parent, "unused") in effects
    assert desk.forest.trees[5].parent == sibling


def test_a_refused_node_looks_again_after_growing_pauses_and_passes_entries_over():
    desk = Desk((5,), others=40)
    parents = [desk.forest.trees[5].parent]
    for pause_s in (1, 2, 4):
        parent = parents[-1]
        desk.hear(parent, ScribeRedirect(5, ()))
        assert desk.forest.trees[5].parent is None
        desk.now_ns += pause_s * SECOND_NS - 1
        desk.give(TimerFired("overlay/retry"))
        assert desk.forest.trees[5].parent is None
        desk.now_ns += 1
        desk.give(TimerFired("overlay/retry"))
        parents.append(desk.forest.trees[5].parent)
    assert None not in parents
    assert len(set(parents)) > 1


def test_a_node_opens_no_more_links_than_its_degree_and_shares_them():
    topics = tuple(range(60))
    desk = Desk(topics, others=200, degree=3)
    assert len(set(asked(desk.met))) == 3 == len(desk.forest.parents)
    placed = [topic for topic in topics if desk.forest.trees[topic].parent is not None]
    assert len(placed) > 30
    ample = Desk(topics, others=200, degree=60)
    assert all(tree.parent is not None or tree.is_root for tree in ample.forest.trees.values())
    assert len(ample.forest.parents) > 3


def test_a_forwarder_that_finds_no_parent_sends_its_children_away():
    desk = Desk((5,), others=20)
    [parent] = asked(desk.met)
    desk.give(LinkUp(parent, True))
    other = next(node for node in range(1, 20) if node != parent)
    desk.hear(other, ScribeJoin((5,)))
    assert desk.hear(parent, ScribeRedirect(5, ())) == [(other, ScribeRedirect(5, ()))]


def test_who_hears_no_heartbeat_leaves_and_a_lost_parent_is_replaced():
    desk = Desk((5,), others=20, heartbeat_s=2.0, heartbeats_missed=3)
    [parent] = asked(desk.met)
    desk.give(LinkUp(parent, True))
    desk.now_ns = 5 * SECOND_NS
    desk.hear(parent, ScribeHeartbeat((5,), 2))
    desk.now_ns = 11 * SECOND_NS
    assert (parent, ScribeLeave((5,))) not in sent(desk.give(TimerFired("overlay/heartbeat")))
    desk.hear(parent, ScribeHeartbeat((5,), MOST_DEPTH + 1))
    desk.now_ns += 1
    assert (parent, ScribeLeave((5,))) in sent(desk.give(TimerFired("overlay/heartbeat")))
    second = desk.forest.trees[5].parent
    desk.give(LinkDown(second, "closed", True))
    assert desk.forest.trees[5].parent not in (None, second)


def test_a_heartbeat_from_a_stranger_is_answered_with_a_leave():
    desk = Desk((5,), others=20)
    stranger = next(node for node in range(1, 20) if node != desk.forest.trees[5].parent)
    assert desk.hear(stranger, ScribeHeartbeat((5, 6), 1)) == [(stranger, ScribeLeave((5, 6)))]
    assert desk.forest.trees[5].depth is None


def test_two_nodes_are_never_each_others_parents():
    desk = Desk((5,), others=20)
    [parent] = asked(desk.met)
    desk.give(LinkUp(parent, True))
    assert desk.hear(parent, ScribeJoin((5,))) == [(parent, ScribeRedirect(5, ()))]


def test_heartbeats_go_down_once_a_link_and_a_node_without_children_or_interest_leaves():
    desk = Desk((5,), others=20)
    [parent] = asked(desk.met)
    desk.give(LinkUp(parent, True))
    child = next(node for node in range(1, 20) if node != parent)
    desk.hear(child, ScribeJoin((5,)))
    assert desk.hear(parent, ScribeHeartbeat((5,), 3)) == [(child, ScribeHeartbeat((5,), 4))]
    assert sent(desk.give(Unsubscribe(5))) == []
    assert desk.hear(child, ScribeLeave((5,))) == [(parent, ScribeLeave((5,)))]
    assert desk.forest.trees == {}
    assert desk.forest.parents == desk.forest.children == {}


@pytest.mark.parametrize("grouping", ["topic", "random"])
def test_a_copy_goes_up_or_down_by_where_it_comes_from(grouping: str):
    desk = Desk((5,), others=20, grouping=grouping, groups=1)
    group = 5 if grouping == "topic" else 0
    parent = desk.forest.trees[group].parent
    desk.give(LinkUp(parent, True))
    child, other = [node for node in range(1, 4) if node != parent][:2]
    for node in (child, other):
        desk.hear(node, ScribeJoin((group,)))
    copy, identifier = Data(message_id(9, 0), (5,), 1, UNLIMITED_TTL, b"x"), message_id(9, 0)
    onward = Data(identifier, (5,), 2, UNLIMITED_TTL, b"x")
    assert desk.hear(child, copy) == [(parent, onward)]
    assert desk.hear(other, copy) == [], "it has gone up"
    assert desk.hear(parent, copy) == [(child, onward), (other, onward)]
    assert desk.hear(parent, copy) == []


def test_a_message_on_several_topics_is_delivered_once_also_by_who_forwards_one_of_them():
    desk = Desk((6,))
    desk.adopt(5, 1)
    desk.adopt(6, 1)
    outcome = []
    for topics in ((5,), (6,), (5, 6)):
        effects = desk.give(FrameReceived(1, Data(message_id(9, 0), topics, 1, UNLIMITED_TTL, b"x")))
        traced = [effect.event.event for effect in effects if isinstance(effect, Trace)]
        outcome.append((traced, sum(isinstance(effect, Deliver) for effect in effects)))
    assert outcome == [(["relay"], 0), (["deliver"], 1), (["duplicate"], 0)]


def test_logical_links_are_the_edges_of_a_topics_tree_or_what_a_random_groups_members_share():
    desk = Desk((6,))
    desk.adopt(5, 1)
    assert desk.core.state.neighbours[1].logical == (5,)
    desk = Desk((5, 6, 7), grouping="random", groups=1)
    desk.adopt(0, 1)
    assert desk.core.state.neighbours[1].logical == ()
    desk.hear(1, Subscriptions((4, 6, 7)))
    assert desk.core.state.neighbours[1].logical == (6, 7)
    desk.hear(1, ScribeLeave((0,)))
    assert desk.core.state.neighbours[1].logical == ()


def test_subscribing_joins_the_topics_group_alone():
    desk = Desk((1,), others=20)
    desk.give(Subscribe(2))
    assert set(desk.forest.trees) == {1, 2}
    random = Desk((1,), others=20, grouping="random")
    random.give(Subscribe(2))
    assert len(random.forest.trees) == 1
