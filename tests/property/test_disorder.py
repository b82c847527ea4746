"""Packets that arrive twice, or are overtaken, as faults ask: which, how many, and what the checks make of them."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.tables.transit_evidence import JudgedTransits
from tests.examples import examples
from tests.property.test_dataplane_bottlenecks import chain
from tests.property.test_dataplane_forwarder import HOSTS, MS_NS, Bench
from tests.property.test_transits import Analysis, Wire, access, steps
from topologies.bottlenecks import NO_BOTTLENECKS
from topologies.disorder import IN_ORDER, Disorder, PairDisorder, choose_packets
from topologies.timeline import Change, Reach

ratios = st.sampled_from([0.0, 0.01, 0.25, 1.0])
EVERYONE = tuple(range(HOSTS))
LONG_AGO_NS = -(10**12)
"""So early that no packet meets the begin of the change."""


def disorder(**values: float) -> Change:
    return Change(LONG_AGO_NS, 0, sources=EVERYONE, destinations=EVERYONE, **values)


def apply(bench: Bench, *changes: Change) -> None:
    bench.forwarder.network.change(tuple(Reach(each, HOSTS) for each in changes))


@given(
    st.integers(0, 2**63),
    st.integers(0, 10**18),
    st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 9999), st.integers(0, 2 * 10**18)), min_size=1),
    st.tuples(ratios, ratios, st.floats(0, 1000)),
)
def test_the_checks_choose_the_packets_that_the_data_plane_chooses(
    seed: int, zero_ns: int, packets: list[tuple[int, int, int]], asked: tuple[float, float, float]
) -> None:
    source, destination, read_ns = (np.array(column) for column in zip(*packets, strict=True))
    every = Disorder(*(np.full(len(packets), value) for value in asked))
    doubled, reorder_ns = choose_packets(seed, source, destination, read_ns - zero_ns, every)
    for row, (one, other, at_ns) in enumerate(packets):
        pair = PairDisorder(seed, one, other, zero_ns, Disorder(*asked))
        is_doubled, is_overtaken = pair.choose(at_ns)
        assert (is_doubled, pair.reorder_ns if is_overtaken else 0) == (doubled[row], reorder_ns[row])


@pytest.mark.parametrize("ratio", [0.01, 0.25])
def test_as_many_packets_are_chosen_as_asked_and_the_choices_are_independent(ratio: float) -> None:
    """Of packets at equal distances, and of those of many pairs at one instant; within 5 standard deviations."""
    packets = 100_000
    numbers, same = np.arange(packets), np.full(packets, 7)
    asked = Disorder(*(np.full(packets, value) for value in (ratio, ratio, 1.0)))
    for source, since_ns in ((same, numbers * MS_NS), (numbers, same)):
        doubled, reorder_ns = choose_packets(3, source, same, since_ns, asked)
        overtaken = reorder_ns > 0
        for chosen, share in ((doubled, ratio), (overtaken, ratio), (doubled & overtaken, ratio * ratio)):
            assert abs(chosen.mean() - share) < 5 * (share * (1 - share) / packets) ** 0.5


def test_another_seed_pair_or_instant_chooses_others() -> None:
    instants = [number * MS_NS for number in range(200)]

    def chosen(*pair: int, later_ns: int = 0) -> list[tuple[bool, bool]]:
        found = PairDisorder(*pair, 0, Disorder(0.5, 0.5, 1.0))
        return [found.choose(at_ns + later_ns) for at_ns in instants]

    variants = [chosen(1, 2, 3), chosen(2, 2, 3), chosen(1, 3, 3), chosen(1, 2, 4), chosen(1, 2, 3, later_ns=1)]
    assert len({tuple(each) for each in variants}) == len(variants)
    assert chosen(1, 2, 3) == variants[0]


def test_what_two_faults_ask_together() -> None:
    both = Disorder(0.5, 0.2, 10.0).join(Disorder(0.5, 0.0, 30.0))
    assert both == pytest.approx((0.75, 0.2, 30.0))
    assert both.join(IN_ORDER) == both == IN_ORDER.join(both)


@given(st.lists(st.integers(0, 20 * MS_NS), min_size=1, max_size=60), ratios, ratios, st.integers(0, 99))
def test_chosen_frames_arrive_twice_or_later_and_all_others_in_order(
    pauses_ns: list[int], duplicate_ratio: float, reorder_ratio: float, seed: int
) -> None:
    bench = Bench(seed=seed)
    apply(bench, disorder(duplicate_ratio=duplicate_ratio, reorder_ratio=reorder_ratio, reorder_ms=25.0))
    asked = PairDisorder(seed, 0, 1, 0, Disorder(duplicate_ratio, reorder_ratio, 25.0))
    expected: Counter[tuple[int, int]] = Counter()
    for pause_ns in pauses_ns:
        bench.advance(bench.now_ns + pause_ns)
        is_doubled, is_overtaken = asked.choose(bench.now_ns)
        due_ns = bench.now_ns + (35 if is_overtaken else 10) * MS_NS
        expected[due_ns, bench.send(0, 1)] += 1 + is_doubled
    bench.drain()
    assert Counter((at_ns, number) for at_ns, _, _, number in bench.written) == expected
    counters = bench.forwarder.counters()
    assert counters.frames_doubled == expected.total() - len(pauses_ns)
    assert (counters.frames_out, counters.in_flight, bench.drops) == (expected.total(), 0, {})


def test_frames_keep_their_order_when_such_a_fault_begins_and_ends() -> None:
    """Even if the delay falls meanwhile: no frame of another kind overtakes."""
    bench = Bench(delay_ms=10.0)
    slow = Change(LONG_AGO_NS, 0, sources=EVERYONE, destinations=EVERYONE, delay_factor=5.0)
    states = [(slow,), (disorder(duplicate_ratio=0.5),), (slow,), (disorder(duplicate_ratio=0.5), slow), ()]
    for changes in states * 3:
        apply(bench, *changes)
        for _ in range(5):
            bench.advance(bench.now_ns + MS_NS)
            bench.send(0, 1)
    bench.drain()
    numbers = [number for *_, number in bench.written]
    assert numbers == sorted(numbers)
    assert set(Counter(numbers).values()) == {1, 2}


def play(actions: list[tuple[int, int, int, int]], change: Change, **network: Any) -> Wire:
    wire = Wire(**network)
    apply(wire.bench, change)
    for wait_ns, source, ahead, size in actions:
        wire.bench.advance(wire.bench.now_ns + wait_ns)
        wire.send(source, (source + ahead) % HOSTS, size)
    return wire.finish()


def count(found: list[JudgedTransits], name: str) -> int:
    return sum(int(np.count_nonzero(getattr(rows, name))) for rows in found)


@settings(max_examples=examples(60), deadline=None)
@given(
    steps,
    st.tuples(st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.5]), st.sampled_from([1.0, 25.0])),
    st.tuples(access, access),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([NO_BOTTLENECKS, chain((0.8, 10.0), (4.0, 100.0))]),
)
def test_a_sound_plane_has_no_error_whatever_disorder_is_asked(
    actions: list[tuple[int, int, int, int]],
    asked: tuple[float, float, float],
    links: tuple[tuple[float, float], tuple[float, float]],
    loss_ratio: float,
    jitter_ms: float,
    bottlenecks: Any,
) -> None:
    change = disorder(**dict(zip(("duplicate_ratio", "reorder_ratio", "reorder_ms"), asked, strict=True)))
    up, down = links
    rates = dict(zip(("rate_mbit", "queue_ms", "down_mbit", "down_queue_ms"), (*up, *down), strict=True))
    wire = play(actions, change, loss_ratio=loss_ratio, jitter_ms=jitter_ms, bottlenecks=bottlenecks, **rates)
    drops, doubled = wire.bench.drops, wire.bench.forwarder.frames_doubled
    with Analysis(wire, changes=[change]) as analysis:
        found = analysis.rows(degraded=True)
        for rows in found:
            assert rows.deviation_ms[rows.timed].tolist() == [0.0] * int(rows.timed.sum())
        assert count(found, "came") == len(wire.bench.written)
        assert count(found, "invented") == 0
        full_at_source = sum(drops.values()) if up[0] else 0  # such packets have copies only in the analysis
        assert 0 <= count(found, "left") - len(actions) - doubled <= full_at_source
        assert loss_ratio or count(found, "lost") == 0


def test_a_packet_that_arrives_twice_unasked_is_found_even_among_those_that_may() -> None:
    change = disorder(duplicate_ratio=0.2)
    wire = play([(5 * MS_NS, 0, 1, 100)] * 200, change)
    arrivals = Counter(number for *_, is_tx, number, _ in wire.crossings if not is_tx)
    once = max(number for number, copies in arrivals.items() if copies == 1)
    wire.crossings += [each for each in wire.crossings if each[4] == once and not each[3]]
    with Analysis(wire, changes=[change]) as analysis:
        degraded = analysis.weigh().degraded
    assert degraded is not None
    assert (degraded.plain_sent, degraded.plain_lost, degraded.invented) == (sum(arrivals.values()), 0, 1)


def test_a_packet_that_arrives_once_and_should_arrive_twice_is_lost() -> None:
    change = disorder(duplicate_ratio=0.2)
    wire = play([(MS_NS, 0, 1, 100)] * 200, change)
    arrivals = Counter(number for *_, is_tx, number, _ in wire.crossings if not is_tx)
    twice = next(number for number, copies in arrivals.items() if copies == 2)
    wire.crossings.remove(next(each for each in wire.crossings if each[4] == twice and not each[3]))
    with Analysis(wire, changes=[change]) as analysis:
        degraded = analysis.weigh().degraded
    assert degraded is not None
    assert (degraded.plain_lost, degraded.invented) == (1, 0)
