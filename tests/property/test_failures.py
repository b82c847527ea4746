"""Nodes that fail and come back: overlays leave them alone for a while, and then choose them like any other."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core.bitset import members
from peer.core.contract import Effect, Event
from peer.core.failures import FORGET_NS, Failures
from peer.protocols.registry import Composition, compose
from peer.testing import Solo, connects, timers

SECOND_NS = 1_000_000_000
ME = 0
OVERLAYS = [
    {"name": "random", "degree": 3},
    {"name": "gossipsub-bounded", "degree": 3},
    {"name": "topiary", "degree": 3},
]
events = st.lists(st.tuples(st.integers(0, 20 * SECOND_NS), st.none() | st.integers(0, 5)), max_size=40)


class Chooser(Solo):
    """A node with an overlay that opens three links, all of which come up at once."""

    def __init__(self, overlay: dict, others: int, seed: int = 1) -> None:
        super().__init__(compose(ME, seed, (0,), Composition(overlay)))
        self.linked: list[int] = []
        self.start(dict.fromkeys(range(others + 1), (0,)))

    def give(self, event: Event) -> list[Effect]:
        effects = super().give(event)
        for peer in connects(effects):
            if peer not in self.linked:
                self.linked.append(peer)
                self.link_up(peer)
        return effects

    def fail(self, now_ns: int, peer: int) -> list[int]:
        """Lose the link to a peer for good, and return the nodes that this one asks for in its place."""
        self.linked.remove(peer)
        return connects(self.at(now_ns).link_down(peer))


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
    [(name, at_ns)] = timers(chooser.at(SECOND_NS).link_down(failed)).items()
    assert name == "overlay/refill"
    assert at_ns < FORGET_NS
    assert failed in connects(chooser.at(at_ns).fire(name))


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
