"""The measured planet: WonderNetwork's pings between 246 cities, as an underlay.

Latencies are kept per direction and as measured; pairs without a measurement are filled, and ``Underlay.filled`` shows
which. ``topologies.pings`` reads the published files.

Source: WonderNetwork, "A day in the life of the Internet", 19-20 July 2020.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from topologies.faults import UnderlayError
from topologies.generated import plain_underlay
from topologies.model import Host, Matrix, Underlay

ATTRIBUTION = "Latencies: WonderNetwork (https://wondernetwork.com), 19-20 July 2020"


class Server(Struct, frozen=True):
    """A row of the server list. ``continent`` is WonderNetwork's own number (3 = Europe and Asia)."""

    id: str
    title: str
    country: str
    continent: str
    latitude: float
    longitude: float


class Measurements(Struct, frozen=True):
    """What was measured between n servers.

    Attributes:
        servers: in the order of the server list, those without any ping left out.
        rtt_ms: (n, n) mean round-trip time seen from the row, NaN where there is no measurement.
        mdev_ms: (n, n) its standard deviation (what ping calls mdev), NaN where there is none.
        unknown_rows: rows left out because the server list does not have one of their ids.
    """

    servers: tuple[Server, ...]
    rtt_ms: Matrix
    mdev_ms: Matrix
    unknown_rows: int = 0


def build_underlay(measurements: Measurements) -> Underlay:
    """The underlay of all servers.

    The one-way delay from s to d is half the round-trip time that s measured to d, so the round trip of a pair is the
    mean of its two measurements. Its jitter is the measurement's standard deviation over the square root of two, so
    that the two legs of a round trip, drawn independently, vary together as the measured round trip did.

    Raises:
        UnderlayError: a pair is measured in neither direction nor over any relay.
    """
    rtt_ms, mdev_ms, filled = fill_holes(measurements)
    hosts = tuple(
        Host(server.title, server.title, server.country, server.latitude, server.longitude)
        for server in measurements.servers
    )
    underlay = plain_underlay("wondernetwork", hosts, rtt_ms / 2, sources=(ATTRIBUTION,))
    return replace(underlay, jitter_ms=mdev_ms / math.sqrt(2), filled=filled)


def fill_holes(measurements: Measurements) -> tuple[Matrix, Matrix, npt.NDArray[np.int8]]:
    """RTT, its deviation, and how each was obtained: 0 measured, 1 the reverse direction, 2 the best measured relay.

    A relay's deviation is that of its two independent legs. No measured value is changed.

    Raises:
        UnderlayError: a pair cannot be filled.
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
            raise UnderlayError(" -> ".join(names), "measured in neither direction, nor over any relay")
        relay = np.nanargmin(detours_ms)
        filled[source, destination] = 2
        rtt_ms[source, destination] = detours_ms[relay]
        mdev_ms[source, destination] = math.hypot(
            measurements.mdev_ms[source, relay], measurements.mdev_ms[relay, destination]
        )
    return rtt_ms, mdev_ms, filled
