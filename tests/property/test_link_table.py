"""The rules of links: races, attempts, waiting connections, and that nothing is left at rest."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.links import ALREADY_LINKED, PASSING, PAUSES_S, SIMULTANEOUS, STABLE_S, STOP, UNWANTED, WAIT_S
from tests.examples import examples
from tests.link_network import BROKEN, MS, SECOND_NS, End, Network, Side, check_rest

seeds = st.integers(0, 2**32)
slowness = st.sampled_from([0, 1, 50, 1000, 7000])
acts = st.lists(
    st.tuples(
        st.sampled_from(["connect", "connect", "disconnect", "break", "lose", "close the door", "open the door"]),
        st.integers(0, 2),
        st.integers(1, 2),
        st.sampled_from([0, 0, 1, 20, 300, 6000]),
    ),
    max_size=40,
)


def disturb(net: Network, what: str, node: int, peer: int) -> None:
    table = net.sides[node].table
    links = [end for end in net.ends if end.node == node and not end.gone]
    if what == "connect":
        table.connect(peer)
    elif what == "disconnect":
        table.disconnect(peer, "pruned")
    elif what == "break" and links:
        net.break_both(net.draws.choice(links))
    elif what == "lose" and links:
        net.lose_half(net.draws.choice(links), net.draws.randrange(20 * SECOND_NS))
    elif what == "close the door":
        net.unreachable.add(node)
    elif what == "open the door":
        net.unreachable.discard(node)


@settings(max_examples=examples(300))
@given(st.integers(2, 3), seeds, slowness, acts, st.booleans())
def test_after_any_turmoil_both_sides_agree_and_nothing_is_left(nodes, seed, slowest_ms, steps, insist):
    net = Network(nodes, seed, slowest_ms)
    for what, node, further, pause_ms in steps:
        disturb(net, what, node % nodes, (node + 1 + further % (nodes - 1)) % nodes)
        net.run(pause_ms * MS)
    if insist:
        net.unreachable.clear()
        for side in net.sides:
            side.insists = True
            for peer in range(nodes):
                if peer != side.node:
                    side.table.connect(peer)
    net.settle()
    check_rest(net)
    if insist:
        assert all(len(side.up) == nodes - 1 for side in net.sides)
    for side in net.sides:
        for peer in range(nodes):
            story = [told[0] for told in side.told if told[1] == peer and told[0] != "gave up"]
            assert story == (["up", "down"] * len(story))[: len(story)]


@given(seeds, st.sampled_from([0, 1, 50, 1000]))
def test_of_two_connections_opened_at_once_the_lower_nodes_survives(seed, slowest_ms):
    net = Network(2, seed, slowest_ms)
    for node in net.draws.sample(range(2), 2):
        net.sides[node].table.connect(1 - node)
    net.settle()
    check_rest(net)
    assert [side.told for side in net.sides] == [[("up", 1, True)], [("up", 0, True)]]
    assert [side.table.links[1 - side.node].opener for side in net.sides] == [True, False]
    assert not any(side.did("rejected") for side in net.sides)


@given(seeds, st.sampled_from([0, 1, 50, 1000]), st.integers(0, 1), st.integers(0, 4000))
def test_whenever_the_other_side_opens_too_there_is_one_link(seed, slowest_ms, first, later_ms):
    net = Network(2, seed, slowest_ms)
    net.sides[first].table.connect(1 - first)
    net.run(later_ms * MS)
    net.sides[1 - first].table.connect(first)
    net.settle()
    check_rest(net)
    assert [[told[:2] for told in side.told] for side in net.sides] == [[("up", 1)], [("up", 0)]]


OWN = ("nothing", "connecting", "greeting", "link that it opened", "link that it accepted")


@pytest.mark.parametrize(
    ("node", "outcomes"),
    [
        (0, ("link", "refused", "refused", "refused", "waits")),  # the lower node
        (1, ("link", "link", "link", "waits", "waits")),
    ],
)
def test_what_becomes_of_a_connection_that_comes_in(node, outcomes):
    for own, outcome in zip(OWN, outcomes, strict=True):
        net = Network()
        side, peer = net.sides[node], 1 - node
        if own == "link that it accepted":
            side.table.introduced(net.join(peer, node).other, peer)
        elif own != "nothing":
            side.table.connect(peer)
            side.table.attempt(peer)
            end = net.join(node, peer)
            if own != "connecting":
                side.table.opened(end, peer)
            if own == "link that it opened":
                side.table.introduced(end, peer)
        newcomer = net.join(peer, node).other
        side.table.introduced(newcomer, peer)
        waits = side.table.waiting.get(peer) is newcomer
        found = "waits" if waits else "link" if newcomer.up else "refused"
        assert (own, found) == (own, outcome)
        assert newcomer.reason == (SIMULTANEOUS if outcome == "refused" else "")
        assert not side.did("rejected")


def test_an_opener_that_has_a_link_when_the_answer_comes_closes_its_connection():
    net = Network()
    table = net.sides[1].table
    table.connect(0)
    table.attempt(0)
    table.opened(own := net.join(1, 0), 0)
    table.introduced(accepted := net.join(0, 1).other, 0)
    table.introduced(own, 0)
    assert (table.links, own.reason, table.pending) == ({0: accepted}, SIMULTANEOUS, {0: own})
    table.lost(own, BROKEN)
    assert (table.links, table.pending, table.dialling) == ({0: accepted}, {}, set())


def test_the_answer_to_an_attempt_brings_no_link_that_the_node_does_not_want_any_more():
    net = Network()
    side = net.sides[1]
    table = side.table
    table.connect(0)
    table.attempt(0)
    table.opened(own := net.join(1, 0), 0)
    table.introduced(link := net.join(0, 1).other, 0)
    table.peer_closed(link, "pruned")
    assert (table.wanted, table.pending) == ({}, {0: own})
    table.introduced(own, 0)
    assert (own.reason, table.links, table.pending) == (UNWANTED, {}, {})
    assert side.told == [("up", 0, True), ("down", 0, "pruned", False)]
    table.connect(0)
    assert table.dialling == {0}


@given(seeds, slowness)
def test_a_peer_that_cannot_be_reached_is_given_up_after_growing_pauses(seed, slowest_ms):
    net = Network(2, seed, slowest_ms)
    net.unreachable.add(1)
    net.sides[0].table.connect(1)
    net.settle()
    check_rest(net)
    side = net.sides[0]
    assert side.told == [("gave up", 1, "unreachable")]
    assert len(side.did("open")) == len(PAUSES_S)
    for (_, _, pause_s), mean_s in zip(side.did("pause"), PAUSES_S, strict=True):
        assert 0.5 * mean_s <= pause_s <= 1.5 * mean_s
    assert not side.table.wanted


def test_a_node_that_asks_again_before_each_attempt_gets_no_more_attempts():
    net = Network()
    net.unreachable.add(1)
    side = net.sides[0]
    steps_of_an_attempt = 3  # it begins, reaches the peer, and fails
    for _ in range(steps_of_an_attempt * len(PAUSES_S)):
        side.table.connect(1)
        net.step()
    assert side.told == [("gave up", 1, "unreachable")]
    assert len(side.did("open")) == len(PAUSES_S)


@given(seeds, slowness, st.booleans(), st.integers(0, 12_000))
def test_attempts_stop_after_a_disconnect(seed, slowest_ms, reachable, after_ms):
    net = Network(2, seed, slowest_ms)
    if not reachable:
        net.unreachable.add(1)
    side = net.sides[0]
    side.table.connect(1)
    net.run(after_ms * MS)
    side.table.disconnect(1, "pruned")
    assert not side.table.wanted
    opened, told = len(side.did("open")), len(side.told)
    net.settle()
    check_rest(net)
    assert (len(side.did("open")), len(side.told)) == (opened, told)
    assert not any(each.up for each in net.sides)


@given(seeds, slowness, st.booleans())
def test_a_goodbye_ends_the_wish_of_the_other_side(seed, slowest_ms, both):
    net = Network(2, seed, slowest_ms)
    net.sides[0].table.connect(1)
    if both:
        net.sides[1].table.connect(0)
    net.settle()
    side = net.sides[0]
    opened = len(side.did("open"))
    net.sides[1].table.disconnect(0, "pruned")
    net.settle()
    check_rest(net)
    assert side.told[-1] == ("down", 1, "pruned", False)
    assert (side.table.wanted, side.table.links, len(side.did("open"))) == ({}, {}, opened)


@given(seeds, st.sampled_from([0, 5]))
def test_a_link_that_always_breaks_at_once_is_given_up(seed, slowest_ms):
    net = Network(2, seed, slowest_ms)
    side = net.sides[0]
    side.table.connect(1)
    while net.heap:
        net.step()
        if 1 in side.up:
            net.lose_half(side.table.links[1], 0)
    check_rest(net)
    downs = [told for told in side.told if told[0] == "down"]
    assert downs == [("down", 1, BROKEN, True)] * (len(PAUSES_S) - 1) + [("down", 1, BROKEN, False)]


@pytest.mark.parametrize(("longer_ns", "first_pause"), [(0, False), (1, True)])
def test_a_link_that_stood_long_enough_starts_the_pauses_anew(longer_ns, first_pause):
    net = Network()
    side = net.sides[0]
    side.table.connect(1)
    net.run()
    net.run(round(STABLE_S * 1e9) + longer_ns)
    net.lose_half(side.table.links[1], 0)
    assert side.told[-1] == ("down", 1, BROKEN, True)
    assert (side.did("pause")[-1][2] == PAUSES_S[0]) == first_pause


@pytest.mark.parametrize("reason", [*PASSING, "stop", "wrong_run"])
def test_only_passing_reasons_are_worth_another_attempt(reason):
    for answered in (False, True):
        net = Network()
        side = net.sides[0]
        side.table.connect(1)
        side.table.attempt(1)
        side.table.opened(end := net.join(0, 1), 1)
        if answered:
            side.table.introduced(end, 1)
        side.table.peer_closed(end, reason)
        side.table.lost(end, BROKEN)
        again = reason in PASSING
        assert len(side.did("pause")) == 1 + again
        assert (1 in side.table.wanted) == again
        given_up = [] if again else [("gave up", 1, reason)]
        assert side.told == ([("up", 1, True), ("down", 1, reason, again)] if answered else given_up)


def greeting() -> tuple[Network, Side, End]:
    """A connection of node 0 that awaits the answer of node 1."""
    net = Network()
    side = net.sides[0]
    side.table.connect(1)
    while (end := side.table.pending.get(1)) is None:
        net.step()
    return net, side, end


def test_a_connection_that_breaks_before_the_answer_is_opened_again():
    _, side, end = greeting()
    side.table.lost(end, BROKEN)
    assert (len(side.did("pause")), side.table.dialling, side.told) == (2, {1}, [])


def test_a_link_that_is_wanted_again_while_its_old_attempt_closes_comes_up():
    net, side, end = greeting()
    side.table.disconnect(1, "pruned")
    side.table.connect(1)
    assert (end.reason, side.table.dialling) == ("pruned", {1})
    net.settle()
    check_rest(net)
    assert side.told == [("up", 1, True)]


def test_the_reason_is_that_of_the_side_that_closes_first_and_never_empty():
    _, side, end = greeting()
    side.table.peer_closed(end, "")
    assert end.reason == STOP
    _, side, end = greeting()
    side.table.close(end, "pruned")
    side.table.peer_closed(end, "stranger")
    assert end.reason == "pruned"


def one_that_waits() -> tuple[Network, Side, End, End]:
    """A link that node 1 has accepted, and a connection that waits for its end."""
    net = Network()
    side = net.sides[1]
    side.table.introduced(old := net.join(0, 1).other, 0)
    side.table.introduced(newcomer := net.join(0, 1).other, 0)
    assert (side.table.links, side.table.waiting) == ({0: old}, {0: newcomer})
    return net, side, old, newcomer


def test_a_connection_that_waits_is_refused_when_the_link_lives_on():
    net, side, old, newcomer = one_that_waits()
    side.table.introduced(second := net.join(0, 1).other, 0)
    assert (second.reason, newcomer.reason) == (ALREADY_LINKED, "")
    net.run(round(WAIT_S * 1e9) - 1)
    assert newcomer.reason == ""
    net.run(1)
    assert newcomer.reason == ALREADY_LINKED
    assert side.did("rejected") == [("rejected", 0, ALREADY_LINKED)] * 2
    assert (side.table.links, side.table.waiting) == ({0: old}, {})


@pytest.mark.parametrize("how", ["lost", "peer_closed", "close"])
def test_a_connection_that_waits_becomes_the_link_when_the_old_one_ends(how):
    _, side, old, newcomer = one_that_waits()
    getattr(side.table, how)(old, "over")
    assert (side.table.links, side.table.waiting) == ({0: newcomer}, {})
    assert side.told == [("up", 0, False), ("down", 0, "over", False), ("up", 0, False)]
    side.table.wait_over(newcomer)
    assert (side.table.links, newcomer.reason) == ({0: newcomer}, "")


def test_a_connection_that_waits_and_is_gone_makes_room_for_another():
    net, side, old, newcomer = one_that_waits()
    net.vanish(newcomer)
    assert not side.table.waiting
    net.run(SECOND_NS)
    side.table.introduced(second := net.join(0, 1).other, 0)
    net.run(round(WAIT_S * 1e9) - 1)
    assert (side.table.links, side.table.waiting) == ({0: old}, {0: second})


def test_a_disconnect_closes_what_waits_and_takes_no_other_connection():
    _, side, old, newcomer = one_that_waits()
    side.table.disconnect(0, "pruned")
    assert (old.reason, newcomer.reason) == ("pruned", "pruned")
    assert not (side.table.links or side.table.waiting)
    assert side.told == [("up", 0, False), ("down", 0, "pruned", False)]


def test_what_is_closing_is_neither_refused_nor_taken():
    net = Network()
    side = net.sides[1]
    end = net.join(0, 1).other
    side.table.close(end, "stop")
    side.table.refuse(end, "wrong_run")
    side.table.introduced(end, 0)
    assert (end.reason, end.up, side.actions, side.told) == ("stop", False, [], [])
    assert len(net.heap) == 1, "one goodbye is under way"


def test_a_quiet_table_keeps_its_links_opens_none_and_takes_none():
    _, side, old, newcomer = one_that_waits()
    side.table.connect(0)
    side.table.quiet = True
    assert side.table.links == {0: old}
    side.table.lost(old, BROKEN)
    assert side.told[-1] == ("down", 0, BROKEN, False)
    assert (newcomer.reason, newcomer.up) == ("stop", False)
    side.table.connect(0)
    assert not (side.did("pause") or side.table.dialling or side.table.links)


def test_nothing_that_is_due_has_an_effect_after_the_end():
    net = Network(4)
    side = net.sides[3]
    table = side.table
    for peer in range(3):
        table.connect(peer)
    table.attempt(0)
    table.opened(pending := net.join(3, 0), 0)
    table.attempt(1)
    table.introduced(old := net.join(2, 3).other, 2)
    table.introduced(waiting := net.join(2, 3).other, 2)
    told = list(side.told)
    assert table.end() == [old, pending, waiting]
    for end in (old, pending, waiting):
        end.up, end.reason = False, "left"
        table.lost(end, BROKEN)
    table.wait_over(waiting)
    assert not table.lacks(1)
    table.failed(1)
    table.attempt(2)
    table.introduced(late := net.join(0, 3).other, 0)
    assert (late.reason, side.told) == (STOP, told)
    assert not (table.wanted or table.dialling or table.pending or table.links or table.waiting)
    assert not side.did("rejected")
