"""What one Scribe node does when its degree binds, when others misbehave, and with messages on several topics."""

from typing import Any

import pytest

from peer.core.contract import (
    Disconnect,
    Effect,
    NodeId,
    Subscribe,
    Unsubscribe,
    message_id,
)
from peer.core.frames import UNLIMITED_TTL, Data, Frame, Subscriptions
from peer.protocols.registry import Composition, compose
from peer.protocols.scribe.forest import Forest
from peer.protocols.scribe.frames import ScribeHeartbeat, ScribeJoin, ScribeLeave, ScribeRedirect
from peer.protocols.scribe.overlay import MOST_DEPTH
from peer.testing import Solo, connects, deliveries, sends, traces

SECOND_NS = 1_000_000_000


class Lone(Solo):
    """Node 0, driven by hand; where it knows no others it is the root of all groups."""

    def __init__(self, topics: tuple[int, ...] = (), others: int = 0, **parameters: object) -> None:
        part: dict[str, Any] = {"name": "scribe", **parameters}
        super().__init__(compose(0, 1, topics, Composition(part, part, interests="announced-only")))
        self.met = self.start(dict.fromkeys(range(others + 1)))

    @property
    def forest(self) -> Forest:
        return self.part("overlay").forest

    def hear(self, peer: NodeId, frame: Frame) -> list[tuple[NodeId, Frame]]:
        """A frame comes from a peer, which is linked before.

        Returns:
            The frames that the node answers, to whomever.
        """
        if peer not in self.node.state.neighbours:
            self.link_up(peer, outbound=False)
        return sent(self.receive(peer, frame))

    def adopt(self, group: int, *peers: NodeId) -> None:
        for peer in peers:
            assert self.hear(peer, ScribeJoin((group,))) == [(peer, ScribeHeartbeat((group,), 1))]


def sent(effects: list[Effect]) -> list[tuple[NodeId, Frame]]:
    return [(peer, frame) for peer, frame in sends(effects) if not isinstance(frame, Subscriptions)]


def test_a_full_node_sends_the_latest_child_of_its_largest_group_down_to_the_others():
    lone = Lone(children=4)
    lone.adopt(7, 1, 2)
    lone.adopt(8, 3, 4)
    lone.adopt(8, 1)
    answers = lone.hear(5, ScribeJoin((9,)))
    assert answers == [(4, ScribeRedirect(8, (3, 1))), (5, ScribeHeartbeat((9,), 1))]
    assert set(lone.forest.children) == {1, 2, 3, 5}


def test_the_new_child_of_the_largest_group_goes_down_itself():
    lone = Lone(children=3)
    lone.adopt(7, 1, 2)
    lone.adopt(8, 3)
    assert lone.hear(4, ScribeJoin((7,))) == [(4, ScribeRedirect(7, (1, 2)))]
    assert set(lone.forest.children) == {1, 2, 3}


def test_where_no_child_can_be_spared_the_new_one_is_refused():
    lone = Lone(children=2)
    lone.adopt(7, 1)
    lone.adopt(8, 2)
    assert lone.hear(3, ScribeJoin((9,))) == [(3, ScribeRedirect(9, ()))]
    assert 9 not in lone.forest.trees
    lone.adopt(9, 1)


def test_a_child_sent_down_asks_one_of_the_siblings_that_it_knows():
    lone = Lone((5,), others=20)
    [parent] = connects(lone.met)
    assert sent(lone.link_up(parent)) == [(parent, ScribeJoin((5,)))]
    sibling = next(node for node in range(1, 20) if node != parent)
    assert lone.hear(sibling, ScribeRedirect(5, (3,))) == [], "it is no parent, and cannot send anybody down"
    effects = lone.receive(parent, ScribeRedirect(5, (99, 0, sibling)))
    assert sent(effects) == [(sibling, ScribeJoin((5,)))]
    assert Disconnect(parent, "unused") in effects
    assert lone.forest.trees[5].parent == sibling


def test_a_refused_node_looks_again_after_growing_pauses_and_passes_entries_over():
    lone = Lone((5,), others=40)
    parents = [lone.forest.trees[5].parent]
    for pause_s in (1, 2, 4):
        parent = parents[-1]
        lone.hear(parent, ScribeRedirect(5, ()))
        assert lone.forest.trees[5].parent is None
        lone.now_ns += pause_s * SECOND_NS - 1
        lone.fire("overlay/retry")
        assert lone.forest.trees[5].parent is None
        lone.now_ns += 1
        lone.fire("overlay/retry")
        parents.append(lone.forest.trees[5].parent)
    assert None not in parents
    assert len(set(parents)) > 1


def test_a_node_opens_no_more_links_than_its_degree_and_shares_them():
    topics = tuple(range(60))
    lone = Lone(topics, others=200, degree=3)
    assert len(set(connects(lone.met))) == 3 == len(lone.forest.parents)
    placed = [topic for topic in topics if lone.forest.trees[topic].parent is not None]
    assert len(placed) > 30
    ample = Lone(topics, others=200, degree=60)
    assert all(tree.parent is not None or tree.is_root for tree in ample.forest.trees.values())
    assert len(ample.forest.parents) > 3


