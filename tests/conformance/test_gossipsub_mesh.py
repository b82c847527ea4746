"""GossipSub's meshes, by the text of the libp2p specification (pubsub/gossipsub). Each test names its section."""

from collections import Counter

import pytest

from peer.core.contract import Trace
from peer.core.frames import Subscriptions
from peer.protocols.gossipsub.frames import Graft, Prune
from tests.lone_gossipsub import ME, LoneNode


@pytest.mark.parametrize(("profile", "d_lo"), [("spec", 4), ("go", 5), ("js", 4)])
@pytest.mark.parametrize("peers", [3, 4, 5, 6, 20])
def test_a_mesh_below_d_lo_grows_to_d(profile: str, d_lo: int, peers: int):
    """v1.0 Mesh Maintenance: if |mesh| < D_low, select D - |mesh| peers and emit GRAFT. Profiles: D_lo."""
    node = LoneNode(profile=profile)
    node.link(range(peers))
    node.beat()
    assert len(node.mesh()) == min(peers, 6)
    assert node.receivers(Graft) == node.mesh()


@pytest.mark.parametrize(("profile", "grows"), [("spec", False), ("go", True), ("js", False)])
def test_a_mesh_of_d_lo_is_left_alone(profile: str, grows: bool):
    """v1.0 Mesh Maintenance, with 4 peers: D_low is 4 in the specification and js, 5 in go."""
    node = LoneNode(profile=profile)
    node.link(range(4), graft=True)
    node.link(range(10, 20))
    node.beat()
    assert (len(node.mesh()) == 6) == grows
    assert (len(node.mesh()) == 4) != grows


@pytest.mark.parametrize(("peers", "left"), [(12, 12), (13, 6), (40, 6)])
def test_a_mesh_above_d_hi_shrinks_to_d(peers: int, left: int):
    """v1.0 Mesh Maintenance: if |mesh| > D_high, remove |mesh| - D peers and emit PRUNE."""
    node = LoneNode()
    node.link(range(peers), graft=True)
    assert len(node.mesh()) == peers
    node.beat()
    assert len(node.mesh()) == left
    assert node.receivers(Prune) == sorted(set(range(peers)) - set(node.mesh()))


@pytest.mark.parametrize(("profile", "left"), [("spec", 12), ("go", 6), ("js", 12)])
def test_a_mesh_of_d_hi_shrinks_as_the_profile_says(profile: str, left: int):
    """v1.0 Mesh Maintenance says |mesh| > D_high; go-libp2p-pubsub shrinks at D_high too, since v0.13.0."""
    node = LoneNode(profile=profile)
    node.link(range(12), graft=True)
    node.beat()
    assert len(node.mesh()) == left
    node = LoneNode(profile=profile)
    node.link(range(11), graft=True)
    node.beat()
    assert len(node.mesh()) == 11


def test_the_bounds_hold_after_every_heartbeat_whatever_peers_do():
    """v1.0 Mesh Maintenance: D_low <= |mesh| <= D_high wherever there are peers to graft."""
    node = LoneNode(prune_backoff_s=2, backoff_slack_heartbeats=0)
    node.link(range(60))
    for step in range(60):
        for peer in range(step % 17):
            node.graft((step * 7 + peer) % 60)
        for peer in range((step * 5) % 11):
            node.prune((step * 3 + peer) % 60, backoff_s=2)
        node.beat()
        assert 4 <= len(node.mesh()) <= 12


def test_a_graft_is_answered_by_the_same(topic=0):
    """v1.0 Message Processing: on GRAFT the router adds the sender to mesh[topic], if it is subscribed."""
    node = LoneNode()
    node.link(range(3))
    node.graft(2, topic)
    assert node.mesh(topic) == [2]
    assert not node.sent(Prune)
    assert not node.sent(Graft)


def test_a_prune_removes_the_sender():
    """v1.0 Message Processing: on PRUNE(topic) the router removes the sender from mesh[topic]."""
    node = LoneNode()
    node.link(range(3), graft=True)
    node.prune(1)
    assert node.mesh() == [0, 2]


def test_a_graft_for_an_unknown_topic_is_ignored():
    """v1.1 Spam Protection Measures: GRAFT messages for unknown topics are ignored."""
    node = LoneNode()
    node.link(range(3))
    node.graft(1, topic=7)
    assert not node.frames


def test_joining_grafts_up_to_d_peers_at_once():
    """v1.0 Topic Membership: JOIN selects up to D peers of the topic and informs them by GRAFT."""
    node = LoneNode(topics=())
    node.link(range(10), topics=(5,))
    node.link(range(10, 20), topics=(6,))
    node.subscribe(5)
    assert len(node.mesh(5)) == 6
    assert set(node.mesh(5)) <= set(range(10))
    assert node.receivers(Graft) == node.mesh(5)
    assert {topic for _, frame in node.sent(Graft) for topic in frame.topics} == {5}


def test_leaving_prunes_the_mesh_and_forgets_it():
    """v1.0 Topic Membership: LEAVE informs the peers in mesh[topic] by PRUNE and forgets mesh[topic]."""
    node = LoneNode()
    node.link(range(5), graft=True)
    node.unsubscribe(0)
    assert node.receivers(Prune) == list(range(5))
    assert 0 not in node.overlay.peers


