"""Backoffs and peer exchange, by the text of the libp2p specification. Each test names its section."""

import pytest

from peer.protocols.gossipsub.frames import Graft, Prune, Pruned
from peer.protocols.gossipsub.parameters import GossipsubParameters
from tests.lone_gossipsub import ME, LoneNode

SCORED = {"scoring": True}
PX = {"peer_exchange": True}


def pruned_to(node: LoneNode, peer: int) -> Pruned:
    """What the node's last PRUNE to a peer says."""
    frame = [frame for receiver, frame in node.sent(Prune) if receiver == peer][-1]
    return frame.pruned[-1]


@pytest.mark.parametrize(("profile", "beats"), [("spec", 62), ("go", 75), ("js", 75)])
def test_a_pruned_node_waits_for_the_backoff_plus_slack(profile: str, beats: int):
    """v1.1 PRUNE Backoff: the peer waits the full backoff plus some slack before it grafts again.

    A backoff of 60 s ends at heartbeat 60. The specification's profile grafts at the first heartbeat after a slack of
    one; go and js clear backoffs at every 15th heartbeat only, go with a slack of two.
    """
    node = LoneNode(profile=profile)
    node.link(0)
    node.prune(0, backoff_s=60)
    grafted = next(beat for beat in range(1, 200) if (node.beat(), node.sent(Graft))[1])
    assert grafted == beats


def test_the_backoff_is_the_one_that_the_pruning_peer_says():
    """v1.1 PRUNE Backoff: the pruning peer includes the backoff period in the PRUNE message."""
    node = LoneNode()
    node.link(0)
    node.prune(0, backoff_s=5)
    node.beat(6)
    assert not node.sent(Graft)
    node.beat()
    assert node.receivers(Graft) == [0]


def test_without_a_period_the_backoff_is_the_own_one():
    """v1.1 Overview of New Parameters: PruneBackoff is 1 minute; v1.0 peers do not send one."""
    node = LoneNode()
    node.link(0)
    node.prune(0, backoff_s=0)
    node.beat(61)
    assert not node.sent(Graft)
    node.beat()
    assert node.receivers(Graft) == [0]


def test_a_later_shorter_backoff_does_not_shorten_an_earlier_one():
    """v1.1 PRUNE Backoff: neither side regrafts within the backoff."""
    node = LoneNode()
    node.link(0)
    node.prune(0, backoff_s=30)
    node.prune(0, backoff_s=2)
    node.beat(31)
    assert not node.sent(Graft)


@pytest.mark.parametrize(("seconds", "accepted"), [(1, False), (59.9, False), (60, True)])
def test_a_graft_within_the_backoff_is_pruned(seconds: float, accepted: bool):
    """v1.1 PRUNE Backoff: both will immediately prune a GRAFT within the backoff period."""
    node = LoneNode()
    node.link(range(13), graft=True)
    node.beat()
    victim = node.receivers(Prune)[0]
    assert pruned_to(node, victim).backoff_ms == 60_000
    node.forget()
    node.wait(seconds)
    node.graft(victim)
    assert (victim in node.mesh()) == accepted
    assert (node.receivers(Prune) == [victim]) != accepted


def test_a_graft_within_the_backoff_extends_it():
    """v1.1 PRUNE Backoff: ... prune a GRAFT within the backoff period and extend it."""
    node = LoneNode()
    node.link(range(13), graft=True)
    node.beat()
    victim = node.receivers(Prune)[0]
    node.wait(50)
    node.graft(victim)
    node.wait(50)
    node.graft(victim)
    assert victim not in node.mesh()
    node.wait(60)
    node.graft(victim)
    assert victim in node.mesh()


def test_backoffs_outlive_the_link():
    """v1.1 PRUNE Backoff: reconnecting is no way round it."""
    node = LoneNode()
    node.link(range(5), graft=True)
    node.prune(0)
    node.unlink(0)
    node.link(0)
    node.graft(0)
    assert 0 not in node.mesh()


def test_backoffs_are_by_topic():
    """v1.1 PRUNE Backoff: it is about a topic's mesh."""
    node = LoneNode(topics=(0, 1))
    node.link(range(2), topics=(0, 1), graft=True)
    node.prune(0, topic=0)
    node.graft(0, topic=1)
    assert node.mesh(0) == [1]
    assert node.mesh(1) == [0, 1]


