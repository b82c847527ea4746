"""Link tables joined by connections that take their time, break, and are lost on one side, without a socket."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from peer.core.links import PAUSES_S, Connection, LinkTable

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
