"""Find the messages, deliveries and nodes that a report names (``metrics.totals.Standouts``).

Each task finds those of its bucket while it has the rows in memory, and the results of all tasks are merged. The tables
of earlier versions are read piece by piece instead, when they are reported.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import of_nodes, read_adversaries
from metrics.rundir import RunDir
from metrics.rundir.files import table_file
from metrics.storage.parquet import scan_parquet
from metrics.tables.columns import exact_quantile, read_columns
from metrics.tables.schemas import arrow_schema
from metrics.tables.tallies import Tally, add_tallies
from metrics.totals import NodeDelays, SlowDelivery, Standouts

MOST_SLOWEST: Final = 10
"""How many of the slowest deliveries a report lists. Its replay has their messages."""

TYPICAL: Final = 0.5
"""The quantile of ``t50_ms`` that a typical message has."""

_SLOWEST_FIRST: Final = [("latency_ms", "descending"), ("message_id", "ascending"), ("node", "ascending")]
_COLUMNS: Final = (*SlowDelivery._fields, "publish_ns", "delivered_ns", "known")


class Found(NamedTuple):
    """What was found in some deliveries; for the fields see ``Standouts``."""

    slowest: tuple[SlowDelivery, ...]
    undelivered: int | None
    by_node: Tally[NodeDelays]


def find_standouts(honest: pa.Table) -> Found:
    """Find them in some rows of the table ``deliveries``.

    Args:
        honest: the rows of honest nodes: message_id, publisher, node, latency_ms, direct_delay_ms, publish_ns,
            delivered_ns, known.
    """
    missing = honest.filter(pc.and_(pc.is_null(honest["delivered_ns"]), honest["known"]))
    return Found(_find_slowest(honest), pc.min(missing["message_id"]).as_py(), _add_delays(honest))


def merge_standouts(parts: Iterable[Found]) -> Found:
    """Return what was found in the rows of all parts together."""
    several = list(parts)
    slowest = sorted(chain(*(each.slowest for each in several)), key=_slowest_first)
    undelivered = (each.undelivered for each in several if each.undelivered is not None)
    by_node = add_tallies(each.by_node for each in several)
    return Found(tuple(slowest[:MOST_SLOWEST]), min(undelivered, default=None), by_node)


def _slowest_first(delivery: SlowDelivery) -> tuple[float, int, int]:
    return -delivery.latency_ms, delivery.message_id, delivery.node


def read_standouts(run: RunDir) -> Standouts:
    """Find them in all rows of the tables of a run whose totals do not have them: an earlier version computed these."""
    found = merge_standouts(map(find_standouts, _scan_honest(run)))
    halves = read_columns(run, "messages", "message_id", "t50_ms").drop_null()
    half_ms = exact_quantile(halves["t50_ms"].to_numpy(), TYPICAL)
    typical = None if half_ms is None else pc.min(halves.filter(pc.field("t50_ms") == half_ms)["message_id"]).as_py()
    return Standouts(found.slowest, found.undelivered, typical, found.by_node)


def _scan_honest(run: RunDir) -> Iterator[pa.Table]:
    path, adversaries = run.tables / table_file("deliveries"), read_adversaries(run)
    for piece in scan_parquet(path, arrow_schema("deliveries"), _COLUMNS):
        yield of_nodes(piece, "node", adversaries, others=True)


def _find_slowest(rows: pa.Table) -> tuple[SlowDelivery, ...]:
    made = rows.select(SlowDelivery._fields).filter(pc.is_valid(rows["latency_ms"]))
    if not len(made):
        return ()
    slowest = made.take(pc.select_k_unstable(made, k=min(MOST_SLOWEST, len(made)), sort_keys=_SLOWEST_FIRST))
    return tuple(SlowDelivery(**row) for row in slowest.to_pylist())


def _add_delays(rows: pa.Table) -> Tally[NodeDelays]:
    """Add up the delays by node, as integers: sums do not depend on how rows are divided among tasks."""
    delays = pa.table({"node": rows["node"], "ns": pc.subtract(rows["delivered_ns"], rows["publish_ns"])}).drop_null()
    sums = delays.group_by("node").aggregate([("ns", "count"), ("ns", "sum")]).sort_by("node")
    counts = zip(*(sums[name].to_pylist() for name in ("node", "ns_count", "ns_sum")), strict=True)
    return {node: NodeDelays(deliveries, total_ns) for node, deliveries, total_ns in counts}
