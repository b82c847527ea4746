"""The plan of hosts' introduction: fresh pairs are fresh, controls are warm and matched, the reserve stays unused."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.testbeds.emulated.introduction import FEWEST_FOR_RESERVE, MOST_APART_S, SPREAD_S, Introduction, Slots
from metrics.recorded.first_packets import RULES
from tests.examples import examples


def plan(hosts: int, seed: int, rate_per_s: float = 8000.0) -> tuple[np.ndarray, np.ndarray, list[Slots]]:
    """(n, n, 2) delays there and back, (n, n) seconds until warm, and all attempts."""
    random = np.random.default_rng(seed)
    there_ms = random.uniform(1, 150, (hosts, hosts))
    there_ms = (there_ms + there_ms.T) / 2 + random.uniform(0, 3, (hosts, hosts))
    rtt_ms = there_ms + there_ms.T
    introduction, attempts = Introduction(there_ms, rtt_ms, random), []
    while (slots := introduction.next_attempt(rate_per_s, (rtt_ms + 50) / 1e3)) is not None:
        attempts.append(slots)
    return np.stack([there_ms, there_ms.T], axis=-1), (rtt_ms + 50) / 1e3, attempts


@settings(max_examples=examples(40), deadline=None)
@given(hosts=st.integers(1, 24), seed=st.integers(0, 2**32))
def test_first_packets_are_first_and_controls_are_not(hosts: int, seed: int) -> None:
    delays_ms, settle_s, attempts = plan(hosts, seed)
    used: set[frozenset[int]] = set()
    met: set[int] = set()
    for slots in attempts:
        warm_s = dict.fromkeys(used, -np.inf)
        for first, control, host_first, due_s in zip(*slots, strict=True):
            pair = frozenset(first.tolist())
            assert len(pair) == 2 and pair not in used
            assert host_first == (not met >= pair)
            if control[0] >= 0:
                assert warm_s[frozenset(control.tolist())] <= due_s
                apart_ms = np.abs(delays_ms[tuple(first)] - delays_ms[tuple(control)]).max()
                assert apart_ms <= RULES["hosts" if host_first else "pairs"].apart_ms
            used.add(pair)
            met |= pair
            warm_s[pair] = due_s + settle_s[tuple(first)]
        assert (np.diff(slots.due_s) >= 0).all()


@settings(max_examples=examples(20), deadline=None)
@given(hosts=st.integers(2, 40), seed=st.integers(0, 2**32))
def test_the_reserve_has_fresh_hosts_for_a_second_attempt(hosts: int, seed: int) -> None:
    _, _, attempts = plan(hosts, seed)
    if hosts < FEWEST_FOR_RESERVE:
        (only,) = attempts
        assert len(only.first) == hosts * (hosts - 1) // 2
        return
    first, second, third = attempts
    early = set(first.first.ravel().tolist())
    assert len(early) == hosts - (hosts - 2) // 2
    assert {frozenset(pair) for pair in first.first.tolist()} == {frozenset(pair) for pair in combinations(early, 2)}
    late = set(range(hosts)) - early
    assert late == set(second.first[second.host_first].ravel().tolist()) - early
    assert second.host_first.sum() == len(late)
    assert (second.control[second.host_first, 0] >= 0).sum() >= 7
    assert not third.host_first.any()
    assert max(len(second.first), len(third.first)) <= max(len(first.first), len(late) * (len(late) + 1) // 2)


def test_slots_are_spread_so_that_a_stall_meets_few_but_not_beyond_need() -> None:
    for hosts, seconds in ((4, 6 * MOST_APART_S), (20, SPREAD_S), (40, SPREAD_S)):
        _, _, (first, *_) = plan(hosts, 1)
        assert np.median(np.diff(first.due_s)) == pytest.approx(seconds / len(first.first))
    _, _, (first, *_) = plan(60, 1, rate_per_s=100.0)
    assert np.median(np.diff(first.due_s)) == pytest.approx(2 / 100)


def test_nearly_all_slots_have_controls_where_hosts_lie_in_cities() -> None:
    from topologies.generated import cities_underlay
    from topologies.geography import world_cities

    cities = world_cities()
    for seed in range(10):
        chosen = np.random.default_rng(seed).choice(200, 20, replace=False)
        underlay = cities_underlay([cities[index] for index in chosen])
        random = np.random.default_rng(seed)
        first = Introduction(underlay.delay_ms, underlay.rtt_ms, random).next_attempt(8e3, underlay.rtt_ms / 1e3)
        assert first is not None
        assert (first.control[:, 0] >= 0).mean() > 0.7
        assert (first.control[first.host_first, 0] >= 0).sum() >= 8
