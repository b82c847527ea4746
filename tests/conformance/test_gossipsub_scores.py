"""Peer scores, by the text of the libp2p specification, v1.1. Each test names its section."""

import msgspec
import pytest

from peer.core.frames import Data, Subscriptions
from peer.protocols.gossipsub.frames import Graft, Prune
from peer.protocols.gossipsub.parameters import GossipsubParameters, ScoreParameters
from peer.protocols.gossipsub.scores import PeerScores
from tests.lone_gossipsub import SECOND_NS, LoneNode

BY_FIRST = {"first_message_deliveries_weight": 1, "first_message_deliveries_decay": 1.0, "topic_score_cap": 0}


def scores(**parameters) -> PeerScores:
    """Scores of peer 1, connected and in the mesh of topic 0 since 0 s."""
    made = PeerScores(msgspec.convert(parameters, ScoreParameters))
    made.connect(1)
    made.graft(0, 1, 0)
    return made


def node_with(score: dict, **parameters) -> LoneNode:
    return LoneNode(scoring=True, score=score, **parameters)


# ------------------------------------------------------------------------------------------------ score function


@pytest.mark.parametrize(("seconds", "points"), [(0, 0), (3, 1), (7, 3), (100, 5)])
def test_p1_is_the_time_in_the_mesh_in_quanta_capped(seconds: int, points: int):
    """P1 Time in Mesh: the time since the GRAFT divided by a quantum, capped."""
    made = scores(time_in_mesh_weight=0.5, time_in_mesh_quantum_s=2, time_in_mesh_cap=5)
    made.decay(seconds * SECOND_NS)
    assert made.of(1) == 0.5 * points
    made.prune(1, 0)
    assert made.of(1) == 0


def test_p2_counts_first_deliveries_up_to_a_cap_and_decays():
    """P2 First Message Deliveries: incremented at each, capped at the time of increment; decays."""
    made = scores(first_message_deliveries_weight=2, first_message_deliveries_cap=3, topic_score_cap=0)
    for expected in (2, 4, 6, 6):
        made.credit_first(1, (0,))
        assert made.of(1) == expected
    made.decay(0)
    assert made.of(1) == 3


def test_p3_is_the_squared_deficit_after_the_activation_window():
    """P3 Mesh Message Delivery: deficit^2 below the threshold, once the peer was in the mesh for the activation."""
    made = scores(mesh_message_deliveries_weight=-1, mesh_message_deliveries_threshold=4)
    made.decay(5 * SECOND_NS)
    assert made.of(1) == 0
    made.decay(6 * SECOND_NS)
    assert made.of(1) == -16
    made.credit_near(1, (0,))
    assert made.of(1) == -9
    for _ in range(3):
        made.credit_first(1, (0,))
    assert made.of(1) == 0


def test_p3_counts_for_peers_in_the_mesh_only():
    """P3: incremented whenever a first or near-first delivery occurs by a peer in the mesh."""
    made = scores(mesh_message_deliveries_weight=-1, mesh_message_deliveries_threshold=2)
    made.connect(2)
    for _ in range(5):
        made.credit_near(2, (0,))
    made.graft(0, 2, 0)
    made.decay(6 * SECOND_NS)
    assert made.of(2) == -4


def test_p3b_keeps_the_deficit_at_the_prune():
    """P3b Mesh Message Delivery Failures: augmented by the squared deficit when pruned with one; decays."""
    weights = {"mesh_message_deliveries_weight": -1, "mesh_failure_penalty_weight": -0.5}
    made = scores(**weights, mesh_message_deliveries_threshold=6)
    made.prune(1, 0)
    assert made.of(1) == 0
    made.graft(0, 1, 0)
    made.decay(6 * SECOND_NS)
    made.prune(1, 0)
    assert made.of(1) == -18
    made.decay(7 * SECOND_NS)
    assert made.of(1) == -9


def test_p4_is_the_squared_number_of_invalid_messages():
    """P4 Invalid Messages: the square of the counter, which is uncapped; decays."""
    made = scores(invalid_message_deliveries_weight=-2, invalid_message_deliveries_decay=0.5)
    for expected in (-2, -8, -18):
        made.blame_invalid(1, (0,))
        assert made.of(1) == expected
    made.decay(0)
    assert made.of(1) == -4.5


def test_p5_is_what_the_application_says():
    """P5 Application-Specific: an arbitrary real value with a positive weight."""
    for value in (-3.0, 4.0):
        made = scores(app_specific_weight=2, app_specific_nodes=(1,), app_specific_score=value)
        made.connect(2)
        assert (made.of(1), made.of(2)) == (2 * value, 0)


