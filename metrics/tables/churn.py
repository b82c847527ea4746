"""What the traces say of nodes that come and go: their lives, and the connections that crashes broke."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from peer.core.frames import Data
from peer.trace import CRASHED, JOINED, LEFT

_FOREVER = 2**63 - 1
_SECOND_NS = 1_000_000_000

_BEFORE_NS = _SECOND_NS
_AFTER_NS = 60 * _SECOND_NS
"""A frame that was never read is put down to a crash of its sender or receiver in this span around its sending."""


def lives(overlay: DataFrame, events: DataFrame) -> DataFrame:
    """Intervals in which a node is up: node, from_ns, to_ns (half open); 0 and 2^63-1 stand for the run's ends."""
    starters = overlay.select(F.explode("nodes").alias("spec")).where(F.coalesce("spec.up", F.lit(True)))
    initial = starters.select(
        F.col("spec.node").cast("int").alias("node"),
        F.lit(0).cast("bigint").alias("ts_ns"),
        F.lit(True).alias("begins"),
    )
    begins = (F.col("event") == "join") & (F.col("reason") == JOINED)
    ends = (F.col("event") == "leave") & F.col("reason").isin(LEFT, CRASHED)
    changes = events.where(begins | ends).select("node", "ts_ns", (F.col("event") == "join").alias("begins"))
    following = F.lead("ts_ns", 1, _FOREVER).over(Window.partitionBy("node").orderBy("ts_ns"))
    spans = initial.unionByName(changes).withColumn("to_ns", following)
    return spans.where("begins").select("node", F.col("ts_ns").alias("from_ns"), "to_ns")


def broken_connections(events: DataFrame, hops: DataFrame) -> DataFrame:
    """Connections (``conn``) that a crash broke: frames may be lost on them that were sent, or that wait to be.

    Those that a crashed node had as links, and those with an unread frame about the time of a crash of either end.
    """
    crashes = events.where((F.col("event") == "leave") & (F.col("reason") == CRASHED)).select("node", "ts_ns")
    links = events.where((F.col("event") == "remove_peer") & (F.col("reason") == CRASHED)).select("conn")
    unread = hops.where(F.col("log_send_ns").isNotNull() & F.col("log_recv_ns").isNull())
    since_ns = F.col("ts_ns") - F.col("log_send_ns")
    ours = (F.col("node") == F.col("src_node")) | (F.col("node") == F.col("dst_node"))
    lost = unread.join(F.broadcast(crashes), ours & since_ns.between(-_BEFORE_NS, _AFTER_NS)).select("conn")
    return links.unionByName(lost).distinct()


def build_churn_control(events: DataFrame, hops: DataFrame, span_ns: tuple[int, int]) -> list[dict[str, Any]]:
    """The ``churn_control`` table: frames other than data by kind, against the joins and leaves of the same span.

    No rows where no node joined or left. A crash is a leave.

    Args:
        events: the traces' events.
        hops: the ``hops`` table.
        span_ns: begin and end of the workload.
    """
    since, until = span_ns
    lives = events.where(F.col("reason").isin(JOINED, LEFT, CRASHED) & F.col("event").isin("join", "leave"))
    inside = lives.where((F.col("ts_ns") >= since) & (F.col("ts_ns") < until)).groupBy("event").count()
    counts = {row["event"]: row["count"] for row in inside.collect()}
    joins, leaves = counts.get("join", 0), counts.get("leave", 0)
    if not joins + leaves:
        return []
    sent = hops.where((F.col("log_send_ns") >= since) & (F.col("log_send_ns") < until) & (F.col("kind") != Data.kind))
    kinds = sent.groupBy("kind").agg(F.count("*").alias("frames"), F.sum("len_bytes").alias("frame_bytes"))
    return [
        row.asDict() | {"joins": joins, "leaves": leaves, "frames_per_change": row["frames"] / (joins + leaves)}
        for row in kinds.orderBy("kind").collect()
    ]