def test_a_forwarder_that_finds_no_parent_sends_its_children_away():
    lone = Lone((5,), others=20)
    [parent] = connects(lone.met)
    lone.link_up(parent)
    other = next(node for node in range(1, 20) if node != parent)
    lone.hear(other, ScribeJoin((5,)))
    assert lone.hear(parent, ScribeRedirect(5, ())) == [(other, ScribeRedirect(5, ()))]


def test_who_hears_no_heartbeat_leaves_and_a_lost_parent_is_replaced():
    lone = Lone((5,), others=20, heartbeat_s=2.0, heartbeats_missed=3)
    [parent] = connects(lone.met)
    lone.link_up(parent)
    lone.now_ns = 5 * SECOND_NS
    lone.hear(parent, ScribeHeartbeat((5,), 2))
    lone.now_ns = 11 * SECOND_NS
    assert (parent, ScribeLeave((5,))) not in sent(lone.fire("overlay/heartbeat"))
    lone.hear(parent, ScribeHeartbeat((5,), MOST_DEPTH + 1))
    lone.now_ns += 1
    assert (parent, ScribeLeave((5,))) in sent(lone.fire("overlay/heartbeat"))
    second = lone.forest.trees[5].parent
    lone.link_down(second, "closed", retrying=True)
    assert lone.forest.trees[5].parent not in (None, second)


def test_a_heartbeat_from_a_stranger_is_answered_with_a_leave():
    lone = Lone((5,), others=20)
    stranger = next(node for node in range(1, 20) if node != lone.forest.trees[5].parent)
    assert lone.hear(stranger, ScribeHeartbeat((5, 6), 1)) == [(stranger, ScribeLeave((5, 6)))]
    assert lone.forest.trees[5].depth is None


def test_two_nodes_are_never_each_others_parents():
    lone = Lone((5,), others=20)
    [parent] = connects(lone.met)
    lone.link_up(parent)
    assert lone.hear(parent, ScribeJoin((5,))) == [(parent, ScribeRedirect(5, ()))]


def test_heartbeats_go_down_once_a_link_and_a_node_without_children_or_interest_leaves():
    lone = Lone((5,), others=20)
    [parent] = connects(lone.met)
    lone.link_up(parent)
    child = next(node for node in range(1, 20) if node != parent)
    lone.hear(child, ScribeJoin((5,)))
    assert lone.hear(parent, ScribeHeartbeat((5,), 3)) == [(child, ScribeHeartbeat((5,), 4))]
    assert sent(lone.give(Unsubscribe(5))) == []
    assert lone.hear(child, ScribeLeave((5,))) == [(parent, ScribeLeave((5,)))]
    assert lone.forest.trees == {}
    assert lone.forest.parents == lone.forest.children == {}


@pytest.mark.parametrize("grouping", ["topic", "random"])
def test_a_copy_goes_up_or_down_by_where_it_comes_from(grouping: str):
    lone = Lone((5,), others=20, grouping=grouping, groups=1)
    group = 5 if grouping == "topic" else 0
    parent = lone.forest.trees[group].parent
    lone.link_up(parent)
    child, other = [node for node in range(1, 4) if node != parent][:2]
    for node in (child, other):
        lone.hear(node, ScribeJoin((group,)))
    copy, identifier = Data(message_id(9, 0), (5,), 1, UNLIMITED_TTL, b"x"), message_id(9, 0)
    onward = Data(identifier, (5,), 2, UNLIMITED_TTL, b"x")
    assert lone.hear(child, copy) == [(parent, onward)]
    assert lone.hear(other, copy) == [], "it has gone up"
    assert lone.hear(parent, copy) == [(child, onward), (other, onward)]
    assert lone.hear(parent, copy) == []


def test_a_message_on_several_topics_is_delivered_once_also_by_who_forwards_one_of_them():
    lone = Lone((6,))
    lone.adopt(5, 1)
    lone.adopt(6, 1)
    outcome = []
    for topics in ((5,), (6,), (5, 6)):
        effects = lone.receive(1, Data(message_id(9, 0), topics, 1, UNLIMITED_TTL, b"x"))
        outcome.append(([event.event for event in traces(effects)], len(deliveries(effects))))
    assert outcome == [(["relay"], 0), (["deliver"], 1), (["duplicate"], 0)]


def test_logical_links_are_the_edges_of_a_topics_tree_or_what_a_random_groups_members_share():
    lone = Lone((6,))
    lone.adopt(5, 1)
    assert lone.node.state.neighbours[1].logical == (5,)
    lone = Lone((5, 6, 7), grouping="random", groups=1)
    lone.adopt(0, 1)
    assert lone.node.state.neighbours[1].logical == ()
    lone.hear(1, Subscriptions((4, 6, 7)))
    assert lone.node.state.neighbours[1].logical == (6, 7)
    lone.hear(1, ScribeLeave((0,)))
    assert lone.node.state.neighbours[1].logical == ()


def test_subscribing_joins_the_topics_group_alone():
    lone = Lone((1,), others=20)
    lone.give(Subscribe(2))
    assert set(lone.forest.trees) == {1, 2}
    random = Lone((1,), others=20, grouping="random")
    random.give(Subscribe(2))
    assert len(random.forest.trees) == 1