def test_p6_is_the_squared_surplus_of_peers_with_one_address():
    """P6 IP Colocation Factor: the square of the surplus over the threshold."""
    made = scores(ip_colocation_factor_weight=-1, ip_colocation_factor_threshold=2, nodes_per_address=10)
    made.connect(2)
    assert made.of(1) == 0
    made.connect(3)
    made.connect(4)
    made.connect(10)
    assert [made.of(peer) for peer in (1, 2, 3, 4, 10)] == [-4, -4, -4, -4, 0]
    made.disconnect(0, 4)
    assert made.of(1) == -1


def test_p7_is_the_squared_surplus_of_misbehaviour():
    """P7 Behavioural Penalty: the square of the decaying counter (above a threshold, in go)."""
    made = scores(behaviour_penalty_weight=-1, behaviour_penalty_threshold=1, behaviour_penalty_decay=0.5)
    made.penalise(1)
    assert made.of(1) == 0
    made.penalise(1, 4)
    assert made.of(1) == -16
    made.decay(0)
    assert made.of(1) == -2.25


def test_topics_are_summed_weighted_and_capped():
    """The Score Function: TopicCap(sum of the topics' weighted parameters) + the global ones."""
    made = scores(first_message_deliveries_weight=1, topic_weight=0.5, topic_score_cap=3, app_specific_nodes=(1,))
    made.credit_first(1, (0, 1))
    assert made.of(1) == 1
    for _ in range(10):
        made.credit_first(1, (0, 1, 2))
    assert made.of(1) == 3
    made.penalise(1)
    assert made.of(1) == 3 - 10


def test_counters_that_fade_below_the_limit_are_zero():
    """Parameter Decay: when the value drops below a threshold it is considered zero."""
    made = scores(first_message_deliveries_weight=1, first_message_deliveries_decay=0.5, decay_to_zero=0.2)
    made.credit_first(1, (0,))
    seen = []
    for _ in range(4):
        made.decay(0)
        seen.append(made.of(1))
    assert seen == [0.5, 0.25, 0, 0]


def test_bad_scores_outlive_the_link_and_good_ones_do_not():
    """Peer Scoring: the score is retained for some period of time when a peer disconnects."""
    made = scores(first_message_deliveries_weight=1, retain_score_s=60)
    made.connect(2)
    made.credit_first(1, (0,))
    made.penalise(2)
    for peer in (1, 2):
        made.disconnect(0, peer)
        made.connect(peer)
    assert (made.of(1), made.of(2)) == (0, -10)
    made.disconnect(0, 2)
    made.decay(60 * SECOND_NS)
    assert made.of(2) == -10
    made.decay(61 * SECOND_NS)
    assert made.of(2) == 0


def test_a_link_that_ends_settles_the_accounts():
    """Peer Scoring: nobody gains by a disconnect; first deliveries are forgotten, and a deficit in the mesh counts."""
    made = scores(first_message_deliveries_weight=1, mesh_failure_penalty_weight=-1, behaviour_penalty_weight=-10)
    made.credit_first(1, (0,))
    made.penalise(1)
    made.decay(6 * SECOND_NS)
    assert made.of(1) > -1
    made.penalise(1)
    made.disconnect(0, 1)
    made.connect(1)
    # 20 deliveries are expected, half of one is left: P3b is the squared deficit; P7 is 10 * 1.2^2.
    assert made.of(1) == pytest.approx(-(19.5**2) - 14.4)


def test_a_good_score_is_forgotten_as_a_whole():
    """Peer Scoring, as implemented everywhere: only scores that are not positive are retained."""
    made = scores(first_message_deliveries_weight=1, invalid_message_deliveries_weight=-1)
    for _ in range(3):
        made.credit_first(1, (0,))
    made.blame_invalid(1, (0,))
    assert made.of(1) == 2
    made.disconnect(0, 1)
    made.connect(1)
    assert made.of(1) == 0


