"""Logical and physical links: intervals from the traces, and both views' sizes over time from traces and wire."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

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
    opened = F.col("direction") == "orig"
    return up.select(
        *("node", "peer", "conn", opened.alias("opened"), F.col("ts_ns").alias("from_ns")),
        F.greatest("ts_ns", "to_ns").alias("to_ns"),
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


def build_sharing(
    source: str, logical: DataFrame, physical: DataFrame, instances: DataFrame, grid: tuple[int, int, int]
) -> DataFrame:
    """Rows of the ``sharing`` table for one source.

    Args:
        source: ``trace`` or ``wire``.
        logical: node, peer, topic, from_ns, to_ns.
        physical: node, peer, from_ns, to_ns.
        instances: node, from_ns, to_ns of every time that a node is up; only then it has rows.
        grid: (zero_ns, first, last): the instants are zero_ns + k seconds, k = first..last.
    """
    zero_ns, _, _ = grid
    keys = ["node", "k"]
    every = present(instances, grid).select(*keys).distinct()
    views = present(logical, grid).groupBy(keys)
    sizes = views.agg(
        F.count_distinct("peer", "topic").alias("view_size_total"), F.count_distinct("peer").alias("view_size_unique")
    )
    degrees = present(physical, grid).groupBy(keys).agg(F.count_distinct("peer").alias("degree"))
    joined = every.join(sizes, keys, "left").join(degrees, keys, "left").na.fill(0)
    return joined.select(
        F.lit(source).alias("source"),
        (F.col("k").cast("bigint") * _SECOND_NS + zero_ns).alias("at_ns"),
        *("node", "view_size_total", "view_size_unique", "degree"),
        F.when(F.col("view_size_unique") > 0, F.col("view_size_total") / F.col("view_size_unique")).alias(
            "link_sharing_ratio"
        ),
    )


def present(intervals: DataFrame, grid: tuple[int, int, int]) -> DataFrame:
    """A row for each instant ``k`` of the grid (see ``build_sharing``) at which an interval lasts."""
    zero_ns, first, last = grid
    begin = F.greatest(F.ceil((F.col("from_ns") - zero_ns) / _SECOND_NS), F.lit(first)).cast("int")
    end = F.least(F.ceil((F.col("to_ns") - zero_ns) / _SECOND_NS) - 1, F.lit(last)).cast("int")
    spans = intervals.withColumns({"begin": begin, "end": end}).where(F.col("begin") <= F.col("end"))
    return spans.withColumn("k", F.explode(F.sequence("begin", "end")))
