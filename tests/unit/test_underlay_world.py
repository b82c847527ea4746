"""The embedded cities, the distance model, and the choice of sites."""

import json
import tracemalloc
from collections import Counter
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np
import pytest
from msgspec.structs import replace

from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.planning.underlays import make_underlay
from topologies import geography
from topologies.fit import FITS, SHAPES, cross_validate, fit_line, least_relative, line, read_pairs
from topologies.gazetteer import CITIES, SPACING_KM
from topologies.generated import cities_underlay, square_underlay, uniform_underlay
from topologies.geography import distances_km, modelled_rtt_ms, world_cities
from topologies.model import Underlay
from topologies.network import Network
from topologies.sampling import place_hosts, spread_sample


def test_great_circle_distances() -> None:
    # London Heathrow - New York JFK: 5,540 km along the great circle; a quarter of the equator; both poles.
    km = distances_km([51.4775, 40.6398, 0, 0, 90, -90], [-0.4614, -73.7789, 0, 90, 0, 0])
    assert km[0, 1] == pytest.approx(5540, rel=0.005)
    assert km[2, 3] == pytest.approx(np.pi / 2 * geography.EARTH_RADIUS_KM)
    assert km[4, 5] == pytest.approx(np.pi * geography.EARTH_RADIUS_KM)
    assert np.array_equal(km, km.T)


def test_the_cities_cover_the_world_by_the_stated_rule() -> None:
    cities = world_cities()
    assert len(cities) == len({city.name for city in cities}) == CITIES
    assert {city.continent for city in cities} == {"AF", "AS", "EU", "NA", "OC", "SA"}
    assert [city.population for city in cities] == sorted((city.population for city in cities), reverse=True)
    km = distances_km([city.latitude for city in cities], [city.longitude for city in cities])
    assert km[~np.eye(CITIES, dtype=bool)].min() >= SPACING_KM


def test_city_delays_follow_the_line_and_never_beat_light_in_fibre() -> None:
    cities = world_cities()
    underlay = cities_underlay(cities)
    km = distances_km([city.latitude for city in cities], [city.longitude for city in cities])
    apart = ~np.eye(CITIES, dtype=bool)
    assert np.allclose(underlay.rtt_ms[apart], modelled_rtt_ms(km)[apart])
    assert (underlay.rtt_ms[apart] > 0.01 * km[apart]).all()
    assert (np.diag(underlay.delay_ms) == 0).all()
    assert "GeoNames" in underlay.sources[0]
    assert "CC BY 4.0" in underlay.sources[0]


def test_twenty_cities_touch_every_continent_whatever_the_seed() -> None:
    cities = world_cities()
    regions = [city.continent for city in cities]
    weights = [float(city.population) for city in cities]
    for seed in range(50):
        chosen = spread_sample(regions, weights, 20, Random(seed))
        assert chosen == sorted(set(chosen))
        counts = Counter(regions[site] for site in chosen)
        assert len(counts) == 6
        assert max(counts.values()) <= 9


def test_larger_cities_are_drawn_more_often() -> None:
    drawn = Counter(site for seed in range(400) for site in spread_sample(["a"] * 4, [8, 4, 2, 1], 2, Random(seed)))
    assert drawn[0] > drawn[1] > drawn[2] > drawn[3] > 0


def test_hosts_of_one_city_are_two_access_delays_apart_and_the_rest_is_untouched() -> None:
    sites = cities_underlay(world_cities()[:3])
    placed = place_hosts(sites, [0, 1, 2, 0, 1, 0], 1.5)
    again = [(0, 2), (1, 2), (0, 3)]
    assert [host.name for host in placed.hosts[3:]] == [f"{sites.hosts[site].name} {count}" for site, count in again]
    assert [host.site for host in placed.hosts] == [sites.hosts[i].name for i in (0, 1, 2, 0, 1, 0)]
    assert placed.delay_ms[0, 3] == placed.delay_ms[5, 0] == placed.delay_ms[1, 4] == 3.0
    assert placed.delay_ms[0, 4] == sites.delay_ms[0, 1]
    assert placed.delay_ms[3, 2] == sites.delay_ms[0, 2]
    assert (np.diag(placed.delay_ms) == 0).all()