def test_topics_do_not_count_until_they_are_configured():
    """Overview of New Parameters: a topic that is not configured does not contribute to the score."""
    made = scores()
    for _ in range(100):
        made.credit_first(1, (0,))
        made.blame_invalid(1, (0,))
    made.decay(100 * SECOND_NS)
    assert made.of(1) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"gossip_threshold": 1.0},
        {"gossip_threshold": -60.0},
        {"publish_threshold": -90.0},
        {"accept_px_threshold": -1.0},
        {"opportunistic_graft_threshold": -1.0},
        {"mesh_message_deliveries_cap": 5.0},
        {"behaviour_penalty_weight": 1.0},
    ],
)
def test_thresholds_and_weights_out_of_the_order_demanded_are_refused(wrong: dict):
    """Overview of New Parameters: the constraints."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"score": wrong}, GossipsubParameters)


# ----------------------------------------------------------------------- what feeds the score, and what it decides


def test_first_deliveries_are_credited_to_the_first_sender():
    """P2: the number of messages first delivered by the peer."""
    node = node_with({"first_message_deliveries_weight": 1})
    node.link(range(3), graft=True)
    node.message(0, 1)
    node.message(1, 1)
    node.message(1, 2)
    node.message(1, 3)
    assert [node.score(peer) for peer in range(3)] == [1, 2, 0]


def test_near_first_deliveries_count_once_and_within_the_window():
    """P3: received within a configurable window of first delivery; a replay does not build score."""
    # Nothing fades before the deficits are looked at: the decay sets the activation only.
    score = {"mesh_message_deliveries_threshold": 3, "mesh_message_deliveries_decay": 1.0}
    node = node_with({"mesh_message_deliveries_weight": -1} | score)
    node.link(range(5), graft=True)
    for sequence in range(3):
        node.message(0, sequence)
        node.message(1, sequence)
        if sequence == 0:
            for _ in range(3):
                node.message(2, sequence)
        node.wait(0.011)
        node.message(3, sequence)
    node.wait(6)
    node.decay()
    assert [node.score(peer) for peer in range(5)] == [0, 0, -4, -9, -9]


def test_an_own_message_that_comes_back_is_invalid():
    """P4, as go-libp2p-pubsub applies it: a message that claims to be from oneself."""
    node = node_with({"invalid_message_deliveries_weight": -5})
    node.link(range(3), graft=True)
    node.message(1, 9, publisher=1000)
    assert [node.score(peer) for peer in range(3)] == [0, -5, 0]


def test_negative_scores_are_pruned_at_the_heartbeat():
    """Score Thresholds, 0; Heartbeat Maintenance: peers with negative score are pruned from all meshes."""
    node = node_with({}, topics=(0, 1))
    node.link(range(6), topics=(0, 1), graft=True)
    node.overlay.scores.penalise(2)
    node.beat()
    assert 2 not in node.mesh(0) + node.mesh(1)
    [frame] = [frame for peer, frame in node.sent(Prune) if peer == 2]
    assert [pruned.topic for pruned in frame.pruned] == [0, 1]


def test_negative_scores_are_not_grafted():
    """Heartbeat Maintenance: when selecting peers to graft, peers with a negative score are ignored."""
    node = node_with({})
    node.link(range(8))
    for peer in range(4):
        node.overlay.scores.penalise(peer)
    node.beat()
    assert node.receivers(Graft) == [4, 5, 6, 7]


def test_grafts_of_negative_scores_are_refused():
    """Score Thresholds, 0: such peers are not in the mesh; the refusal is a PRUNE."""
    node = node_with({})
    node.link(range(3))
    node.overlay.scores.penalise(1)
    node.graft(1)
    assert node.mesh() == []
    assert node.receivers(Prune) == [1]


def test_a_refused_peer_is_not_grafted_within_the_backoff_even_if_its_score_recovers():
    """v1.1 PRUNE Backoff: whoever is pruned, neither side regrafts within the period."""
    node = node_with({"behaviour_penalty_decay": 0.001})
    node.link(range(3))
    node.overlay.scores.penalise(1)
    node.graft(1)
    node.decay()
    assert node.score(1) == 0
    node.beat(50)
    assert node.mesh() == [0, 2]
    node.graft(1)
    assert node.rejects()[-1] == "backoff"


def test_the_best_scoring_peers_survive_oversubscription():
    """Heartbeat Maintenance: keep the best D_score (4) scoring peers and select the remaining ones at random."""
    random_choice = set()
    for seed in range(30):
        node = node_with({"first_message_deliveries_weight": 1}, seed=seed)
        node.link(range(20), graft=True)
        for best in (3, 8, 12, 17):
            node.overlay.scores.credit_first(best, (0,))
        node.beat()
        assert len(node.mesh()) == 6
        assert {3, 8, 12, 17} <= set(node.mesh())
        random_choice |= set(node.mesh())
    assert len(random_choice) > 15


def test_beyond_the_best_survivors_are_drawn_at_random():
    """Heartbeat Maintenance: ... and selects the remaining peers to keep at random, whatever their scores."""
    kept = set()
    for seed in range(30):
        node = node_with(BY_FIRST, seed=seed)
        node.link(range(20), graft=True)
        for peer in range(20):
            for _ in range(peer):
                node.overlay.scores.credit_first(peer, (0,))
        node.beat()
        assert {16, 17, 18, 19} <= set(node.mesh())
        kept |= set(node.mesh())
    assert len(kept) > 15


def test_graylisted_peers_are_ignored():
    """Score Thresholds, graylistThreshold: the peer's RPCs are ignored."""
    node = node_with({})
    node.link(range(3), graft=True)
    node.overlay.scores.penalise(1, 3)
    assert node.score(1) == -90
    node.message(1, 1)
    node.prune(1)
    node.advertise(1, 777)
    node.request(1, 888)
    assert not node.frames
    assert not node.delivered()
    assert node.rejects() == ["graylisted"] * 4
    assert 1 in node.mesh()
    node.message(0, 1)
    assert len(node.delivered()) == 1


