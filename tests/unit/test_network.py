"""The network of hosts as links: paths, and what is asked of a pair."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from harness.experiment.form import Experiment
from harness.experiment.loader import decode
from harness.planning.underlays import make_network, make_underlay
from topologies.generated import square_delays, square_underlay
from topologies.network import AskedOfPairs, Link, Network, ask_path, uniform_network


def test_a_path_is_access_up_pair_and_access_down():
    network = Network(3, lambda a, b: 10 * a + b, rate_mbit=[1, 2, 3, 4, 5, 6], queue_ms=[10, 20, 30, 40, 50, 60])
    links = [network.link(number) for number in network.path(2, 1)]
    assert links == [Link(rate_mbit=3, queue_ms=30), Link(delay_ms=21), Link(rate_mbit=5, queue_ms=50)]


def test_no_two_links_of_a_network_have_one_number():
    network = uniform_network(4, 1.0)
    pairs = [(a, b) for a in range(4) for b in range(4)]
    up, middle, down = (set(numbers) for numbers in zip(*(network.path(*pair) for pair in pairs), strict=True))
    assert (len(up), len(middle), len(down), len(up | middle | down)) == (4, 16, 4, 24)


@pytest.mark.parametrize("rate_mbit", [0.0, 3.0])
def test_what_is_asked_of_a_pair_is_what_the_underlay_has(rate_mbit: float):
    draws = np.random.default_rng(3)
    underlay = square_underlay(6, 100, Random(1))
    underlay = replace(
        underlay,
        jitter_ms=draws.random((6, 6)),
        loss_ratio=draws.random((6, 6)),
        rate_mbit=np.full((2, 6), rate_mbit),
        queue_ms=np.full((2, 6), 50.0),
    )
    network = Network.of(underlay)
    for pair in [(a, b) for a in range(6) for b in range(6)]:
        asked = network.asked(*pair)
        there = [matrix[pair] for matrix in (underlay.delay_ms, underlay.jitter_ms, underlay.loss_ratio)]
        assert [asked.delay_ms, asked.jitter_ms, asked.loss_ratio] == there, "exactly: nothing is added to a path"
        assert not asked.is_cut


def test_an_underlay_of_delays_alone_has_no_other_values():
    network = Network.of(square_underlay(3, 100, Random(1)))
    assert (network.jitter_ms, network.loss_ratio, network.rate_mbit) == (None, None, ())


def test_delays_by_function_are_those_of_the_matrix():
    delays, matrix = square_delays(9, 70, Random(4)), square_underlay(9, 70, Random(4)).delay_ms
    assert all(round(delays(a, b) * 1e6) == round(matrix[a, b] * 1e6) for a in range(9) for b in range(9))


@pytest.mark.parametrize("kind", ["uniform", "unit-square", "world-cities"])
@pytest.mark.parametrize("jitter", ["measured", "none", 1.25])
@pytest.mark.parametrize("given", [{}, {"loss_ratio": 0.125, "rate_mbit": 2.5, "down_mbit": 0.0, "queue_ms": 30.0}])
def test_the_network_of_a_section_is_that_of_its_underlay(kind: str, jitter: str | float, given: dict[str, float]):
    section = {"kind": kind, "hosts": 5, "jitter": jitter, **given}
    experiment = decode({"name": "x", "seed": 7, "underlay": section}, Experiment)
    made, planned = make_network(experiment, Path()), Network.of(make_underlay(experiment, Path()).underlay)
    assert made.size == planned.size == 5
    for source, destination in [(a, b) for a in range(5) for b in range(5) if a != b]:
        for one, other in zip(made.path(source, destination), planned.path(source, destination), strict=True):
            assert tuple(made.link(one)) == pytest.approx(tuple(planned.link(other)), abs=1e-6)


def network_of_functions() -> Network:
    return Network(
        4,
        lambda a, b: 10.0 * a + b,
        loss_ratio=lambda a, b: (a + b) / 10,
        rate_mbit=[1, 0, 2, 4, 0, 5, 8, 10],
        queue_ms=[1, 2, 3, 4, 5, 6, 7, 8],
        jitter_correlation_ms=7.0,
    )


def test_matrices_are_asked_of_all_pairs_as_they_are():
    underlay = replace(square_underlay(5, 100, Random(1)), jitter_ms=np.random.default_rng(1).random((5, 5)))
    asked = Network.of(underlay).asked_of_pairs()
    assert asked.delay_ms is underlay.delay_ms and asked.jitter_ms is underlay.jitter_ms
    assert asked.loss_ratio.strides == (0, 0), "zeros use no memory"


@pytest.mark.parametrize("made", [network_of_functions(), Network.of_pairs(network_of_functions().asked_of_pairs())])
def test_what_is_asked_of_all_pairs_is_what_is_asked_of_each_and_of_its_path(made: Network):
    asked = made.asked_of_pairs()
    for pair in [(a, b) for a in range(4) for b in range(4)]:
        one = made.asked(*pair)
        assert one == (asked.delay_ms[pair], asked.jitter_ms[pair], asked.loss_ratio[pair], False)
        assert one == ask_path(made.link(number) for number in made.path(*pair))
    assert asked.jitter_ms.strides == (0, 0), "zeros use no memory"


def test_a_packet_crosses_with_the_delay_and_its_size_by_every_rate_of_its_path():
    network, crossings_ms = network_of_functions(), network_of_functions().crossings_ms(125)
    for pair in [(a, b) for a in range(4) for b in range(4)]:
        rates_mbit = [network.link(number).rate_mbit for number in network.path(*pair)]
        slow_ms = network.asked(*pair).delay_ms + sum(1 / rate for rate in rates_mbit if rate)
        assert crossings_ms[pair] == pytest.approx(slow_ms), "1000 bits take 1 ms at 1 Mbit/s"
    assert (uniform_network(3, 5.0).crossings_ms(1500) == 5).all()


def test_other_values_of_pairs_leave_access_links_as_they_are():
    network = network_of_functions()
    jittered = network.with_pairs(AskedOfPairs(*(np.full((4, 4), value) for value in (5.0, 2.0, 0.5))))
    plain = jittered.without_jitter()
    assert jittered.asked(1, 2) == (5.0, 2.0, 0.5, False)
    assert plain.asked(1, 2) == (5.0, 0.0, 0.5, False) and plain.jitter_ms is None
    for made in (jittered, plain):
        assert [made.link(number) for number in range(8)] == [network.link(number) for number in range(8)]
        assert made.jitter_correlation_ms == 7.0
