"""WonderNetwork's pings between 246 cities, as an underlay.

Latencies stay as measured, per direction. Pairs without a measurement are filled; ``Underlay.filled`` shows which.
``topologies.pings`` reads the published files.

Source: WonderNetwork, "A day in the life of the Internet", 19-20 July 2020.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from topologies.generated import plain_underlay
from topologies.model import Host, Matrix, Underlay
from topologies.reading import InputError

ATTRIBUTION = "Latencies: WonderNetwork (https://wondernetwork.com), 19-20 July 2020"


class Server(Struct, frozen=True):
    """A row of the server list. ``continent`` is WonderNetwork's number (3 = Europe and Asia)."""

    id: str
    title: str
    country: str
    continent: str
    latitude: float
    longitude: float


class Measurements(Struct, frozen=True):
    """The measurements between n servers.

    Attributes:
        servers: the servers with pings, in the order of the server list.
        rtt_ms: (n, n) mean round-trip time measured by the row's server; NaN = not measured.
        mdev_ms: (n, n) its standard deviation (mdev of ping); NaN = not measured.
        unknown_rows: rows left out because an id is not in the server list.
    """

    servers: tuple[Server, ...]
    rtt_ms: Matrix
    mdev_ms: Matrix
    unknown_rows: int = 0


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
    rtt_ms, mdev_ms = measurements.rtt_ms.copy(), measurements.mdev_ms.copy()
    filled = np.zeros(rtt_ms.shape, dtype=np.int8)
    np.fill_diagonal(rtt_ms, 0)
    np.fill_diagonal(mdev_ms, 0)
    for source, destination in np.argwhere(np.isnan(rtt_ms)):
        if not np.isnan(measurements.rtt_ms[destination, source]):
            filled[source, destination] = 1
            rtt_ms[source, destination] = measurements.rtt_ms[destination, source]
            mdev_ms[source, destination] = measurements.mdev_ms[destination, source]
            continue
        detours_ms = measurements.rtt_ms[source] + measurements.rtt_ms[:, destination]
        if np.isnan(detours_ms).all():
            names = [measurements.servers[end].title for end in (source, destination)]
            raise InputError(" -> ".join(names), "measured in neither direction, nor over any relay")
        relay = np.nanargmin(detours_ms)
        filled[source, destination] = 2
        rtt_ms[source, destination] = detours_ms[relay]
        mdev_ms[source, destination] = math.hypot(
            measurements.mdev_ms[source, relay], measurements.mdev_ms[relay, destination]
        )
    return rtt_ms, mdev_ms, filled
