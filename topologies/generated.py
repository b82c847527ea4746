"""Underlays that are computed, not measured."""

from collections.abc import Sequence
from math import sqrt
from random import Random

import numpy as np
import numpy.typing as npt

from topologies.geography import GEONAMES, City, distances_km, modelled_rtt_ms
from topologies.model import Host, Matrix, Underlay, between
from topologies.network import OfPair


def cities_underlay(cities: Sequence[City]) -> Underlay:
    """Return one host per city; the round-trip time is linear in the great-circle distance, the same both ways."""
    distance_km = distances_km([city.latitude for city in cities], [city.longitude for city in cities])
    hosts = tuple(
        Host(
            name=city.name,
            site=city.name,
            country=city.country,
            latitude=city.latitude,
            longitude=city.longitude,
            population=city.population,
        )
        for city in cities
    )
    return plain_underlay("world-cities", hosts, modelled_rtt_ms(distance_km) / 2, sources=(GEONAMES,))


def square_underlay(hosts: int, side_ms: float, random: Random) -> Underlay:
    """Return hosts drawn uniformly from the unit square; the one-way delay is their distance times ``side_ms``."""
    points = np.array(draw_points(hosts, random))
    delay_ms = _squares(points[:, 0])
    delay_ms += _squares(points[:, 1])
    np.sqrt(delay_ms, out=delay_ms)
    delay_ms *= side_ms
    named = tuple(
        Host(name=f"host {number}", site=f"host {number}", x=float(x), y=float(y))
        for number, (x, y) in enumerate(points)
    )
    return plain_underlay("unit-square", named, delay_ms)


def square_delays(hosts: int, side_ms: float, random: Random) -> OfPair:
    """Return the one-way delays (ms) of ``square_underlay`` as a function of the pair, without a matrix."""
    points = draw_points(hosts, random)

    def delay_ms(source: int, destination: int) -> float:
        (x, y), (to_x, to_y) = points[source], points[destination]
        return sqrt((x - to_x) ** 2 + (y - to_y) ** 2) * side_ms

    return delay_ms


def uniform_underlay(hosts: int, delay_ms: float) -> Underlay:
    """Return hosts with the same one-way delay between any two."""
    return plain_underlay("uniform", unplaced_hosts(hosts), between(hosts, delay_ms))


def unplaced_hosts(hosts: int) -> tuple[Host, ...]:
    """Return hosts without position, each at a site of its own."""
    return tuple(Host(name=f"host {number}", site=f"host {number}") for number in range(hosts))


def plain_underlay(kind: str, hosts: tuple[Host, ...], delay_ms: Matrix, *, sources: tuple[str, ...] = ()) -> Underlay:
    """Return an underlay of delays only: no jitter, loss or access limit, nothing filled. The diagonal becomes 0."""
    size = len(hosts)
    if np.diagonal(delay_ms).any():
        delay_ms = delay_ms.copy()
        np.fill_diagonal(delay_ms, 0.0)
    return Underlay(
        kind=kind,
        hosts=hosts,
        delay_ms=delay_ms,
        jitter_ms=between(size, 0.0),
        loss_ratio=between(size, 0.0),
        rate_mbit=np.zeros((2, size)),
        queue_ms=np.zeros((2, size)),
        filled=between(size, 0, np.int8),
        sources=sources,
    )


def draw_points(count: int, random: Random) -> list[tuple[float, float]]:
    """Draw points uniformly from the unit square."""
    return [(random.random(), random.random()) for _ in range(count)]


def _squares(positions: npt.NDArray[np.float64]) -> Matrix:
    """Return (n, n) squared differences."""
    offsets = np.subtract.outer(positions, positions)
    offsets *= offsets
    return np.asarray(offsets)
