"""The ``epochs`` table: what a protocol that learns its neighbours had learned by each of its epochs."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from metrics.measures.deliveries import DELIVERIES, Deliveries


def epoch_ends(events: DataFrame, adversaries: frozenset[int]) -> list[dict[str, Any]]:
    """Every epoch with its end (the median node's, ns), the honest nodes that ended it and their mean score, in order.

    Args:
        events: the traces'.
        adversaries: nodes that do not count.
    """
    honest = ~F.col("node").isin(sorted(adversaries))
    ended = events.where((F.col("event") == "epoch") & honest).groupBy("epoch")
    found = ended.agg(
        F.percentile_approx("ts_ns", 0.5).alias("end_ns"),
        F.count_distinct("node").alias("nodes"),
        F.avg("score").alias("score_mean"),
    )
    return [row.asDict() for row in found.orderBy("epoch").collect()]


def build_epochs(ends: list[dict[str, Any]], deliveries: pa.Table, start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """The table's rows; none where no node learns.

    A message belongs to the epoch in which it was published. What follows the last epoch that ended is an epoch
    without a score.

    Args:
        ends: ``epoch_ends``.
        deliveries: publish_ns, message_id, latency_ms (null = not delivered) of every expected delivery.
        start_ns: when the peers started.
        end_ns: the end of the publishing window.
    """
    if not ends:
        return []
    instants = [start_ns, *(row["end_ns"] for row in ends)]
    if instants[-1] < end_ns:
        ends = [*ends, {"epoch": ends[-1]["epoch"] + 1, "nodes": 0, "score_mean": None}]
        instants.append(end_ns)
    published = deliveries["publish_ns"].to_numpy(zero_copy_only=False).astype(float)
    identifiers = deliveries["message_id"].to_numpy()
    latency = deliveries["latency_ms"].to_numpy(zero_copy_only=False).astype(float)
    rows: list[dict[str, Any]] = []
    for row, (since_ns, until_ns) in zip(ends, pairwise(instants), strict=True):
        inside = (published >= since_ns) & (published < until_ns)
        delivered = latency[inside & ~np.isnan(latency)]
        messages = len(np.unique(identifiers[inside]))
        numbers = DELIVERIES.numbers(Deliveries(messages, int(inside.sum()), len(delivered), delivered))
        rows.append(
            {
                "epoch": row["epoch"],
                "from_ns": since_ns,
                "to_ns": until_ns,
                "nodes": row["nodes"],
                "score_mean": row["score_mean"],
                **{name: numbers[name] for name in ("messages", "deliveries_expected", "delivery_ratio")},
                **{f"latency_ms_{part}": numbers[f"propagation_delay_ms_{part}"] for part in ("mean", "p50", "p99")},
            }
        )
    return rows