def test_subscriptions_go_to_every_peer():
    """v1.0 Topic Membership: announcements are sent to all known peers, whether or not topics are shared."""
    node = LoneNode()
    node.link(range(4), topics=(9,))
    node.subscribe(3)
    assert node.receivers(Subscriptions) == [0, 1, 2, 3]
    assert {frame.topics for _, frame in node.sent(Subscriptions)} == {(0, 3)}


def test_a_peer_that_no_longer_subscribes_leaves_the_mesh():
    """v1.0 Peering State: the mesh has peers of the topic; also where a PRUNE got lost with its link."""
    node = LoneNode()
    node.link(range(5), graft=True)
    node.receive(3, Subscriptions(()))
    node.beat()
    assert 3 not in node.mesh()


def test_a_lost_link_leaves_every_mesh():
    """v1.0 Peering State: meshes hold connected peers."""
    node = LoneNode(topics=(0, 1))
    node.link(range(5), topics=(0, 1), graft=True)
    node.unlink(2)
    assert 2 not in node.mesh(0)
    assert 2 not in node.mesh(1)


def test_controls_to_a_peer_are_coalesced():
    """v1.0 Control Message Piggybacking: control messages of one heartbeat to one peer travel together."""
    node = LoneNode(topics=(0, 1, 2))
    node.link(range(5), topics=(0, 1, 2))
    node.beat()
    assert Counter(node.receivers(Graft)) == dict.fromkeys(range(5), 1)
    assert all(sorted(frame.topics) == [0, 1, 2] for _, frame in node.sent(Graft))


def test_logical_links_are_the_meshes():
    """Ours: what traces call a logical link is a mesh membership, nothing more."""
    node = LoneNode(topics=(0, 1))
    node.link(range(20), topics=(0, 1), graft=True)
    node.beat(3)
    node.unsubscribe(1)
    held: set[tuple[int, int]] = set()
    for effect in node.effects:
        if isinstance(effect, Trace) and effect.event.event in ("graft", "prune"):
            links = {(effect.event.peer, topic) for topic in effect.event.topics}
            assert not (held & links if effect.event.event == "graft" else links - held)
            held ^= links
    assert held == {(peer, 0) for peer in node.mesh(0)}
    assert ME not in node.mesh(0)


# ----------------------------------------------------------------------------------------- outbound mesh quotas


def test_survivors_of_oversubscription_include_d_out_outbound_peers():
    """v1.1 Outbound Mesh Quotas: on oversubscription at least D_out survivors are outbound connections."""
    for seed in range(20):
        node = LoneNode(seed=seed)
        # Outbound peers are accepted beyond D_hi, inbound ones are not: so the inbound come first.
        node.link(range(12), outbound=False, graft=True)
        node.link(range(100, 103), outbound=True, graft=True)
        assert len(node.mesh()) == 15
        node.beat()
        assert len(node.mesh()) == 6
        assert sum(peer >= 100 for peer in node.mesh()) >= 2


def test_a_full_mesh_accepts_outbound_grafts_only():
    """v1.1 Outbound Mesh Quotas: with mesh degree at D_hi or higher, only an outbound peer's GRAFT is accepted."""
    node = LoneNode()
    node.link(range(12), graft=True)
    node.link(50, outbound=False)
    node.graft(50)
    assert 50 not in node.mesh()
    assert node.receivers(Prune) == [50]
    node.link(51, outbound=True)
    node.graft(51)
    assert 51 in node.mesh()


def test_an_inbound_graft_is_accepted_below_d_hi():
    """v1.1 Outbound Mesh Quotas: the restriction begins at D_hi."""
    node = LoneNode()
    node.link(range(11), graft=True)
    node.link(50, outbound=False, graft=True)
    assert 50 in node.mesh()


def test_the_heartbeat_fills_the_outbound_quota():
    """v1.1 Outbound Mesh Quotas: with D_lo peers but too few outbound, the missing outbound ones are grafted."""
    node = LoneNode()
    node.link(range(8), outbound=False, graft=True)
    node.link(range(100, 110), outbound=True)
    node.beat()
    assert len(node.mesh()) == 10
    assert sum(peer >= 100 for peer in node.mesh()) == 2


@pytest.mark.parametrize("d_out", [4, 5])
def test_a_quota_that_the_specification_forbids_is_refused(d_out: int):
    """v1.1 Outbound Mesh Quotas: D_out must be set below D_lo and at most D/2."""
    with pytest.raises(ValueError, match="d_out"):
        LoneNode(d_out=d_out)


# --------------------------------------------------------------------------------------------------- discovery


def test_a_thin_mesh_looks_for_subscribers():
    """v1.0 Ambient Peer Discovery: the environment connects; with discovery by topic, to the topic's subscribers."""
    node = LoneNode(known={peer: ((0,) if peer < 10 else (1,)) for peer in range(30)})
    node.beat()
    assert len(node.connects()) == 6
    assert set(node.connects()) <= set(range(10))
    node.beat(5)
    assert len(node.connects()) == 6


def test_random_discovery_opens_as_many_links_as_it_is_told():
    """v1.0 Ambient Peer Discovery: nothing but ambient connections."""
    node = LoneNode(known=dict.fromkeys(range(30), (0,)), connections=8, discovery="random")
    node.beat(3)
    assert len(node.connects()) == 8