def test_leaving_says_the_unsubscribe_backoff_and_keeps_it_oneself():
    """v1.1 PRUNE Backoff, with the implementations' unsubscribe backoff of 10 s, so that joining again is quick."""
    node = LoneNode()
    node.link(range(3), graft=True)
    node.unsubscribe(0)
    assert {pruned_to(node, peer).backoff_ms for peer in range(3)} == {10_000}
    node.subscribe(0)
    assert node.mesh() == []
    node.beat(11)
    assert node.mesh() == []
    node.beat()
    assert node.mesh() == [0, 1, 2]


@pytest.mark.parametrize(("seconds", "penalty"), [(5, 2), (15, 1)])
def test_a_graft_within_the_backoff_is_penalised(seconds: float, penalty: int):
    """v1.1 PRUNE Backoff: who regrafts too early may be penalised through P7; twice if at once (graft flood)."""
    node = LoneNode(**SCORED)
    node.link(range(5), graft=True)
    node.prune(0)
    node.wait(seconds)
    node.graft(0)
    assert node.score(0) == -10 * penalty**2


# ------------------------------------------------------------------------------------------------- peer exchange


def test_oversubscription_names_other_peers():
    """v1.1 PRUNE Backoff and Peer Exchange: on oversubscription the pruning peer may provide other peers."""
    node = LoneNode(**PX)
    node.link(range(30), graft=True)
    node.link(range(50, 60), topics=(9,))
    node.beat()
    for victim in node.receivers(Prune):
        named = pruned_to(node, victim).peers
        assert len(set(named)) == len(named) == 16
        assert set(named) <= set(range(30)) - {victim}


def test_who_leaves_names_nobody():
    """v1.1 Peer Exchange: it kicks in when pruning a mesh because of oversubscription."""
    node = LoneNode(**PX)
    node.link(range(5), graft=True)
    node.unsubscribe(0)
    assert all(pruned_to(node, peer).peers == () for peer in range(5))


def test_the_peers_named_can_form_a_full_mesh():
    """v1.1 Peer Exchange: the recommended number of peers to exchange is larger than D_hi."""
    parameters = GossipsubParameters()
    assert parameters.prune_peers > parameters.d_hi


def test_peer_exchange_is_off_by_default():
    """v1.1 Peer Exchange: the pruning peer *may* provide peers."""
    node = LoneNode()
    node.link(range(30), graft=True)
    node.beat()
    assert not any(pruned.peers for _, frame in node.sent(Prune) for pruned in frame.pruned)


def test_no_peers_are_named_to_those_with_a_negative_score():
    """v1.1 Score Thresholds, 0: no PX information is emitted towards peers below it."""
    node = LoneNode(**PX, **SCORED)
    node.link(range(12), graft=True)
    node.overlay.scores.penalise(3)
    node.beat()
    assert pruned_to(node, 3).peers == ()


def test_only_peers_without_a_negative_score_are_named():
    """v1.1 Score Thresholds, 0: when performing PX only peers with non-negative scores are exchanged."""
    node = LoneNode(**PX, **SCORED)
    node.link(range(14), graft=True)
    node.link(range(14, 18))
    for bad in (14, 15, 16, 17):
        node.overlay.scores.penalise(bad)
    node.beat()
    named = {peer for _, frame in node.sent(Prune) for pruned in frame.pruned for peer in pruned.peers}
    assert named
    assert named <= set(range(14))


@pytest.mark.parametrize(("trusted", "followed"), [((), []), ((0,), [70, 71, 72])])
def test_named_peers_are_followed_above_the_threshold_only(trusted: tuple[int, ...], followed: list[int]):
    """v1.1 Score Thresholds, acceptPXThreshold: PX is accepted if the originating peer's score exceeds it."""
    score = {"app_specific_nodes": trusted, "app_specific_score": 2.0}
    node = LoneNode(known=dict.fromkeys(range(80), (1,)), **SCORED, score=score)
    node.link(range(5), graft=True)
    node.forget()
    node.prune(0, peers=(70, 71, 72))
    assert node.connects() == followed


def test_named_peers_that_nobody_else_knows_are_not_followed():
    """v1.1 Peer Exchange: without a signed peer record, the node relies on ambient discovery for addresses."""
    node = LoneNode(known=dict.fromkeys(range(80), (1,)))
    node.link(range(5), graft=True)
    node.prune(0, peers=(70, 10**9, ME, 1))
    assert node.connects() == [70]


def test_no_more_are_followed_than_would_be_named():
    """v1.1 Spam Protection Measures, for PX: a PRUNE does not open any number of connections."""
    node = LoneNode(known=dict.fromkeys(range(80), (1,)))
    node.link(range(5), graft=True)
    node.prune(0, peers=range(10, 80))
    assert len(node.connects()) == 16
