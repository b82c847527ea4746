"""WonderNetwork's pings between 246 cities, as an underlay.

Latencies stay as measured, per direction. Pairs without a measurement are filled; ``Underlay.filled`` shows which.
``topologies.importers.wondernetwork_files`` reads the published files.

Source: WonderNetwork, "A day in the life of the Internet", 19-20 July 2020.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from topologies.generated import plain_underlay
from topologies.holes import ESTIMATES, RELAYED, REVERSED, fill
from topologies.importers import Options
from topologies.importers.imported import Imported
from topologies.importers.wondernetwork_files import Measurements, Server, published_files, read_measurements
from topologies.model import Host, Matrix, Underlay, between
from topologies.provenance import Provenance, hash_files
from topologies.reading import InputError

ATTRIBUTION = "Latencies: WonderNetwork (https://wondernetwork.com), 19-20 July 2020"


def read_file(path: Path, options: Options) -> Imported:
    """Read the published pings. A sample is spread over WonderNetwork's continents.

    Raises:
        InputError: see ``topologies.importers.wondernetwork_files.read_measurements``, or a pair cannot be filled.
    """
    measurements = read_measurements(path)
    underlay = build_underlay(measurements)
    reverse, relayed = (int((underlay.filled == how).sum()) for how in (REVERSED, RELAYED))
    filled = (
        f"filled: {reverse} pairs taken from the reverse direction, {relayed} estimated over a relay, "
        f"{measurements.unknown_rows} rows of unlisted servers left out"
    )
    provenance = Provenance(
        source='WonderNetwork (https://wondernetwork.com), "A day in the life of the Internet"',
        date="19-20 July 2020",
        sha256=hash_files(*published_files(path)),
        notes=(filled,),
    )
    return Imported(underlay, tuple(server.continent for server in measurements.servers), provenance)


def build_underlay(measurements: Measurements) -> Underlay:
    """Return the underlay of all servers.

    The one-way delay from s to d is half of the round-trip time that s measured to d, so the round trip of a pair is
    the mean of its two measurements. Its jitter is the measured standard deviation divided by the square root of 2, so
    that the sum of two independent one-way delays has the measured deviation.

    Raises:
        InputError: a pair is measured in neither direction and over no relay.
    """
    rtt_ms, mdev_ms, filled = fill_holes(measurements)
    names = name_servers(measurements.servers)
    hosts = tuple(
        Host(name, name, server.country, server.latitude, server.longitude)
        for name, server in zip(names, measurements.servers, strict=True)
    )
    underlay = plain_underlay("wondernetwork", hosts, rtt_ms / 2, sources=(ATTRIBUTION,))
    return replace(underlay, jitter_ms=mdev_ms / math.sqrt(2), filled=filled)


def name_servers(servers: Sequence[Server]) -> list[str]:
    """Return a different name for each server: its title, with its id if several servers have the title.

    Raises:
        InputError: a title is another server's title with its id.
    """
    count = Counter(server.title for server in servers)
    names = [f"{server.title} ({server.id})" if count[server.title] > 1 else server.title for server in servers]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(repr(repeated[0]), "two servers have this name")
    return names


def fill_holes(measurements: Measurements) -> tuple[Matrix, Matrix, npt.NDArray[np.int8]]:
    """Return RTT, its deviation, and the source of each: 0 measured, 1 reverse direction, 2 the best measured relay.

    A relay's deviation is that of the sum of its two independent parts. Measured values do not change.

    Raises:
        InputError: a pair cannot be filled.
    """
    titles = [server.title for server in measurements.servers]
    found = fill(titles, measurements.rtt_ms, measurements.mdev_ms, between(len(titles), 0.0), ESTIMATES["relay"])
    return found.time_ms, found.deviation_ms, found.filled
