"""Nodes that fail and come back: overlays leave them alone for a while, and then choose them like any other."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core.bitset import members
from peer.core.contract import (
    Connect,
    Directory,
    LinkDown,
    LinkUp,
    PeerInfo,
    PeerList,
    SetTimer,
    Started,
    TimerFired,
)
from peer.core.failures import FORGET_NS, Failures
from peer.protocols.registry import Composition, compose

SECOND_NS = 1_000_000_000
ME = 0
OVERLAYS = [
    {"name": "random", "degree": 3},
    {"name": "gossipsub-bounded", "degree": 3},
    {"name": "topiary", "degree": 3},
]
events = st.lists(st.tuples(st.integers(0, 20 * SECOND_NS), st.none() | st.integers(0, 5)), max_size=40)


class Chooser:
    """A node with an overlay that opens three links, all of which come up at once."""

    def __init__(self, overlay: dict, others: int, seed: int = 1) -> None:
        self.node = compose(ME, seed, (0,), Composition(overlay))
        self.linked: list[int] = []
        self.node.handle(0, Started())
        self.told = Directory(PeerInfo(number, (0,)) for number in range(others + 1))
        self.give(0, PeerList(self.told))

    def give(self, now_ns: int, event) -> list[int]:
        """Whom it asks for in answer."""
        asked = [it.peer for it in self.node.handle(now_ns, event) if isinstance(it, Connect)]
        for peer in asked:
            if peer not in self.linked:
                self.node.handle(now_ns, LinkUp(peer, True))
                self.linked.append(peer)
        return asked

    def fail(self, now_ns: int, peer: int) -> list[int]:
        self.linked.remove(peer)
        return self.give(now_ns, LinkDown(peer, "reset", retrying=False))


@given(events)
def test_a_failure_counts_until_its_time_is_over(steps: list):
    failures, at_ns, now_ns = Failures(), {}, 0
    for later_ns, node in steps:
        now_ns += later_ns
        if node is None:
            assert set(members(failures.at(now_ns))) == {
                node for node, since_ns in at_ns.items() if now_ns - since_ns < FORGET_NS
            }
        else:
            failures.add(now_ns, node)
            at_ns[node] = now_ns


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay["name"])
def test_a_node_that_failed_is_a_candidate_again_after_a_while(overlay: dict):
    chooser = Chooser(overlay, others=5)
    first, second, third = chooser.linked
    [fourth] = chooser.fail(SECOND_NS, first)
    [fifth] = chooser.fail(SECOND_NS + FORGET_NS - 1, second)
    assert {fourth, fifth} == set(range(1, 6)) - {first, second, third}, "the first has only just failed"
    assert chooser.fail(SECOND_NS + FORGET_NS, third) == [first], "and now it is the only one that has not"


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay["name"])
def test_where_all_others_failed_they_are_tried_again_soon(overlay: dict):
    chooser = Chooser(overlay, others=3)
    failed = chooser.linked[0]
    effects = chooser.node.handle(SECOND_NS, LinkDown(failed, "reset", retrying=False))
    [timer] = [it for it in effects if isinstance(it, SetTimer)]
    assert timer.name == "overlay/refill"
    assert timer.at_ns < FORGET_NS
    assert Connect(failed) in chooser.node.handle(timer.at_ns, TimerFired(timer.name))


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay["name"])
def test_under_churn_every_node_is_chosen_time_and_again(overlay: dict):
    """Every 20 s a neighbour crashes and comes back: all nodes are drawn alike in the long run."""
    chooser = Chooser(overlay, others=12)
    drawn = Counter(chooser.linked)
    for step in range(400):
        drawn.update(chooser.fail((1 + step) * 20 * SECOND_NS, chooser.linked[0]))
        assert len(chooser.linked) == 3
    assert set(drawn) == set(range(1, 13))
    assert min(drawn.values()) > 15, "of 403 draws among twelve"