def test_a_score_at_the_graylist_threshold_is_still_heard():
    """Score Thresholds, graylistThreshold: *below* this threshold."""
    node = node_with({"graylist_threshold": -90.0})
    node.link(range(3), graft=True)
    node.overlay.scores.penalise(1, 3)
    node.receive(1, Data(500 << 32, (0,), 1, 255, b""))
    assert len(node.delivered()) == 1


def test_scores_fade_so_that_a_peer_may_return():
    """Topic Parameter Calculation and Decay: no score is sticky for the lifetime of the peer."""
    node = node_with({}, prune_backoff_s=1)
    node.link(range(6), graft=True)
    node.overlay.scores.penalise(2)
    node.beat()
    assert 2 not in node.mesh()
    node.decay(3)
    assert node.score(2) == 0
    for peer in (0, 1, 3):
        node.prune(peer, backoff_s=60)
    node.beat(5)
    assert 2 in node.mesh()


# --------------------------------------------------------------------------------------- opportunistic grafting


def opportunistic(threshold: float = 5.0) -> LoneNode:
    """A mesh of 0-5 with scores 0-5 (median 3), and 20-25 outside with scores 1-6."""
    node = node_with(BY_FIRST | {"opportunistic_graft_threshold": threshold})
    node.link(range(6), graft=True)
    node.link(range(20, 26))
    for peer in range(6):
        for _ in range(peer):
            node.overlay.scores.credit_first(peer, (0,))
        for _ in range(peer + 1):
            node.overlay.scores.credit_first(20 + peer, (0,))
    return node


def test_a_poor_mesh_is_improved_every_minute():
    """Opportunistic Grafting: periodically (1 minute) graft two peers with score above the median."""
    node = opportunistic()
    node.beat(59)
    assert not node.sent(Graft)
    node.beat()
    assert len(node.receivers(Graft)) == 2
    assert set(node.receivers(Graft)) <= {23, 24, 25}
    assert len(node.mesh()) == 8


def test_a_good_mesh_is_left_alone():
    """Opportunistic Grafting: only if the median score is below the opportunisticGraftThreshold."""
    node = opportunistic(threshold=3.0)
    node.beat(60)
    assert not node.sent(Graft)


def test_nobody_is_grafted_opportunistically_without_being_better():
    """Opportunistic Grafting: peers with score above the median."""
    node = node_with({})
    node.link(range(6), graft=True)
    node.link(range(20, 26))
    node.beat(60)
    assert not node.sent(Graft)


# ------------------------------------------------------------------------------------------------------ profiles


@pytest.mark.parametrize(("profile", "penalty"), [("spec", 0), ("go", 0), ("js", -10)])
def test_scores_are_kept_as_the_profile_says(profile: str, penalty: float):
    """js-libp2p-gossipsub always scores; in go-libp2p-pubsub scoring is an option; the specification leaves it open."""
    node = LoneNode(profile=profile)
    node.link(range(5), graft=True)
    node.prune(0)
    node.wait(15)
    node.graft(0)
    assert node.score(0) == penalty


def test_subscriptions_of_anybody_are_kept():
    """Ours: interests are no part of the router, so a graylisted peer's announcement is kept (and has no effect)."""
    node = node_with({})
    node.link(range(3))
    node.overlay.scores.penalise(1, 3)
    node.receive(1, Subscriptions((0, 5)))
    node.beat()
    assert 1 not in node.mesh()
