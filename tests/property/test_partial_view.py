"""The partial view: its size, its fairness, and that it never drifts."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from peer.core.bitset import bitset, members
from peer.core.contract import Directory, PeerInfo
from peer.core.membership.partial_view import PartialParameters, PartialView
from peer.core.parts import State, Turn

ratios = st.floats(0, 1)
networks = st.frozensets(st.integers(0, 300), max_size=80)


def view(ratio: float, node: int = 0, seed: int = 1) -> PartialView:
    return PartialView(State(node, seed, ()), PartialParameters(ratio))


def meet(made: PartialView, nodes) -> set[int]:
    made.meet(Turn(made.state, 0), Directory(PeerInfo(node, (node % 3,)) for node in nodes))
    return set(members(made.known))


@given(ratios, networks, st.integers(0, 300))
def test_a_view_is_of_the_share_asked_for_and_never_of_oneself(ratio: float, network: frozenset[int], node: int):
    others = network - {node}
    known = meet(made := view(ratio, node), network)
    assert known <= others
    assert len(known) == round(ratio * len(others))
    for topic in range(3):
        assert set(members(made.subscribers(topic))) == {n for n in known if n % 3 == topic}
    for other in network:
        assert made.topics_of(other) == (frozenset({other % 3}) if other in known else frozenset())


@given(ratios, st.lists(networks.filter(lambda nodes: nodes - {0}), min_size=2, max_size=6), st.integers(0, 2**32))
def test_whoever_was_judged_once_is_never_judged_again(ratio: float, answers: list[frozenset[int]], seed: int):
    made = view(ratio, seed=seed)
    judged: dict[int, bool] = {}
    for answer in answers:
        known = meet(made, answer)
        assert known <= answer
        for node in answer - {0}:
            assert judged.setdefault(node, node in known) == (node in known)


@given(ratios, networks.filter(lambda nodes: nodes - {0}), networks, networks)
def test_a_newcomer_is_judged_alike_whoever_comes_with_it(
    ratio: float, start: frozenset[int], one: frozenset[int], other: frozenset[int]
):
    late = bitset(one & other - start - {0})
    views = [view(ratio), view(ratio)]
    for made, more in zip(views, (one, other), strict=True):
        meet(made, start)
        meet(made, start | more)
    assert views[0].known & late == views[1].known & late


def test_first_draws_and_newcomers_are_uniform_over_a_network():
    """200 views of 10 % of 200 nodes, then of 200 newcomers: every node is in about 20 of them (binomial)."""
    first, later = Counter(), Counter()
    for node in range(200):
        made = view(0.1, node)
        first.update(meet(made, range(200)))
        later.update(n for n in meet(made, range(400)) if n >= 200)
    for counts, span in ((first, range(200)), (later, range(200, 400))):
        assert abs(sum(counts.values()) / 200 - 20) < 1.5
        assert all(2 <= counts[node] <= 44 for node in span)  # 4.2 and 5.6 standard deviations from 20
        spread = sum((counts[node] - 20) ** 2 for node in span) / 200
        assert 11 < spread < 27  # 18 expected


def test_other_seeds_and_nodes_know_others():
    assert len({frozenset(meet(view(0.2, seed=seed), range(100))) for seed in range(5)}) == 5
    assert len({frozenset(meet(view(0.2, node=500 + node), range(100))) for node in range(5)}) == 5