def test_the_square_is_euclidean_and_seeded() -> None:
    first, again, other = (square_underlay(5, 80.0, Random(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first.delay_ms, again.delay_ms)
    assert not np.array_equal(first.delay_ms, other.delay_ms)
    a, b = first.hosts[0], first.hosts[3]
    assert a.x is not None and a.y is not None and b.x is not None and b.y is not None
    assert first.delay_ms[0, 3] == pytest.approx(80 * np.hypot(a.x - b.x, a.y - b.y))


def test_uniform_is_uniform() -> None:
    assert uniform_underlay(3, 4.5).delay_ms.tolist() == [[0, 4.5, 4.5], [4.5, 0, 4.5], [4.5, 4.5, 0]]


def test_documents_read_back() -> None:
    underlay = place_hosts(cities_underlay(world_cities()[:4]), [0, 1, 2, 3, 0], 1.0)
    found = Underlay.from_json(b"".join(underlay.to_json()))
    assert found.hosts == underlay.hosts
    assert np.abs(found.delay_ms - underlay.delay_ms).max() <= 5e-7


def test_access_links_with_the_same_values_both_ways_are_one_row() -> None:
    underlay = replace(
        uniform_underlay(2, 4.5), rate_mbit=np.array([[1.0, 2.0]] * 2), queue_ms=np.array([[1.0, 2.0], [3.0, 4.0]])
    )
    document = json.loads(b"".join(underlay.to_json()))
    assert (document["rate_mbit"], document["queue_ms"]) == ([1, 2], [[1, 2], [3, 4]])
    found = Underlay.from_json(json.dumps(document).encode())
    assert (found.rate_mbit == underlay.rate_mbit).all() and (found.queue_ms == underlay.queue_ms).all()
    for wrong in ([[1, 2]], [[1, 2], [3]], [[1, 2], 3], [[1, 2]] * 3, [[1, 2], [3, -4]]):
        with pytest.raises(ValueError, match=r"xpected|inhomogeneous"):
            Underlay.from_json(json.dumps(document | {"rate_mbit": wrong}).encode())


def test_what_is_the_same_between_any_two_hosts_is_one_number() -> None:
    underlay = replace(uniform_underlay(3, 4.5), jitter_ms=np.arange(9.0).reshape(3, 3), loss_ratio=np.eye(3))
    document = json.loads(b"".join(underlay.to_json()))
    assert (document["delay_ms"], document["filled"]) == (4.5, 0)
    assert document["jitter_ms"] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    found = Underlay.from_json(json.dumps(document).encode())
    for name in ("delay_ms", "jitter_ms", "loss_ratio", "rate_mbit", "queue_ms", "filled"):
        assert np.array_equal(getattr(found, name), getattr(underlay, name)), name
        assert getattr(found, name).dtype == getattr(underlay, name).dtype, name
    for name, value in {"delay_ms": [[1]], "jitter_ms": [[0], [1], [2]], "filled": "x", "rate_mbit": [1]}.items():
        with pytest.raises(ValueError, match="xpected"):
            Underlay.from_json(json.dumps(document | {name: value}).encode())


@pytest.mark.parametrize("kind", ["uniform", "unit-square", "world-cities"])
def test_planning_and_simulating_take_few_bytes_a_pair(kind: Literal["uniform", "unit-square", "world-cities"]) -> None:
    """At 10,000 hosts 30 bytes are 3 GB; a Python float alone takes 32 with its place in a list."""
    hosts = 600
    tracemalloc.start()
    try:
        underlay = make_underlay(Experiment(name="x", underlay=UnderlaySpec(kind=kind, hosts=hosts)), Path()).underlay
        content = bytearray()
        for part in underlay.to_json():
            content += part
        held_before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        network = Network.of(Underlay.from_json(bytes(content)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert network.delay_ms(3, 4) == underlay.delay_ms[3, 4] > 0
    assert held_before < 24 * hosts**2
    assert peak - held_before < 24 * hosts**2


@pytest.mark.data
def test_the_committed_constants_come_from_the_data(data_folder: Path) -> None:
    base_ms, slope = fit_line(read_pairs(data_folder / "wondernetwork-2020"))
    assert round(base_ms, 3) == geography.RTT_BASE_MS
    assert round(slope, 6) == geography.RTT_MS_PER_KM


@pytest.mark.data
@pytest.mark.long
def test_no_candidate_beats_the_chosen_model_by_a_twentieth(data_folder: Path) -> None:
    """The choice in docs/underlays.md: the line with the least relative error, unless a richer model is worth it."""
    pairs = read_pairs(data_folder / "wondernetwork-2020")
    chosen = cross_validate(pairs, line, least_relative)
    assert chosen.abs_p50_ms == pytest.approx(17.5, abs=0.1)
    assert chosen.relative_p50_ratio == pytest.approx(0.166, abs=0.002)
    best = min(cross_validate(pairs, shape, fit).relative_p50_ratio for shape in SHAPES for fit in FITS)
    assert chosen.relative_p50_ratio <= 1.05 * best
