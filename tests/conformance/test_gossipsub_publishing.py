"""Messages, publishing and fanout, by the text of the libp2p specification. Each test names its section."""

import pytest

from peer.core.contract import message_id
from peer.core.frames import Data
from peer.protocols.gossipsub.frames import Graft, Ihave
from tests.lone_gossipsub import ME, LoneNode

SCORED = {"scoring": True}
BY_MESH = {"flood_publish": False}


def test_a_new_message_is_forwarded_to_the_mesh_but_not_back():
    """v1.0 Message Processing: forward to every peer in mesh[topic]; floodsub: never back to where it came from."""
    node = LoneNode()
    node.link(range(5), graft=True)
    node.link(range(20, 30))
    node.message(3, 1)
    assert node.receivers(Data) == [0, 1, 2, 4]
    assert len(node.delivered()) == 1


def test_a_message_is_not_sent_to_its_publisher():
    """v1.0 floodsub: it also never forwards a message back to the source."""
    node = LoneNode()
    node.link(range(5), graft=True)
    node.message(3, 1, publisher=4)
    assert node.receivers(Data) == [0, 1, 2]


def test_a_seen_message_is_neither_delivered_nor_forwarded():
    """v1.0 Message Cache: check the seen cache before forwarding messages."""
    node = LoneNode()
    node.link(range(5), graft=True)
    node.message(3, 1)
    node.forget()
    node.message(2, 1)
    assert not node.frames
    assert not node.delivered()


def test_an_own_message_that_comes_back_is_rejected():
    """v1.0 Message Processing: a message that the router published itself is not forwarded further."""
    node = LoneNode()
    node.link(range(5), graft=True)
    node.message(3, 1, publisher=ME)
    assert not node.frames
    assert not node.delivered()
    assert node.rejects() == ["own_message"]


def test_a_message_without_subscription_is_ignored():
    """v1.0 Peering State: mesh is a map of subscribed topics; without one there is nobody to forward to."""
    node = LoneNode()
    node.link(range(5), topics=(0, 7), graft=True)
    node.message(3, 1, topics=(7,))
    assert not node.frames
    assert not node.delivered()


def test_a_message_on_several_topics_crosses_a_link_once():
    """Ours (v1.0 had several topic ids a message): the union of the meshes."""
    node = LoneNode(topics=(0, 1))
    node.link((0, 1, 2), topics=(0, 1), graft=True)
    node.link((3,), topics=(1,), graft=True)
    node.message(0, 1, topics=(0, 1))
    assert node.receivers(Data) == [1, 2, 3]


# ---------------------------------------------------------------------------------------------------- publishing


@pytest.mark.parametrize(("profile", "floods"), [("spec", True), ("go", False), ("js", True)])
def test_own_messages_are_flooded_as_the_profile_says(profile: str, floods: bool):
    """v1.1 Flood Publishing: to all connected peers of the topic. FloodPublish is true in the spec, false in go."""
    node = LoneNode(profile=profile)
    node.link(range(6), graft=True)
    node.link(range(20, 30))
    node.link(range(40, 50), topics=(7,))
    node.publish(0)
    assert node.receivers(Data) == [*range(6), *(range(20, 30) if floods else [])]


def test_with_flood_publishing_the_messages_of_others_still_go_by_the_mesh():
    """v1.1 Flood Publishing: the mesh is used when propagating messages from other peers."""
    node = LoneNode(flood_publish=True)
    node.link(range(6), graft=True)
    node.link(range(20, 30))
    node.message(0, 1)
    assert node.receivers(Data) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("flood", [True, False])
def test_flooding_regardless_of_the_subscription_and_without_fanout(flood: bool):
    """v1.1 Flood Publishing: applies regardless of a subscription; there is no point in a fanout map then."""
    node = LoneNode(topics=(), flood_publish=flood)
    node.link(range(20))
    node.publish(0)
    assert len(node.receivers(Data)) == (20 if flood else 6)
    assert bool(node.overlay.fanout.peers) != flood
    node.forget()
    node.beat()
    assert bool(node.sent(Ihave)) != flood


def test_own_messages_avoid_peers_below_the_publish_threshold():
    """v1.1 Score Thresholds, publishThreshold: self published messages are not propagated towards this peer."""
    for flood in (True, False):
        node = LoneNode(topics=(), flood_publish=flood, **SCORED)
        node.link(range(4))
        node.overlay.scores.penalise(1, 3)
        node.overlay.scores.penalise(2, 2)
        assert (node.score(1), node.score(2)) == (-90, -40)
        node.publish(0)
        assert node.receivers(Data) == [0, 2, 3]


