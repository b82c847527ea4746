"""The rules of links without a socket: tables joined by connections that take their time, break, and are half lost."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.composition import ComposedNode
from peer.core.contract import TimerFired
from peer.core.frames import Subscriptions
from peer.core.links import ALREADY_LINKED, PASSING, PAUSES_S, SIMULTANEOUS, STABLE_S, WAIT_S, Connection, LinkTable
from peer.core.node import Part, State
from peer.testing import Pump

MS, SECOND_NS = 1_000_000, 1_000_000_000
MOST_EVENTS = 100_000
BROKEN = "broken"


class End(Connection):
    """One side of a connection; ``gone``: this side knows that the connection is no more."""

    other: End

    def __init__(self, node: int, peer: int, opener: bool) -> None:
        super().__init__(peer, opener)
        self.node = node
        self.latest_ns = 0
        self.gone = False


class Side:
    """A table, its carrier, and a node that does nothing but insist on its links where it is told to."""

    def __init__(self, net: Network, node: int, seed: int) -> None:
        self.net = net
        self.node = node
        self.table: LinkTable[End] = LinkTable(self, node, Random(f"{seed}/{node}"))
        self.told: list[tuple] = []
        self.actions: list[tuple] = []
        self.up: set[int] = set()
        self.insists = False

    def did(self, name: str) -> list[tuple]:
        return [action for action in self.actions if action[0] == name]

    def now_ns(self) -> int:
        return self.net.now_ns

    def pause(self, peer: int, pause_s: float) -> None:
        self.actions.append(("pause", peer, pause_s))
        self.net.after(round(pause_s * 1e9), self.table.attempt, peer)

    def open(self, peer: int) -> None:
        self.actions.append(("open", peer))
        self.net.after(self.net.delay_ns(), self.net.reach, self, peer)

    def say_hello(self, end: End) -> None:
        self.net.send(end, None)

    def say_goodbye(self, end: End, reason: str) -> None:
        self.net.send(end, reason)

    def wait(self, end: End, old: End, wait_s: float) -> None:
        self.actions.append(("wait", end.peer))
        if old.other.gone:  # a probe finds it out
            self.net.after(self.net.delay_ns(), self.net.vanish, old)
        self.net.after(round(wait_s * 1e9), self.table.wait_over, end)

    def rejected(self, end: End, reason: str) -> None:
        self.actions.append(("rejected", end.peer, reason))

    def link_up(self, end: End, outbound: bool) -> None:
        assert end.peer not in self.up
        self.up.add(end.peer)
        self.told.append(("up", end.peer, outbound))

    def link_down(self, end: End, retrying: bool) -> None:
        self.up.remove(end.peer)
        self.told.append(("down", end.peer, end.reason, retrying))
        if self.insists and not retrying:
            self.table.connect(end.peer)

    def gave_up(self, peer: int, reason: str) -> None:
        assert peer not in self.up
        self.told.append(("gave up", peer, reason))
        if self.insists:
            self.table.connect(peer)


class Network:
    """Tables of nodes 0 .. n-1. What travels takes any time up to ``slowest_ms``, in order on each connection."""

    def __init__(self, nodes: int = 2, seed: int = 1, slowest_ms: int = 0) -> None:
        self.now_ns = 0
        self.draws = Random(seed)
        self.slowest_ns = slowest_ms * MS
        self.heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.order = itertools.count()
        self.ends: list[End] = []
        self.unreachable: set[int] = set()
        self.sides = [Side(self, node, seed) for node in range(nodes)]

    def delay_ns(self) -> int:
        return self.draws.randrange(self.slowest_ns + 1)

    def after(self, delay_ns: int, action: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self.heap, (self.now_ns + delay_ns, next(self.order), action, arguments))

    def step(self) -> None:
        self.now_ns, _, action, arguments = heapq.heappop(self.heap)
        action(*arguments)
        for side in self.sides:
            check(side)

    def run(self, duration_ns: int = 0) -> None:
        end_ns = self.now_ns + duration_ns
        while self.heap and self.heap[0][0] <= end_ns:
            self.step()
        self.now_ns = end_ns

    def settle(self) -> None:
        """Run until nothing is due: no attempt, no frame, no end of a connection."""
        for _ in range(MOST_EVENTS):
            if not self.heap:
                return
            self.step()
        raise AssertionError("the tables never come to rest")

    def reach(self, side: Side, peer: int) -> None:
        is_there = peer not in self.unreachable and peer != side.node
        self.after(self.delay_ns(), self.answer, side, peer, is_there)

    def answer(self, side: Side, peer: int, is_there: bool) -> None:
        if is_there and side.table.awaits(peer):
            side.table.opened(self.join(side.node, peer), peer)
        else:
            side.table.failed(peer)

    def join(self, node: int, peer: int) -> End:
        """A connection; the opener's end of it."""
        end, other = End(node, peer, True), End(peer, node, False)
        end.other, other.other = other, end
        self.ends += (end, other)
        return end

    def send(self, end: End, reason: str | None) -> None:
        if not end.gone:
            self.after(self.in_order_ns(end), self.arrive, end.other, reason)

    def in_order_ns(self, end: End) -> int:
        end.latest_ns = max(self.now_ns + self.delay_ns(), end.latest_ns)
        return end.latest_ns - self.now_ns

    def arrive(self, end: End, reason: str | None) -> None:
        table = self.sides[end.node].table
        if end.gone:
            return
        if reason is None:
            table.introduced(end, end.peer)
        else:
            table.peer_closed(end, reason)
            self.vanish(end)
            self.after(self.in_order_ns(end), self.vanish, end.other)

    def vanish(self, end: End) -> None:
        """This side learns that the connection is no more."""
        if not end.gone:
            end.gone = True
            self.sides[end.node].table.lost(end, BROKEN)

    def break_both(self, end: End) -> None:
        for each in (end, end.other):
            self.after(self.delay_ns(), self.vanish, each)

    def lose_half(self, end: End, late_ns: int) -> None:
        """This side has lost the connection, and the other one knows it only later."""
        self.vanish(end)
        self.after(late_ns, self.vanish, end.other)


