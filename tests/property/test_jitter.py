"""Jitter: mean, deviation and order by construction, the same for all who know the seed."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.simulator.network import SimulatedNetwork
from tests.property.test_dataplane_forwarder import MS_NS, Bench
from topologies.draws import TABLE_SIZE
from topologies.generated import uniform_underlay
from topologies.jitter import STEEPEST, TAIL, Jitter
from topologies.model import Underlay, between
from topologies.network import Network

seeds = st.integers(0, 2**63)
hosts = st.integers(0, 9_999)
delays = st.floats(0, 500).map(lambda value: round(value, 6))
jitters = st.floats(0.000001, 500).map(lambda value: round(value, 6))
correlations = st.floats(0.01, 1000)
instants = st.lists(st.integers(0, 10**12), min_size=1, max_size=30)
few = settings(max_examples=20, deadline=None)


@few
@given(seeds, hosts, hosts, delays, jitters, correlations, instants)
def test_order_is_kept_and_no_delay_is_negative(
    seed: int, source: int, to: int, delay_ms: float, jitter_ms: float, correlation_ms: float, at_ns: list[int]
) -> None:
    process = Jitter(seed, correlation_ms).process(source, to, delay_ms, jitter_ms)
    mean_ns, at_ns = round(delay_ms * MS_NS), sorted({*at_ns, *(each + 1 for each in at_ns)})
    taken = [(at, mean_ns + process.offset_ns(at)) for at in at_ns]
    due_ns = [at + delay for at, delay in taken]
    assert due_ns == sorted(due_ns)
    assert min(delay for _, delay in taken) >= 0
    assert max(delay for _, delay in taken) <= mean_ns + TAIL * min(jitter_ms, delay_ms) * MS_NS + 1
    for (one_ns, one), (other_ns, other) in pairwise(taken):
        assert abs(other - one) <= STEEPEST * (other_ns - one_ns) + 1


@few
@given(seeds, hosts, hosts, st.floats(0.1, 500), st.floats(0.1, 500), correlations)
def test_over_all_knots_mean_and_deviation_are_those_asked_for(
    seed: int, source: int, to: int, delay_ms: float, jitter_ms: float, correlation_ms: float
) -> None:
    """A deviation larger than the mean counts as the mean. Of each period there are 17 instants."""
    jitter = Jitter(seed, correlation_ms)
    process = jitter.process(source, to, delay_ms, jitter_ms)
    at_ns = np.arange(TABLE_SIZE * 17, dtype=np.int64) * process.period_ns // 17
    offsets_ms = process.offsets_ns(at_ns, jitter.levels) / MS_NS
    assert abs(offsets_ms.mean()) < 0.001 * delay_ms
    assert offsets_ms.std() == pytest.approx(min(delay_ms, jitter_ms), rel=0.02)


@few
@given(seeds, hosts, hosts, delays, jitters, instants)
def test_one_instant_after_the_other_or_all_at_once_is_the_same(
    seed: int, source: int, to: int, delay_ms: float, jitter_ms: float, at_ns: list[int]
) -> None:
    jitter = Jitter(seed, zero_ns=5_000_000_000)
    process = jitter.process(source, to, delay_ms, jitter_ms)
    together = process.offsets_ns(np.array(at_ns, np.int64), jitter.levels)
    assert together.tolist() == [process.offset_ns(each) for each in at_ns]
    again = Jitter(seed).process(source, to, delay_ms, jitter_ms)
    assert together.tolist() == [again.offset_ns(each - 5_000_000_000) for each in at_ns], "it counts from zero"


@few
@given(seeds, st.integers(0, 98), st.integers(0, 98))
def test_pairs_directions_and_seeds_differ(seed: int, source: int, to: int) -> None:
    def series(seed: int, source: int, to: int) -> list[int]:
        process = Jitter(seed).process(source, to, 50.0, 5.0)
        return [process.offset_ns(number * 100 * MS_NS) for number in range(20)]

    ours = series(seed, source, to)
    assert ours == series(seed, source, to)
    assert ours not in (series(seed + 1, source, to), series(seed, source, to + 1))
    assert source == to or ours != series(seed, to, source)


@few
@given(seeds, st.lists(st.integers(1, 300 * MS_NS), min_size=1, max_size=40))
def test_the_simulator_and_the_data_plane_delay_alike(seed: int, apart_ns: list[int]) -> None:
    bench = Bench(delay_ms=20.0, jitter_ms=5.0, seed=seed)
    simulated = SimulatedNetwork(Network(3, lambda *_: 20.0, jitter_ms=lambda *_: 5.0), Random(1), seed=seed)
    expected_ns = []
    for each_ns in apart_ns:
        bench.advance(bench.now_ns + each_ns)
        bench.send(0, 1)
        expected_ns.append(simulated.arrival_ns(bench.now_ns, 0, 1, 100))
    bench.drain()
    assert [at_ns for at_ns, *_ in bench.written] == expected_ns


@pytest.mark.parametrize(("jitter_ms", "kept_ms"), [(2.0, 30.0), (0.0, 0.0)])
def test_the_document_of_an_underlay_has_the_correlation_time_if_it_has_jitter(
    jitter_ms: float, kept_ms: float
) -> None:
    """A document without one is of a run whose packets each had a delay of its own, or of a run without jitter."""
    underlay = replace(uniform_underlay(3, 40.0), jitter_ms=between(3, jitter_ms), jitter_correlation_ms=30.0)
    assert Underlay.from_json(b"".join(underlay.to_json())).jitter_correlation_ms == kept_ms
    assert Network.of(underlay).jitter_correlation_ms == 30.0
