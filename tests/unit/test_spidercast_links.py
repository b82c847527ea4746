"""What SpiderCast's figures leave open: links, heartbeats, changes of interest, the adaptive K_r."""

from __future__ import annotations

from peer.core.contract import (
    LinkDown,
    LinkUp,
    Subscribe,
    Unsubscribe,
)
from peer.protocols.spidercast.frames import (
    SpiderConnect,
    SpiderConnectOk,
    SpiderHeartbeat,
    SpiderLeave,
)
from tests.spidercast_desk import GREEDY, RANDOM, SECOND_NS, Desk, closed, connects, logical, sends, timers


def test_a_node_that_was_asked_is_left_alone_for_the_quarantine():
    desk = Desk((1,), {5: (1,)}, quarantine_s=10)
    desk.ask(5)
    assert closed(desk.round()) == [(5, "no_answer")]
    desk.give(LinkDown(5, "no_answer"))
    assert connects(desk.round(after_s=8.9)) == []
    assert connects(desk.round(after_s=0.2)) == [5]


def test_a_link_that_does_not_come_up_is_given_up_after_the_timeout():
    desk = Desk((1,), {5: (1,)})
    desk.round()
    assert closed(desk.round()) == [(5, "no_answer")]
    assert closed(desk.give(LinkUp(5, False))) == []  # the other side's own link may stay


def test_a_request_on_the_other_sides_link_gets_one_of_its_own_when_that_closes():
    desk = Desk((1,), {5: (1,)})
    desk.give(LinkUp(5, False))
    assert sends(desk.round()) == [(5, SpiderConnect(GREEDY, 0, 3, 0, (1,)))]
    assert connects(desk.give(LinkDown(5, "unneeded"))) == [5]
    assert sends(desk.give(LinkUp(5, True))) == [(5, SpiderConnect(GREEDY, 0, 3, 0, (1,)))]
    assert connects(desk.give(LinkDown(5, "refused"))) == []


def test_a_broken_link_ends_the_relation_and_is_not_kept_alive():
    desk = Desk((1,), {5: (1,)}, greedy_coverage=1)
    desk.ask(5)
    desk.hear(5, SpiderConnectOk(GREEDY, 1, 1, 0, (1,)))
    effects = desk.give(LinkDown(5, "reset", retrying=True))
    assert closed(effects) == [(5, "unused")]
    assert desk.neighbours() == []


def test_the_tasks_keep_neighbours_of_their_own_and_share_the_link():
    desk = Desk((1,), {5: (1,), 6: (1,)}, greedy_coverage=1, random_coverage=1)
    desk.invite(5, GREEDY)
    desk.invite(6, GREEDY)
    effects = desk.invite(5, RANDOM)
    assert sends(effects) == [(5, SpiderConnectOk(RANDOM, 1, 1, 0, (1,)))]
    assert logical(effects) == []
    beats = desk.beat()
    assert (beats[5].greedy, beats[5].random) == ((2, 1), (1, 1))
    assert (beats[6].greedy, beats[6].random) == ((2, 1), None)
    effects = desk.hear(5, SpiderLeave(GREEDY))
    assert (logical(effects), closed(effects)) == ([], [])
    effects = desk.hear(5, SpiderLeave(RANDOM))
    assert (logical(effects), closed(effects)) == ([("prune", 5, (1,), "leave")], [(5, "leave")])


def test_a_heartbeat_that_does_not_name_a_task_is_no_sign_of_life_for_it():
    desk = Desk((1,), {5: (1,)}, greedy_coverage=1, random_coverage=1, suspect_after_s=3)
    desk.invite(5, GREEDY)
    desk.invite(5, RANDOM)
    for _ in range(4):
        desk.now_ns += SECOND_NS
        desk.hear(5, SpiderHeartbeat(None, (1, 1), 0, None))
    effects = desk.round("heartbeat", 0.0)
    assert sends(effects) == [(5, SpiderHeartbeat(None, (1, 1), 0, None))]
    assert closed(effects) == []