def check(side: Side) -> None:
    """What holds at any instant."""
    table = side.table
    assert set(table.links) == side.up
    for peer, end in table.links.items():
        assert (end.up, end.reason, end.peer, end.gone) == (True, "", peer, False)
    assert not table.dialling & table.pending.keys()
    assert table.waiting.keys() <= table.links.keys()
    assert max(table.wanted.values(), default=0) <= len(PAUSES_S)


def check_rest(net: Network) -> None:
    """At rest every wish is met or forgotten, both sides agree, and nothing else is left."""
    assert not net.heap
    for side in net.sides:
        table = side.table
        assert not (table.dialling or table.pending or table.waiting)
        assert table.wanted.keys() <= table.links.keys()
        for peer, end in table.links.items():
            assert net.sides[peer].table.links[side.node] is end.other
    links = {end for side in net.sides for end in side.table.links.values()}
    assert {end for end in net.ends if not end.gone} == links


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


@settings(max_examples=300)
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
    net, side, old, newcomer = one_that_waits()
    getattr(side.table, how)(old, "over")
    assert (side.table.links, side.table.waiting) == ({0: newcomer}, {})
    assert side.told == [("up", 0, False), ("down", 0, "over", False), ("up", 0, False)]
    net.run(round(WAIT_S * 1e9))
    assert side.table.links == {0: newcomer}


def test_a_connection_that_waits_and_is_gone_makes_room_for_another():
    net, side, old, newcomer = one_that_waits()
    net.vanish(newcomer)
    assert not side.table.waiting
    net.run(SECOND_NS)
    side.table.introduced(second := net.join(0, 1).other, 0)
    net.run(round(WAIT_S * 1e9) - 1)
    assert (side.table.links, side.table.waiting) == ({0: old}, {0: second})


def test_a_disconnect_closes_what_waits_and_takes_no_other_connection():
    net, side, old, newcomer = one_that_waits()
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
    net, side, old, newcomer = one_that_waits()
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
    assert not table.awaits(1)
    table.failed(1)
    table.attempt(2)
    assert side.told == told
    assert not (table.wanted or table.dialling or table.pending or table.links or table.waiting)
    assert not side.did("rejected")


# -------------------------------------------------------------------------------------------------- borrowed links


class Borrower(Part):
    """Borrows links and gives them back when a timer says so."""

    borrows = True

    def fire(self, turn, name):
        _, what, peer = name.split("/")
        if what == "borrow":
            turn.borrow(int(peer))
        else:
            turn.give_back(int(peer), "given back")


class User(Part):
    """Wants links when a timer says so, asks again for those that end, and says on each that it is there."""

    frames = (Subscriptions,)

    def __init__(self, state):
        super().__init__(state)
        self.mine: set[int] = set()

    def fire(self, turn, name):
        _, what, peer = name.split("/")
        if what == "connect":
            self.mine.add(int(peer))
            turn.connect(int(peer))
        else:
            self.mine.discard(int(peer))
            turn.disconnect(int(peer), "pruned")

    def link_up(self, turn, peer):
        turn.send(peer, Subscriptions(()))

    def link_down(self, turn, peer, reason, retrying):
        if peer in self.mine and not retrying:
            turn.connect(peer)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["membership/borrow", "membership/give back", "overlay/connect", "overlay/disconnect"]),
            st.integers(0, 1),
            st.sampled_from([0, 0, 3, 40, 200]),
        ),
        max_size=15,
    ),
    st.sampled_from([0, 1, 35]),
)
def test_a_borrowed_link_is_there_as_long_as_a_part_uses_it_and_no_longer(steps, delay_ms):
    users = {}
    nodes = {}
    for node in range(2):
        state = State(node, 1, (), 2)
        users[node] = User(state)
        nodes[node] = ComposedNode(state, {"membership": Borrower(state), "overlay": users[node]})
    pump = Pump(nodes, lambda source, destination: delay_ms * MS)
    pump.start()
    for what, node, pause_ms in steps:
        if what == "membership/give back" and 1 - node not in nodes[node].state.borrowed:
            continue
        pump.give(node, TimerFired(f"{what}/{1 - node}"))
        pump.run(pause_ms * MS)
    pump.run(10 * SECOND_NS)
    used = any(users[node].mine or nodes[node].state.borrowed for node in nodes)
    assert pump.links() == ({(0, 1)} if used else set())
    assert [pump.linked(node) for node in nodes] == ([{1}, {0}] if used else [set(), set()])
    for node, made in nodes.items():
        assert set(made.state.neighbours) == ({1 - node} if any(user.mine for user in users.values()) else set())
