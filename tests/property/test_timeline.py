"""The changes of a network over time, against a slow loop over all changes at every instant."""

from itertools import product
from math import hypot, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.network import Asked, Network
from topologies.timeline import Change, Timeline

SIZE = 4
HOSTS = tuple(range(SIZE))
PAIRS = [pair for pair in product(HOSTS, HOSTS) if pair[0] != pair[1]]

some_hosts = st.sets(st.sampled_from(HOSTS)).map(lambda hosts: tuple(sorted(hosts)))
instants = st.integers(-3, 12)
ratios = st.sampled_from([0.0, 0.125, 0.5])


@st.composite
def some_change(draw: st.DrawFn) -> Change:
    from_ns = draw(instants)
    return Change(
        from_ns=from_ns,
        to_ns=draw(st.none() | st.integers(0, 6).map(lambda length: from_ns + length)),
        fault=draw(st.integers(0, 3)),
        **{name: draw(some_hosts) for name in ("sources", "destinations", "up", "down", "paused")},
        is_cut=draw(st.booleans()),
        delay_factor=draw(st.sampled_from([1.0, 2.0, 3.0])),
        jitter_ms=draw(st.sampled_from([0.0, 3.0, 4.0])),
        loss_ratio=draw(ratios),
        rate_mbit=draw(st.sampled_from([0.0, 1.0, 5.0])),
    )


def some_network() -> Network:
    return Network(
        SIZE,
        lambda a, b: 10.0 * a + b,
        jitter_ms=lambda a, b: 1.0 + a,
        loss_ratio=lambda a, b: b / 16,
        rate_mbit=[0.0, 2.0, 0.0, 8.0, 4.0, 0.0, 0.0, 2.0],
        queue_ms=[50.0] * 2 * SIZE,
    )


def holds(change: Change, at_ns: int) -> bool:
    return change.from_ns <= at_ns and (change.to_ns is None or at_ns < change.to_ns)


@given(st.lists(some_change(), max_size=6))
def test_what_is_asked_at_an_instant_is_composed_of_all_changes_that_hold_then(changes: list[Change]):
    """Factors multiply, the smallest rate wins, losses and jitter are independent, and a cut beats all."""
    network = some_network()
    timeline = Timeline(network, changes)
    for at_ns in range(-4, 20):
        current = [change for change in changes if holds(change, at_ns)]
        for source, destination in PAIRS:
            met = [each for each in current if source in each.sources and destination in each.destinations]
            crossed = [
                met,
                [each for each in current if source in each.up],
                [each for each in current if destination in each.down],
            ]
            every = [each for some in crossed for each in some]
            base = network.asked(source, destination)
            wanted = Asked(
                base.delay_ms * prod(each.delay_factor for each in met),
                hypot(base.jitter_ms, *(each.jitter_ms for each in every)),
                1 - (1 - base.loss_ratio) * prod(1 - each.loss_ratio for each in every),
                any(each.is_cut for each in every),
            )
            found = timeline.asked(source, destination, at_ns)
            assert tuple(found) == pytest.approx(tuple(wanted))
        assert timeline.paused(at_ns) == {host for each in current for host in each.paused}


@given(st.lists(some_change(), max_size=6), st.integers(-4, 20), st.sampled_from(HOSTS))
def test_the_smallest_rate_of_an_access_link_wins(changes: list[Change], at_ns: int, host: int):
    network = some_network()
    for number, side in ((host, "up"), (SIZE + host, "down")):
        given = [each.rate_mbit for each in changes if holds(each, at_ns) and host in getattr(each, side)]
        limits = [rate for rate in (network.rate_mbit[number], *given) if rate]
        link = Timeline(network, changes).link(number, at_ns)
        assert (link.rate_mbit, link.queue_ms) == (min(limits, default=0.0), 50.0)


@given(st.lists(some_change(), max_size=6))
def test_nothing_changes_between_two_instants(changes: list[Change]):
    timeline = Timeline(some_network(), changes)
    assert list(timeline.instants) == sorted(set(timeline.instants))
    for at_ns in set(range(-4, 20)) - set(timeline.instants):
        assert timeline.active(at_ns) == timeline.active(at_ns - 1)


def test_a_timeline_without_changes_asks_what_the_network_asks():
    network = some_network()
    timeline = Timeline(network)
    assert timeline.instants == ()
    assert all(timeline.asked(*pair, 5) == network.asked(*pair) for pair in PAIRS)


def test_a_change_counts_the_pairs_of_different_hosts():
    assert Change(from_ns=0, fault=0, sources=(0, 1), destinations=(1, 2, 3)).pairs == 5
