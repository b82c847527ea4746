"""SpiderCast's routines one by one, against the figures and lines of the paper that they come from."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core.bitset import bitset
from peer.core.contract import (
    Subscribe,
    Unsubscribe,
)
from peer.protocols.similarity.overlay import AnyNodes, SimilarNodes
from peer.protocols.spidercast.coverage import Coverage, GreedyCoverage, RandomCoverage
from peer.protocols.spidercast.frames import (
    SpiderConnect,
    SpiderConnectOk,
    SpiderDisconnect,
    SpiderDisconnectOk,
    SpiderHeartbeat,
    SpiderLeave,
    SpiderRedirect,
)
from peer.testing import connects, disconnects, sends, timers
from tests.lone_spidercast import GREEDY, SECOND_NS, Lone, View, logical

# --------------------------------------------------------------------------------------------------- Figure 2


def test_figure_2_line_3_a_task_without_coverage_never_runs():
    assert "overlay/random" not in timers(Lone((1,), {}).started)
    assert "overlay/random" in timers(Lone((1,), {}, random_coverage=1).started)
    assert "overlay/greedy" not in timers(Lone((1,), {}, greedy_coverage=0).started)


def test_figure_2_lines_4_to_10_and_20_an_under_covered_node_asks_with_its_target_at_the_upper_limit():
    lone = Lone((1, 2), {5: (1, 2, 9)})
    assert sends(lone.ask(5)) == [(5, SpiderConnect(GREEDY, 0, 6, 0, (1, 2)))]
    assert connects(lone.round(after_s=0.5)) == []  # one request at a time
    lone.receive(5, SpiderConnectOk(GREEDY, 1, 3, 0, (1, 2, 9)))
    lone.give(Subscribe(9))
    assert lone.beat()[5].greedy == (1, 6)  # the limit is computed at the next round
    lone.round()
    assert lone.beat()[5].greedy == (1, 9)


def test_figure_2_line_9_without_a_gap_a_node_asks_nobody_although_it_is_under_covered():
    lone = Lone((1, 2), {5: (1,), 6: (1,), 7: (2,)}, greedy_coverage=1, quarantine_s=0)
    for peer in (5, 6):
        lone.invite(peer)
    effects = lone.round()
    assert connects(effects) == []
    assert sends(effects) == []


def test_figure_2_line_13_the_next_round_is_one_timeout_later():
    lone = Lone((1,), {}, connect_timeout_s=2.5)
    assert timers(lone.round())["overlay/greedy"] == lone.now_ns + 2_500_000_000


def test_figure_2_lines_15_to_19_who_was_named_by_a_redirect_comes_first():
    lone = Lone((1, 2), {5: (1, 2), 6: (1, 2), 7: (1, 2), 8: (2,)})
    [first] = connects(lone.round())
    lone.link_up(first)
    assert disconnects(lone.receive(first, SpiderRedirect(GREEDY, 8, (2,)))) == [(first, "redirected")]
    lone.link_down(first, "redirected")
    assert connects(lone.round()) == [8]


@pytest.mark.parametrize("unfit", [(None, ()), (0, (1, 2)), (9, (3,))])
def test_a_redirect_to_nobody_to_oneself_or_to_a_node_that_covers_nothing_missing_is_not_followed(unfit):
    lone = Lone((1, 2), {5: (1, 2), 6: (1,), 9: (3,)})
    lone.ask(5)
    lone.receive(5, SpiderRedirect(GREEDY, *unfit))
    lone.link_down(5, "redirected")
    assert connects(lone.round()) == [6]


def test_figure_2_line_22_a_covered_node_takes_its_degree_for_its_target():
    lone = Lone((1,), {5: (1,), 6: (1,)}, greedy_coverage=2)
    lone.invite(5)
    assert lone.beat()[5].greedy == (1, 2)
    lone.invite(6)
    lone.round()
    assert lone.beat()[5].greedy == (2, 2)


def test_figure_2_lines_25_and_26_above_the_limit_a_node_parts_even_with_whom_it_needs():
    lone = Lone((1, 2), {5: (1,), 6: (1,), 7: (3,)}, greedy_coverage=1)
    for peer in (5, 6, 7):
        lone.invite(peer, degree=0)
    lone.settle(5)
    lone.settle(6)
    [(peer, frame)] = sends(lone.round())  # degree 3, limit 2, topic 2 not covered
    assert frame == SpiderDisconnect(GREEDY)
    assert peer in (5, 6)


def test_figure_2_lines_27_to_30_an_over_covered_node_parts_with_whom_it_does_not_need():
    lone = Lone((1, 2, 3), {5: (1, 2, 3), 6: (1, 2), 7: (3,)}, greedy_coverage=1)
    lone.invite(6)
    lone.invite(7)
    lone.settle(6)
    lone.settle(7)
    assert sends(lone.round()) == []  # nobody can be spared
    lone.invite(5)
    [(peer, frame)] = sends(lone.round())
    assert (peer in (6, 7), frame) == (True, SpiderDisconnect(GREEDY))


@pytest.mark.parametrize(("reading", "parts"), [("missed", False), ("spared", True)])
def test_a_topic_with_too_few_other_subscribers_keeps_all_links_unless_they_suffice(reading: str, parts: bool):
    lone = Lone((1, 9), {5: (1,), 6: (1,), 7: (1,)}, greedy_coverage=2, scarce_topics=reading)
    for peer in (5, 6, 7):
        lone.invite(peer)
        lone.settle(peer)
    assert [frame for _, frame in sends(lone.round())] == [SpiderDisconnect(GREEDY)] * parts


def test_what_there_is_of_a_scarce_topic_is_neither_asked_to_part_nor_missed():
    others = {5: (1, 9), 6: (1,), 7: (1,)}
    lone = Lone((1, 9), others, greedy_coverage=2, scarce_topics="spared")
    for peer in (6, 7):
        lone.invite(peer)
    assert connects(lone.round()) == [5], "the one that shares the scarce topic"
    lone.invite(5)
    for peer in (5, 6, 7):
        lone.settle(peer)
    [(peer, frame)] = sends(lone.round())
    assert (peer in (6, 7), frame) == (True, SpiderDisconnect(GREEDY))


@given(st.sets(st.integers(0, 5)), st.lists(st.sets(st.integers(0, 5)), max_size=6), st.integers(1, 4), st.data())
def test_coverage_is_counted_up_to_what_is_attainable(own, neighbours, times, data):
    there = {topic: data.draw(st.integers(0, 6)) for topic in own}
    coverage = Coverage(times, there.__getitem__)
    coverage.recount(frozenset(own), map(frozenset, neighbours))
    gone = [frozenset(interest) for interest in neighbours[:2]]
    for without, left in (((), neighbours), (gone, neighbours[2:])):
        counts = {topic: sum(topic in interest for interest in left) for topic in own}
        short = {topic for topic in own if counts[topic] < min(times, there[topic])}
        assert coverage.missing(without) == len(short)
        assert coverage.critical(without) == {topic for topic in own if 0 < counts[topic] == min(times, there[topic])}
    assert coverage.uncovered() == sorted(
        topic for topic in own if sum(topic in interest for interest in neighbours) < min(times, there[topic])
    )


def test_a_redirect_names_a_node_or_is_not_followed():
    """A number of 2**31 - 1 in the quarantine would cost 256 MiB in every round."""
    lone = Lone((1, 2), {5: (1, 2), 6: (1,)})
    lone.ask(5)
    lone.receive(5, SpiderRedirect(GREEDY, 2**31 - 1, (1, 2)))
    lone.link_down(5, "redirected")
    assert connects(lone.round()) == [6]


@pytest.mark.parametrize(("nodes", "followed"), [(9, 8), (0, 6)])
def test_a_redirect_to_a_planned_node_that_the_bootstrap_service_has_not_named_yet_is_followed(nodes, followed):
    lone = Lone((1, 2), {5: (1, 2), 6: (1,)}, nodes=nodes)
    lone.ask(5)
    lone.receive(5, SpiderRedirect(GREEDY, 8, (1, 2)))
    lone.link_down(5, "redirected")
    assert connects(lone.round()) == [followed]


def test_who_was_asked_to_part_is_not_counted_on_until_the_timeout():
    lone = Lone((1,), {5: (1,), 6: (1,), 7: (1,)}, greedy_coverage=2)
    for peer in (5, 6, 7):
        lone.invite(peer)
        lone.settle(peer)
    [(asked, _)] = sends(lone.round())
    others = [peer for peer in (5, 6, 7) if peer != asked]
    assert sends(lone.receive(others[0], SpiderDisconnect(GREEDY))) == []
    lone.now_ns += SECOND_NS
    assert sends(lone.receive(others[0], SpiderDisconnect(GREEDY))) == [(others[0], SpiderDisconnectOk(GREEDY))]


def test_who_did_not_part_is_not_asked_again_until_its_degree_has_risen_or_an_interest_has_changed():
    lone = Lone((1,), {5: (1,), 6: (1,)}, greedy_coverage=1)
    for peer in (5, 6):
        lone.invite(peer)
    lone.receive(5, SpiderHeartbeat((4, 4), None, 0, None))
    asked = [(5, SpiderDisconnect(GREEDY))]
    assert sends(lone.round()) == asked
    for degree, again in [(4, []), (3, []), (4, asked), (4, [])]:
        lone.receive(5, SpiderHeartbeat((degree, degree), None, 0, None))
        assert sends(lone.round()) == again, degree
    lone.receive(5, SpiderHeartbeat((4, 4), None, 1, (1, 3)))
    assert sends(lone.round()) == asked
    assert sends(lone.round()) == []
    lone.give(Subscribe(3))
    assert sends(lone.round()) == []  # now it is needed
    lone.give(Unsubscribe(3))
    assert sends(lone.round()) == asked


# --------------------------------------------------------------------------------------------------- Figure 3

interests = st.frozensets(st.integers(0, 6))


@given(
    interests, st.lists(interests, max_size=8), st.lists(st.integers(0, 7), unique=True, max_size=4), st.integers(1, 3)
)
def test_figure_3_lines_1_to_7_the_counts_say_what_counting_anew_says(own, neighbours, leaving, times):
    coverage = Coverage(times)
    coverage.recount(own, neighbours[:3])
    for interest in neighbours[3:]:
        coverage.add(interest)
    gone = [neighbours[index] for index in leaving if index < len(neighbours)]
    rest = [neighbours[index] for index in range(len(neighbours)) if index not in leaving]

    def under_covered(kept: list) -> set[int]:
        return {topic for topic in own if sum(topic in interest for interest in kept) < times}

    assert coverage.missing(gone) == len(under_covered(rest))
    for index, interest in enumerate(rest):
        without = under_covered(rest[:index] + rest[index + 1 :])
        assert len(coverage.critical(gone) & interest) == len(without) - len(under_covered(rest))
    for interest in gone:
        coverage.remove(interest)
    assert coverage.uncovered() == sorted(under_covered(rest))
    assert coverage.limit == times * len(own)


def parted(lone: Lone) -> set[int]:
    """Whom the node asks to part, over many rounds."""
    return {peer for _ in range(40) for peer, frame in sends(lone.round()) if isinstance(frame, SpiderDisconnect)}


def test_figure_3_line_9_only_neighbours_that_have_reached_their_target_are_asked_to_part():
    lone = Lone((1,), {5: (1,), 6: (1,), 7: (1,)}, greedy_coverage=1, connect_timeout_s=1)
    for peer in (5, 6, 7):
        lone.invite(peer, degree=2, target=3)
    lone.receive(6, SpiderHeartbeat((3, 3), None, 0, None))
    assert parted(lone) == {6}


def test_figure_3_line_9_to_the_letter_takes_only_those_above_their_target():
    lone = Lone((1,), {5: (1,), 6: (1,)}, greedy_coverage=1, disconnect_from="over-target")
    lone.invite(5, degree=3, target=3)
    lone.invite(6, degree=3, target=3)
    assert parted(lone) == set()
    lone.receive(6, SpiderHeartbeat((4, 3), None, 0, None))
    assert parted(lone) == {6}


def test_figure_3_lines_12_to_20_the_candidates_are_those_whose_loss_uncovers_least():
    lone = Lone((1, 2, 3), {5: (1, 2, 3), 6: (1,), 7: (2,), 8: (1, 2, 3)}, greedy_coverage=1)
    for peer in (8, 6, 7):
        lone.invite(peer)
        lone.settle(peer)
    assert parted(lone) == {6, 7}


# --------------------------------------------------------------------------------------------------- Figure 4


def test_figure_4_lines_1_to_5_and_31_to_33_a_node_with_room_accepts_and_raises_its_target_afterwards():
    lone = Lone((1,), {5: (1, 4), 6: (1,), 7: (1,)}, greedy_coverage=2)
    lone.invite(5)
    lone.invite(6)
    lone.round()  # covered: the target is the degree
    effects = lone.invite(7)
    assert sends(effects) == [(7, SpiderConnectOk(GREEDY, 3, 2, 0, (1,)))]
    assert logical(effects) == [("graft", 7, (1,), None)]
    assert lone.beat()[7].greedy == (3, 2)  # the limit is 2: line 4 does not raise it
    wide = Lone((1, 2), {5: (1, 2), 6: (1, 2)}, greedy_coverage=1)
    wide.invite(5)
    wide.round()
    assert sends(wide.invite(6)) == [(6, SpiderConnectOk(GREEDY, 2, 1, 0, (1, 2)))]
    assert wide.beat()[6].greedy == (2, 2)


def test_figure_4_lines_7_to_9_a_full_node_names_the_neighbour_with_most_in_common_that_is_not_full():
    others = {5: (1, 2), 6: (1, 3, 4), 7: (1, 2, 3, 4), 8: (1, 3, 4)}
    lone = Lone((1,), others, greedy_coverage=1, margin=2)
    for peer, degree in ((5, 1), (6, 4), (7, 5)):
        lone.invite(peer, degree=degree)
    effects = lone.invite(8)
    assert sends(effects) == [(8, SpiderRedirect(GREEDY, 6, (1, 3, 4)))]  # 7 is at its target and margin: full
    assert logical(effects) == []
    for peer in (5, 6):
        lone.receive(peer, SpiderHeartbeat((5, 3), None, 0, None))
    assert sends(lone.invite(8)) == [(8, SpiderRedirect(GREEDY, None, ()))]


def test_figure_4_lines_12_to_18_an_answer_makes_a_neighbour_unless_the_node_has_become_full():
    lone = Lone((1,), {4: (1,), 5: (1,), 6: (1,)}, greedy_coverage=1, margin=1)
    [peer] = connects(lone.round())
    lone.link_up(peer)
    others = [other for other in (4, 5, 6) if other != peer]
    for other in others:
        lone.invite(other)
    effects = lone.receive(peer, SpiderConnectOk(GREEDY, 1, 1, 0, (1,)))
    assert sends(effects) == [(peer, SpiderLeave(GREEDY))]
    assert disconnects(effects) == [(peer, "unneeded")]
    assert sorted(lone.neighbours()) == sorted(others)


def test_an_answer_to_no_request_is_refused():
    lone = Lone((1,), {5: (1,)})
    lone.link_up(5, outbound=False)
    assert sends(lone.receive(5, SpiderConnectOk(GREEDY, 1, 1, 0, (1,)))) == [(5, SpiderLeave(GREEDY))]
    assert lone.neighbours() == []


def test_who_is_a_neighbour_already_is_told_again_and_not_counted_twice():
    lone = Lone((1,), {5: (1,)}, greedy_coverage=2)
    lone.invite(5)
    assert sends(lone.invite(5)) == [(5, SpiderConnectOk(GREEDY, 1, 2, 0, (1,)))]
    assert lone.part("overlay").tasks[GREEDY].aim.missing() == 1


def test_figure_4_lines_19_20_and_34_to_38_a_neighbour_that_leaves_wakes_the_task():
    lone = Lone((1,), {5: (1,)}, greedy_coverage=1)
    lone.invite(5)
    lone.round()
    effects = lone.receive(5, SpiderLeave(GREEDY))
    assert logical(effects) == [("prune", 5, (1,), "leave")]
    assert disconnects(effects) == [(5, "leave")]
    assert timers(effects) == {"overlay/greedy": lone.now_ns}


def test_figure_4_lines_21_to_27_a_node_parts_if_it_stays_covered_or_is_above_its_target():
    lone = Lone((1,), {5: (1,), 6: (1,), 7: ()}, greedy_coverage=1)
    lone.invite(5)
    assert sends(lone.receive(5, SpiderDisconnect(GREEDY))) == []  # 5 is needed
    lone.invite(6)
    effects = lone.receive(5, SpiderDisconnect(GREEDY))
    assert sends(effects) == [(5, SpiderDisconnectOk(GREEDY))]
    assert logical(effects) == [("prune", 5, (1,), "disconnect")]
    assert disconnects(effects) == []  # 5 opened the link and closes it
    assert lone.beat()[6].greedy == (1, 1)  # line 27
    lone.invite(7)
    assert sends(lone.receive(6, SpiderDisconnect(GREEDY))) == [(6, SpiderDisconnectOk(GREEDY))]  # 2 > L = 1
    assert lone.neighbours() == [7]


def test_figure_4_lines_27_and_28_the_answer_to_disconnect_ends_the_relation_and_the_link_of_whom_opened_it():
    lone = Lone((1,), {5: (1,), 6: (1,)}, greedy_coverage=1)
    [peer] = connects(lone.round())
    lone.link_up(peer)
    lone.receive(peer, SpiderConnectOk(GREEDY, 1, 1, 0, (1,)))
    effects = lone.receive(peer, SpiderDisconnectOk(GREEDY))
    assert logical(effects) == [("prune", peer, (1,), "disconnect")]
    assert disconnects(effects) == [(peer, "disconnect")]
    assert timers(effects) == {"overlay/greedy": lone.now_ns}


def test_figure_4_lines_29_and_30_a_silent_neighbour_is_suspected():
    lone = Lone((1,), {5: (1,), 6: (1,)}, greedy_coverage=1, suspect_after_s=3)
    lone.invite(5)
    lone.invite(6)
    lone.now_ns += 3 * SECOND_NS
    lone.settle(6)
    effects = lone.round("heartbeat", 0.5)
    assert logical(effects) == [("prune", 5, (1,), "suspect")]
    assert disconnects(effects) == [(5, "suspect")]
    assert [peer for peer, _ in sends(effects)] == [6]


# --------------------------------------------------------------------------------------------------- Figure 5


def covered(kind: type, own: tuple[int, ...], neighbours: list[tuple[int, ...]], times: int):
    aim = kind(times)
    aim.recount(frozenset(own), [frozenset(topics) for topics in neighbours])
    return aim


def test_figure_5_line_8_ties_go_to_anybody_or_by_choice_to_the_lowest_number():
    others = dict.fromkeys((6, 5, 9), (1, 2)) | {4: (1,)}
    assert {connects(Lone((1, 2), others, seed=seed).round())[0] for seed in range(30)} == {5, 6, 9}
    assert {connects(Lone((1, 2), others, seed=seed, ties="lowest").round())[0] for seed in range(30)} == {5}
    assert connects(Lone((1, 2), {}, ties="lowest").round()) == []


def drawn(aim, view: View, but: int = 0) -> set[int | None]:
    return {aim.next_node(view, view.known & ~but, Random(seed)) for seed in range(60)}


def test_figure_5_lines_1_to_9_greedy_takes_who_covers_most_of_what_the_neighbours_do_not_cover():
    view = View({4: (1, 2, 3), 5: (3, 4), 6: (3, 4, 9), 7: (1, 3), 8: (9,)})
    aim = covered(GreedyCoverage, (1, 2, 3, 4), [(1, 2), (1, 2, 3)], 2)
    assert drawn(aim, view) == {5, 6}
    assert drawn(aim, view, bitset([5, 6])) == {4, 7}  # topic 3 is not covered twice yet
    assert drawn(aim, view, bitset([4, 5, 6, 7])) == {None}


def test_figure_5_lines_10_to_19_random_takes_anybody_who_covers_any_of_it():
    view = View({4: (1, 2, 3), 5: (3, 4), 6: (3, 4, 9), 7: (1, 2), 8: (9,)})
    aim = covered(RandomCoverage, (1, 2, 3, 4), [(1, 2), (1, 2, 3)], 2)
    assert drawn(aim, view) == {4, 5, 6}
    assert drawn(aim, view, bitset([4, 5, 6])) == {None}


def test_section_3_9_1_similarity_takes_who_has_most_in_common_and_random_anybody():
    view = View({4: (1, 2, 3), 5: (3, 4), 6: (3, 4, 9), 7: (1, 2, 4), 8: (9,)})
    aim = SimilarNodes(2)
    aim.recount(frozenset((1, 2, 3, 4)), [frozenset((1, 2))])
    assert drawn(aim, view) == {4, 7}
    assert drawn(aim, view, bitset([4, 5, 6, 7])) == {8}
    assert (aim.limit, aim.missing(), aim.missing([frozenset()])) == (2, 1, 2)
    assert drawn(AnyNodes(1), view) == {4, 5, 6, 7, 8}
    assert AnyNodes(1).next_node(view, 0, Random(1)) is None
