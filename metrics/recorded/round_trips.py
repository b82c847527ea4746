"""Evaluate ``round_trips.parquet``: the round trips that machines measured on their own network.

A row is a request. Pairs are pairs of addresses, since nodes may share an address.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from metrics.measures.measure import quantile
from metrics.rundir.documents import Placement
from metrics.rundir.files import ROUND_TRIPS_FILE
from metrics.rundir.parquet import read_recorded
from metrics.rundir.phases import PHASES
from metrics.storage import Place
from topologies.link_graph import unlimited
from topologies.model import Underlay, between

SCHEMA: Final = pa.schema(
    [
        pa.field("src_ip", pa.string(), nullable=False),
        pa.field("dst_ip", pa.string(), nullable=False),
        pa.field("phase", pa.string(), nullable=False),
        pa.field("at_ns", pa.int64(), nullable=False),
        pa.field("rtt_ms", pa.float64()),
    ]
)
"""``docs/results.md`` explains the columns."""

Floats = npt.NDArray[np.float64]

Pair = tuple[str, str]


class PhaseTrips(Struct, frozen=True):
    """The round trips of a phase.

    Attributes:
        pairs: how many pairs were probed.
        silent: the pairs that answered no request, of at least ``FEWEST`` requests.
        sent: the number of requests.
        received: the number of requests that were answered.
        least_ms: the shortest round trip of each pair that answered.
        p50_ms: the median over all requests; 0 = none was answered.
        p99_ms: the 99th percentile likewise.
    """

    pairs: int
    silent: tuple[Pair, ...]
    sent: int
    received: int
    least_ms: dict[Pair, float]
    p50_ms: float
    p99_ms: float


FEWEST: Final = 2
"""The number of requests without an answer that show that a pair does not answer."""


def read_round_trips(run_dir: Place) -> pa.Table | None:
    """Read the rows; None = there is no file."""
    path = run_dir / ROUND_TRIPS_FILE
    return read_recorded(path, SCHEMA) if path.exists() else None


def measure_phases(rows: pa.Table) -> dict[str, PhaseTrips]:
    """Return what was measured in each phase that has rows."""
    phases = ((phase, rows.filter(pc.equal(rows["phase"], phase))) for phase in PHASES)
    return {phase: _measure(found) for phase, found in phases if len(found)}


def _measure(rows: pa.Table) -> PhaseTrips:
    found = _by_pair(rows)
    answered_ms = rows["rtt_ms"].drop_null().to_numpy()
    return PhaseTrips(
        pairs=len(found),
        silent=tuple(pair for pair, (sent, least_ms, _) in found.items() if least_ms is None and sent >= FEWEST),
        sent=len(rows),
        received=len(answered_ms),
        least_ms={pair: least_ms for pair, (_, least_ms, _) in found.items() if least_ms is not None},
        p50_ms=quantile(answered_ms, 0.5) or 0.0,
        p99_ms=quantile(answered_ms, 0.99) or 0.0,
    )


def _by_pair(rows: pa.Table) -> dict[Pair, tuple[int, float | None, float | None]]:
    """Return requests, shortest and median round trip of each pair."""
    grouped = rows.group_by(["src_ip", "dst_ip"]).aggregate(
        [("rtt_ms", "count", pc.CountOptions("all")), ("rtt_ms", "min"), ("rtt_ms", "approximate_median")]
    )
    names = ("rtt_ms_count", "rtt_ms_min", "rtt_ms_approximate_median")
    return {(row["src_ip"], row["dst_ip"]): tuple(row[name] for name in names) for row in grouped.to_pylist()}


def measured_underlay(asked: Underlay, rows: pa.Table, placement: Sequence[Placement]) -> Underlay:
    """Return an underlay with the delays that were measured, without jitter, loss and rates.

    The delay from one host to another is half of the median round trip of the idle network, in both directions, since
    nothing shows how a round trip divides. A pair that was not measured has NaN.

    Args:
        asked: an underlay with the hosts.
        rows: the rows of ``round_trips.parquet``.
        placement: the addresses of the hosts.
    """
    idle = _by_pair(rows.filter(pc.not_equal(rows["phase"], "during")))
    addresses = {place.host: place.wan_ip for place in placement}
    delay_ms = np.full((asked.size, asked.size), np.nan)
    for source, own in addresses.items():
        for destination, other in addresses.items():
            medians = [idle[pair][2] for pair in ((own, other), (other, own)) if pair in idle]
            known = [median for median in medians if median is not None]
            if known:
                delay_ms[source, destination] = sum(known) / len(known) / 2
    np.fill_diagonal(delay_ms, 0)
    nothing, none = between(asked.size, 0), np.zeros((2, asked.size))
    graph = asked.graph and unlimited(asked.graph)
    return replace(
        asked, delay_ms=delay_ms, jitter_ms=nothing, loss_ratio=nothing, rate_mbit=none, queue_ms=none, graph=graph
    )
