"""Links of a node's own choice: how many there are, which nodes are drawn, and how long a failure counts."""

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core.bitset import bitset, members
from peer.core.contract import Disconnect, Effect, Event, SetTimer
from peer.core.outgoing import FORGET_NS, REFILL, REFILL_NS, OutgoingLinks
from peer.core.parts import State, Turn
from peer.protocols.registry import Composition, compose
from peer.testing import Solo, connects, timers

SECOND_NS = 1_000_000_000
ME = 0
OVERLAYS = [
    {"name": "random", "degree": 3},
    {"name": "gossipsub-bounded", "degree": 3},
    {"name": "topiary", "degree": 3},
]


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


others = st.sets(st.integers(1, 8)).map(frozenset)
steps = st.lists(
    st.tuples(
        st.integers(0, 20 * SECOND_NS),
        st.one_of(
            st.tuples(st.just("known"), others),
            st.tuples(st.sampled_from(["down", "retrying", "close"]), st.integers(1, 8)),
            st.tuples(st.sampled_from(["fill", "timer"]), st.none()),
        ),
    ),
    max_size=30,
)


@given(degree=st.integers(0, 4), looks_again=st.booleans(), seed=st.integers(0, 2**32), odd=st.booleans(), steps=steps)
def test_links_are_refilled_from_the_candidates_until_none_is_left(degree, looks_again, seed, odd, steps):
    """A model of what may be chosen, over all orders of events; ``odd``: odd numbers are preferred, for topic 1."""

    def prefer(fresh: int) -> tuple[int, int | None]:
        preferred = fresh & bitset(range(1, 9, 2))
        return (preferred, 1) if odd and preferred else (fresh, None)

    membership = SimpleNamespace(known=bitset(range(1, 7)))
    links = OutgoingLinks(State(ME, seed, ()), membership, degree, prefer, looks_again=looks_again)
    chosen: list[int] = []
    failed_ns: dict[int, int] = {}
    now_ns = 0
    for later_ns, (what, about) in steps:
        now_ns += later_ns
        turn = Turn(State(ME, seed, ()), now_ns)
        ended = what in ("down", "close") and about in chosen
        fills = what in ("fill", "timer") or (ended and what == "down")
        if what == "known":
            membership.known = bitset(about)
        elif what == "close":
            if ended:
                links.close(turn, about, "test")
                assert turn.effects == [Disconnect(about, "test")]
        elif what in ("down", "retrying"):
            links.link_down(turn, about, what == "retrying")
        elif what == "timer":
            failed_ns.clear()
            links.try_again(turn)
        else:
            links.fill(turn)
        if ended:
            chosen.remove(about)
            failed_ns[about] = now_ns
        failed_ns = {peer: at_ns for peer, at_ns in failed_ns.items() if now_ns - at_ns < FORGET_NS}
        asked = connects(turn.effects)
        due = [effect for effect in turn.effects if isinstance(effect, SetTimer)]
        fresh = set(members(membership.known)) - set(chosen) - set(failed_ns)
        if not fills:
            assert not asked
            assert not due
            continue
        assert len(asked) == len(set(asked)) == min(degree - len(chosen), len(fresh))
        assert set(asked) <= fresh
        if odd:
            preferred = {peer for peer in fresh if peer % 2}
            assert len(preferred & set(asked)) == min(len(preferred), len(asked))
            assert all(links.chosen[peer] == (1 if peer % 2 else None) for peer in asked)
        chosen += asked
        assert list(links.chosen) == chosen
        is_due = len(chosen) < degree and (looks_again or failed_ns)
        assert due == ([SetTimer(REFILL, now_ns + REFILL_NS)] if is_due else [])


def test_a_preference_may_hold_for_one_time_only():
    membership = SimpleNamespace(known=bitset({2, 3}))
    links = OutgoingLinks(State(ME, 1, ()), membership, 1)
    links.fill(Turn(State(ME, 1, ()), 0), lambda fresh: (bitset({3}), 7))
    assert links.chosen == {3: 7}
    links.link_down(Turn(State(ME, 1, ()), 1), 3, retrying=False)
    assert links.chosen == {2: None}


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay["name"])
def test_a_node_that_finds_too_few_others_looks_again_except_with_bounded_gossipsub(overlay: dict):
    solo = Solo(compose(ME, 1, (0,), Composition(overlay)))
    solo.start({1: (0,)})
    assert (solo.timers.get(REFILL) == REFILL_NS) == (overlay["name"] != "gossipsub-bounded")


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