def test_own_messages_are_delivered_at_home():
    """v1.0 Message Processing: messages originate at the application layer; a subscriber gets its own."""
    node = LoneNode()
    node.link(range(3), graft=True)
    identifier = node.publish(0)
    assert [message.message_id for message in node.delivered()] == [identifier]
    assert identifier == message_id(ME, 1)


# -------------------------------------------------------------------------------------------------------- fanout


def test_fanout_has_up_to_d_peers_and_is_kept():
    """v1.0 Message Processing: without subscription, choose up to D peers into fanout[topic] and send to each."""
    node = LoneNode(topics=(), **BY_MESH)
    node.link(range(20))
    node.publish(0)
    first = node.receivers(Data)
    assert len(first) == 6
    node.forget()
    node.publish(0)
    assert node.receivers(Data) == first


@pytest.mark.parametrize(("ttl", "seconds"), [(60.0, 60), (5.0, 5)])
def test_fanout_expires(ttl: float, seconds: int):
    """v1.0 Fanout Maintenance: if time since last published > fanout_ttl, remove topic from fanout."""
    node = LoneNode(topics=(), fanout_ttl_s=ttl, **BY_MESH)
    node.link(range(20))
    node.publish(0)
    node.beat(2)
    node.publish(0)
    node.beat(seconds)
    assert 0 in node.overlay.fanout.peers
    node.beat()
    assert 0 not in node.overlay.fanout.peers


def test_fanout_is_refilled_to_d():
    """v1.0 Fanout Maintenance: else if |fanout[topic]| < D, select D - |fanout[topic]| peers."""
    node = LoneNode(topics=(), **BY_MESH)
    node.link(range(20))
    node.publish(0)
    for peer in node.receivers(Data)[:4]:
        node.unlink(peer)
    assert len(node.overlay.fanout.peers[0]) == 2
    node.beat()
    assert len(node.overlay.fanout.peers[0]) == 6


def test_fanout_loses_peers_below_the_publish_threshold():
    """v1.1 Score Thresholds, publishThreshold, for the fanout map."""
    node = LoneNode(topics=(), **BY_MESH, **SCORED)
    node.link(range(8))
    node.publish(0)
    bad = node.receivers(Data)[0]
    node.overlay.scores.penalise(bad, 3)
    node.beat()
    assert bad not in node.overlay.fanout.peers[0]
    assert len(node.overlay.fanout.peers[0]) == 6


def test_gossip_is_emitted_for_fanout_topics_too():
    """v1.0 Gossip Emission: for each topic in mesh+fanout; to peers not in fanout[topic]."""
    node = LoneNode(topics=(), **BY_MESH)
    node.link(range(20))
    node.publish(0)
    eager = node.receivers(Data)
    node.beat()
    assert len(node.receivers(Ihave)) == 6
    assert not set(node.receivers(Ihave)) & set(eager)


def test_joining_takes_the_fanouts_peers_first():
    """v1.0 Topic Membership: JOIN moves the peers from fanout[topic] to mesh[topic] and informs them by GRAFT."""
    for seed in range(10):
        node = LoneNode(topics=(), seed=seed, **BY_MESH)
        node.link(range(20))
        node.publish(0)
        before = node.receivers(Data)
        node.subscribe(0)
        assert node.mesh() == before == node.receivers(Graft)
        assert not node.overlay.fanout.peers


def test_joining_fills_up_a_small_fanout():
    """v1.0 Topic Membership: if fanout[topic] contains fewer than D peers, fill with others of the topic."""
    node = LoneNode(topics=(), **BY_MESH)
    node.link(range(3))
    node.publish(0)
    node.link(range(10, 20))
    node.subscribe(0)
    assert len(node.mesh()) == 6
    assert {0, 1, 2} <= set(node.mesh())


def test_joining_leaves_out_fanout_peers_with_a_negative_score():
    """v1.1 Score Thresholds, 0: peers below it are ignored when looking for peers to graft."""
    node = LoneNode(topics=(), **BY_MESH, **SCORED)
    node.link(range(6))
    node.publish(0)
    node.overlay.scores.penalise(2)
    node.subscribe(0)
    assert node.mesh() == [0, 1, 3, 4, 5]
