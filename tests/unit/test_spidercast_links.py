"""What SpiderCast's figures leave open: links, heartbeats, changes of interest, the adaptive K_r."""

from peer.core.contract import (
    Subscribe,
    Unsubscribe,
)
from peer.protocols.spidercast.frames import (
    SpiderConnect,
    SpiderConnectOk,
    SpiderHeartbeat,
    SpiderLeave,
)
from peer.testing import connects, disconnects, sends, timers
from tests.lone_spidercast import GREEDY, RANDOM, SECOND_NS, Lone, logical


def test_a_node_that_was_asked_is_left_alone_for_the_quarantine():
    lone = Lone((1,), {5: (1,)}, quarantine_s=10)
    lone.ask(5)
    assert disconnects(lone.round()) == [(5, "no_answer")]
    lone.link_down(5, "no_answer")
    assert connects(lone.round(after_s=8.9)) == []
    assert connects(lone.round(after_s=0.2)) == [5]


def test_a_link_that_does_not_come_up_is_given_up_after_the_timeout():
    lone = Lone((1,), {5: (1,)})
    lone.round()
    assert disconnects(lone.round()) == [(5, "no_answer")]
    assert disconnects(lone.link_up(5, outbound=False)) == []  # the other side's own link may stay


def test_a_request_on_the_other_sides_link_gets_one_of_its_own_when_that_closes():
    lone = Lone((1,), {5: (1,)})
    lone.link_up(5, outbound=False)
    assert sends(lone.round()) == [(5, SpiderConnect(GREEDY, 0, 3, 0, (1,)))]
    assert connects(lone.link_down(5, "unneeded")) == [5]
    assert sends(lone.link_up(5)) == [(5, SpiderConnect(GREEDY, 0, 3, 0, (1,)))]
    assert connects(lone.link_down(5, "refused")) == []


def test_a_broken_link_ends_the_relation_and_is_not_kept_alive():
    lone = Lone((1,), {5: (1,)}, greedy_coverage=1)
    lone.ask(5)
    lone.receive(5, SpiderConnectOk(GREEDY, 1, 1, 0, (1,)))
    effects = lone.link_down(5, "reset", retrying=True)
    assert disconnects(effects) == [(5, "unused")]
    assert lone.neighbours() == []


def test_the_tasks_keep_neighbours_of_their_own_and_share_the_link():
    lone = Lone((1,), {5: (1,), 6: (1,)}, greedy_coverage=1, random_coverage=1)
    lone.invite(5, GREEDY)
    lone.invite(6, GREEDY)
    effects = lone.invite(5, RANDOM)
    assert sends(effects) == [(5, SpiderConnectOk(RANDOM, 1, 1, 0, (1,)))]
    assert logical(effects) == []
    beats = lone.beat()
    assert (beats[5].greedy, beats[5].random) == ((2, 1), (1, 1))
    assert (beats[6].greedy, beats[6].random) == ((2, 1), None)
    effects = lone.receive(5, SpiderLeave(GREEDY))
    assert (logical(effects), disconnects(effects)) == ([], [])
    effects = lone.receive(5, SpiderLeave(RANDOM))
    assert (logical(effects), disconnects(effects)) == ([("prune", 5, (1,), "leave")], [(5, "leave")])


def test_a_heartbeat_that_does_not_name_a_task_is_no_sign_of_life_for_it():
    lone = Lone((1,), {5: (1,)}, greedy_coverage=1, random_coverage=1, suspect_after_s=3)
    lone.invite(5, GREEDY)
    lone.invite(5, RANDOM)
    for _ in range(4):
        lone.now_ns += SECOND_NS
        lone.receive(5, SpiderHeartbeat(None, (1, 1), 0, None))
    effects = lone.round("heartbeat", 0.0)
    assert sends(effects) == [(5, SpiderHeartbeat(None, (1, 1), 0, None))]
    assert disconnects(effects) == []


def test_a_changed_interest_is_told_in_heartbeats_for_as_long_as_a_neighbour_may_miss_them():
    lone = Lone((1, 2), {5: (1, 2, 3)}, suspect_after_s=3)
    lone.invite(5)
    assert lone.beat()[5].interest is None
    effects = lone.give(Unsubscribe(2))
    assert logical(effects)[-1] == ("prune", 5, (2,), "left")
    assert logical(lone.give(Subscribe(3)))[-1] == ("graft", 5, (3,), None)
    for _ in range(5):
        beat = lone.beat(1.0)[5]
        assert (beat.version, beat.interest) == (2, (1, 3))
        lone.settle(5)
    assert lone.beat(1.0)[5] == SpiderHeartbeat((1, 6), None, 2, None)


def test_a_neighbours_new_interest_replaces_the_old_one_and_never_the_other_way_round():
    lone = Lone((1, 2), {5: (1,)}, greedy_coverage=1)
    lone.invite(5)
    effects = lone.receive(5, SpiderHeartbeat((1, 1), None, 2, (2,)))
    assert logical(effects) == [("prune", 5, (1,), "unsubscribed"), ("graft", 5, (2,), None)]
    assert lone.node.state.neighbours[5].interests == {2}
    assert logical(lone.receive(5, SpiderHeartbeat((1, 1), None, 1, (1,)))) == []
    assert lone.part("overlay").tasks[GREEDY].aim.uncovered() == [1]


def test_section_3_3_1_an_adaptive_node_with_just_k_neighbours_covers_its_topics_at_random_too():
    topics = (1, 2, 3, 4, 5)
    lone = Lone(topics, dict.fromkeys(range(5, 13), topics), adaptive=True, greedy_coverage=3, quarantine_s=0)
    raised = []
    for peer in (5, 6, 7):
        assert raised == []
        lone.invite(peer)
        raised = [name for name in timers(lone.round()) if name == "overlay/random"]
    assert raised  # degree 3 = K_g, so K_r = 1
    aim = lone.part("overlay").tasks[RANDOM].aim
    seen = [aim.times]
    for peer in (8, 9, 10, 11, 12):
        lone.invite(peer, RANDOM)
        lone.round()
        seen.append(aim.times)
    assert seen == [1, 2, 2, 2, 2, 2]  # after 9 the degree is 5, which is not below the number of topics


def test_an_adaptive_node_that_has_more_neighbours_than_k_stays_as_it_is():
    lone = Lone((1, 2), {5: (1,), 6: (1,), 7: (2,), 8: (2,)}, adaptive=True, greedy_coverage=2)
    for peer in (5, 6, 7, 8):
        lone.invite(peer)
    assert "overlay/random" not in timers(lone.round())


def test_a_link_that_nobody_uses_is_closed_after_a_while_and_not_before():
    lone = Lone((1,), {5: (1,), 6: (1,)}, greedy_coverage=1, suspect_after_s=3)
    lone.link_up(5, outbound=False)
    assert disconnects(lone.round("heartbeat", 1.0)) == []
    assert disconnects(lone.round("heartbeat", 3.0)) == []
    assert disconnects(lone.round("heartbeat", 0.5)) == [(5, "idle")]
    assert disconnects(lone.round("heartbeat", 0.5)) == []


def test_a_link_is_brief_until_its_other_end_is_a_neighbour_and_after_it_was_one():
    lone = Lone((1,), {5: (1,)})
    brief = lambda: lone.node.state.neighbours[5].brief  # noqa: E731 - a name for what is looked at
    lone.ask(5)
    assert brief()
    lone.receive(5, SpiderConnectOk(GREEDY, 1, 3, 0, (1,)))
    assert not brief()
    lone.receive(5, SpiderLeave(GREEDY))
    assert brief()