def test_a_changed_interest_is_told_in_heartbeats_for_as_long_as_a_neighbour_may_miss_them():
    desk = Desk((1, 2), {5: (1, 2, 3)}, suspect_after_s=3)
    desk.invite(5)
    assert desk.beat()[5].interest is None
    effects = desk.give(Unsubscribe(2))
    assert logical(effects)[-1] == ("prune", 5, (2,), "left")
    assert logical(desk.give(Subscribe(3)))[-1] == ("graft", 5, (3,), None)
    for _ in range(5):
        beat = desk.beat(1.0)[5]
        assert (beat.version, beat.interest) == (2, (1, 3))
        desk.settle(5)
    assert desk.beat(1.0)[5] == SpiderHeartbeat((1, 6), None, 2, None)


def test_a_neighbours_new_interest_replaces_the_old_one_and_never_the_other_way_round():
    desk = Desk((1, 2), {5: (1,)}, greedy_coverage=1)
    desk.invite(5)
    effects = desk.hear(5, SpiderHeartbeat((1, 1), None, 2, (2,)))
    assert logical(effects) == [("prune", 5, (1,), "unsubscribed"), ("graft", 5, (2,), None)]
    assert desk.node.state.neighbours[5].topics == {2}
    assert logical(desk.hear(5, SpiderHeartbeat((1, 1), None, 1, (1,)))) == []
    assert desk.node._parts["overlay"]._tasks[GREEDY].aim.uncovered() == [1]


def test_section_3_3_1_an_adaptive_node_with_just_k_neighbours_covers_its_topics_at_random_too():
    topics = (1, 2, 3, 4, 5)
    desk = Desk(topics, dict.fromkeys(range(5, 13), topics), adaptive=True, greedy_coverage=3, quarantine_s=0)
    raised = []
    for peer in (5, 6, 7):
        assert raised == []
        desk.invite(peer)
        raised = [name for name in timers(desk.round()) if name == "overlay/random"]
    assert raised  # degree 3 = K_g, so K_r = 1
    aim = desk.node._parts["overlay"]._tasks[RANDOM].aim
    seen = [aim.times]
    for peer in (8, 9, 10, 11, 12):
        desk.invite(peer, RANDOM)
        desk.round()
        seen.append(aim.times)
    assert seen == [1, 2, 2, 2, 2, 2]  # after 9 the degree is 5, which is not below the number of topics


def test_an_adaptive_node_that_has_more_neighbours_than_k_stays_as_it_is():
    desk = Desk((1, 2), {5: (1,), 6: (1,), 7: (2,), 8: (2,)}, adaptive=True, greedy_coverage=2)
    for peer in (5, 6, 7, 8):
        desk.invite(peer)
    assert "overlay/random" not in timers(desk.round())


def test_a_link_that_nobody_uses_is_closed_after_a_while_and_not_before():
    desk = Desk((1,), {5: (1,), 6: (1,)}, greedy_coverage=1, suspect_after_s=3)
    desk.give(LinkUp(5, False))
    assert closed(desk.round("heartbeat", 1.0)) == []
    assert closed(desk.round("heartbeat", 3.0)) == []
    assert closed(desk.round("heartbeat", 0.5)) == [(5, "idle")]
    assert closed(desk.round("heartbeat", 0.5)) == []


def test_a_link_is_brief_until_its_other_end_is_a_neighbour_and_after_it_was_one():
    desk = Desk((1,), {5: (1,)})
    brief = lambda: desk.node.state.neighbours[5].brief  # noqa: E731 - a name for what is looked at
    desk.ask(5)
    assert brief()
    desk.hear(5, SpiderConnectOk(GREEDY, 1, 3, 0, (1,)))
    assert not brief()
    desk.hear(5, SpiderLeave(GREEDY))
    assert brief()
