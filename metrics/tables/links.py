"""Logical and physical links: intervals from the traces, and both views' sizes over time from traces and wire."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from peer.core.frames import Data

_SECOND_NS = 1_000_000_000
_FOREVER = 2**63 - 1


def build_physical_links(events: DataFrame, end_ns: int) -> DataFrame:
    """The ``physical_links`` table: a connection as one of its nodes knew it, from ``add_peer`` to ``remove_peer``.

    An interval that the trace does not end lasts until ``end_ns``.
    """
    changes = events.where(F.col("event").isin("add_peer", "remove_peer"))
    following = Window.partitionBy("node", "peer", "conn").orderBy("ts_ns")
    spans = changes.withColumn("to_ns", F.lead("ts_ns", 1, end_ns).over(following))
    up = spans.where(F.col("event") == "add_peer")
    return up.select(
        "node", "peer", "conn", F.col("ts_ns").alias("from_ns"), F.greatest("ts_ns", "to_ns").alias("to_ns")
    )


def build_links(events: DataFrame, physical: DataFrame, end_ns: int) -> DataFrame:
    """The ``links`` table: from ``graft`` to ``prune``, or to the end of the last physical link that carried it."""
    changes = events.where(F.col("event").isin("graft", "prune")).select(
        "event", "node", "peer", "ts_ns", F.explode("topics").alias("topic")
    )
    following = F.lead("ts_ns", 1, _FOREVER).over(Window.partitionBy("node", "peer", "topic").orderBy("ts_ns"))
    grafts = changes.withColumn("next_ns", following).where(F.col("event") == "graft").drop("event")
    carriers = physical.select("node", "peer", F.col("from_ns").alias("up_ns"), F.col("to_ns").alias("down_ns"))
    carried = grafts.join(carriers, ["node", "peer"], "left").groupBy("node", "peer", "topic", "ts_ns", "next_ns")
    alive = (F.col("up_ns") <= F.col("ts_ns")) & (F.col("ts_ns") <= F.col("down_ns"))
    ends = carried.agg(F.max(F.when(alive, F.col("down_ns"))).alias("down_ns"))
    to_ns = F.least("next_ns", F.coalesce("down_ns", F.lit(end_ns)))
    return ends.select("node", "peer", "topic", F.col("ts_ns").alias("from_ns"), to_ns.alias("to_ns"))


def wire_physical_links(conns: DataFrame) -> DataFrame:
    """The captured connections as seen by either of their nodes: node, peer, conn, from_ns, to_ns."""
    span = [F.col("conn"), F.col("ts_ns").alias("from_ns"), (F.col("ts_ns") + F.col("duration_ns")).alias("to_ns")]
    ends = (("orig_node", "resp_node"), ("resp_node", "orig_node"))
    views = [conns.select(F.col(a).alias("node"), F.col(b).alias("peer"), *span) for a, b in ends]
    return views[0].unionByName(views[1])


def wire_links(hops: DataFrame, interests: DataFrame, physical: DataFrame) -> DataFrame:
    """Logical links that the captures show in use: node, peer, topic, from_ns (first copy), to_ns (connection's end).

    A copy shows one where both its nodes subscribe to the topic; it counts for both.
    """
    copies = hops.where((F.col("kind") == Data.kind) & F.col("tap_rx_ns").isNotNull())
    used = copies.select(
        "conn", "src_node", "dst_node", F.col("tap_rx_ns").alias("ts_ns"), F.explode("topics").alias("topic")
    )
    first = used.groupBy("conn", "src_node", "dst_node", "topic").agg(F.min("ts_ns").alias("ts_ns"))
    for side in ("src_node", "dst_node"):
        own = interests.select(F.col("node").alias(side), "topic").distinct()
        first = first.join(F.broadcast(own), [side, "topic"], "semi")
    ends = (("src_node", "dst_node"), ("dst_node", "src_node"))
    views = [first.select("conn", F.col(a).alias("node"), F.col(b).alias("peer"), "topic", "ts_ns") for a, b in ends]
    links = views[0].unionByName(views[1]).groupBy("conn", "node", "peer", "topic").agg(F.min("ts_ns").alias("from_ns"))
    until = physical.groupBy("conn", "node").agg(F.max("to_ns").alias("to_ns"))
    return links.join(F.broadcast(until), ["conn", "node"])


def build_sharing(
    source: str, logical: DataFrame, physical: DataFrame, lives: DataFrame, grid: tuple[int, int, int]
) -> DataFrame:
    """Rows of the ``sharing`` table for one source.

    Args:
        source: ``trace`` or ``wire``.
        logical: node, peer, topic, from_ns, to_ns.
        physical: node, peer, from_ns, to_ns.
        lives: node, from_ns, to_ns of every time that a node is up; only then it has rows.
        grid: (zero_ns, first, last): the instants are zero_ns + k seconds, k = first..last.
    """
    zero_ns, _, _ = grid
    every = _present(lives, grid).select("node", "k").distinct()
    total = _present(logical, grid).groupBy("node", "k").agg(F.count_distinct("peer", "topic").alias("view_size_total"))
    unique = _present(physical, grid).groupBy("node", "k").agg(F.count_distinct("peer").alias("view_size_unique"))
    joined = every.join(total, ["node", "k"], "left").join(unique, ["node", "k"], "left").na.fill(0)
    return joined.select(
        F.lit(source).alias("source"),
        (F.col("k").cast("bigint") * _SECOND_NS + zero_ns).alias("at_ns"),
        "node",
        "view_size_total",
        "view_size_unique",
        F.when(F.col("view_size_unique") > 0, F.col("view_size_total") / F.col("view_size_unique")).alias(
            "link_sharing_ratio"
        ),
    )


def _present(intervals: DataFrame, grid: tuple[int, int, int]) -> DataFrame:
    """A row for each instant of the grid at which an interval lasts."""
    zero_ns, first, last = grid
    begin = F.greatest(F.ceil((F.col("from_ns") - zero_ns) / _SECOND_NS), F.lit(first)).cast("int")
    end = F.least(F.ceil((F.col("to_ns") - zero_ns) / _SECOND_NS) - 1, F.lit(last)).cast("int")
    spans = intervals.withColumns({"begin": begin, "end": end}).where(F.col("begin") <= F.col("end"))
    return spans.withColumn("k", F.explode(F.sequence("begin", "end")))
