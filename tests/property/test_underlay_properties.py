"""What holds of every underlay, whatever the data."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.matrices import read_matrix
from topologies.generated import plain_underlay
from topologies.importers.matrix import write_matrix
from topologies.importers.wondernetwork import fill_holes
from topologies.importers.wondernetwork_files import Measurements, Server
from topologies.model import Host
from topologies.reading import InputError
from topologies.sampling import place_hosts, spread_sample

seeds = st.integers(0, 2**32)


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=60), st.data(), seeds)
def test_samples_are_distinct_and_spread(regions: list[str], data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(1, len(regions)))
    chosen = spread_sample(regions, [1.0] * len(regions), count, Random(seed))
    assert len(chosen) == len(set(chosen)) == count
    assert len({regions[site] for site in chosen}) == min(count, len(set(regions)))


@given(st.integers(1, 8), st.lists(st.integers(0, 100), min_size=1, max_size=30), st.floats(0, 10))
def test_placing_copies_delays_and_invents_none(sites: int, raw: list[int], access_ms: float) -> None:
    delay_ms = np.random.default_rng(sites).uniform(1, 300, (sites, sites))
    underlay = plain_underlay("x", tuple(Host(name=f"s{site}", site=f"s{site}") for site in range(sites)), delay_ms)
    chosen = [number % sites for number in raw]
    placed = place_hosts(underlay, chosen, access_ms)
    for a, site_a in enumerate(chosen):
        for b, site_b in enumerate(chosen):
            expected = underlay.delay_ms[site_a, site_b] if site_a != site_b else 2 * access_ms * (a != b)
            assert placed.delay_ms[a, b] == expected
    assert len({host.name for host in placed.hosts}) == len(chosen)


@given(
    arrays.arrays(np.float64, (6, 6), elements=st.floats(0.1, 500)),
    arrays.arrays(np.bool_, (6, 6)),
)
def test_filling_keeps_every_measurement_and_marks_everything_else(rtt_ms: np.ndarray, holes: np.ndarray) -> None:
    measured = ~holes & ~np.eye(6, dtype=bool)
    rtt_ms = np.where(measured, rtt_ms, np.nan)
    servers = tuple(Server(str(number), f"s{number}", "", "", 0, 0) for number in range(6))
    try:
        full_ms, _, filled = fill_holes(Measurements(servers, rtt_ms, rtt_ms))
    except InputError:
        return
    assert np.array_equal(full_ms[measured], rtt_ms[measured])
    assert np.array_equal(filled == 0, measured | np.eye(6, dtype=bool))
    assert np.array_equal(full_ms[filled == 1], rtt_ms.T[filled == 1])
    assert np.isfinite(full_ms).all()


@given(arrays.arrays(np.float64, (4, 4), elements=st.floats(0, 60_000).map(lambda value: round(value, 6))))
def test_matrices_survive_the_file(tmp_path_factory, delay_ms: np.ndarray) -> None:
    np.fill_diagonal(delay_ms, 0)
    path = tmp_path_factory.mktemp("matrix") / "m.csv"
    write_matrix(path, ["a", "b 1", 'c "x"', "d, e"], delay_ms)
    names, found = read_matrix(path)
    assert names == ["a", "b 1", 'c "x"', "d, e"]
    assert np.array_equal(found, delay_ms)
