"""The ``conns`` table: one row per TCP connection, each direction's figures from its own sender's end."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_IDENTITY = ("conn", "id_orig_h", "id_orig_p", "id_resp_h", "id_resp_p", "conn_state", "history")
_ORIG = ("orig_bytes", "orig_pkts", "orig_ip_bytes", "orig_retx_bytes")
_RESP = ("resp_bytes", "resp_pkts", "resp_ip_bytes", "resp_retx_bytes")


def build_conns(
    staged: DataFrame, nodes: DataFrame, streams: DataFrame, carried: DataFrame, interests: DataFrame
) -> DataFrame:
    """The ``conns`` table.

    Args:
        staged: two rows a connection (one where only one end was captured), ``metrics.pcap.schemas.CONNS``.
        nodes: node and ip of every node.
        streams: ``condensed.condense_streams``.
        carried: ``condensed.condense_topics``.
        interests: node, topic of every subscription.
    """
    at_orig = F.col("orig_tap") == "tx"

    def of(name: str, own: bool) -> Any:  # noqa: ANN401 - a Column; pyspark is untyped here
        mine = at_orig if own else ~at_orig
        return F.coalesce(F.max(F.when(mine, F.col(name))), F.max(name)).alias(name)

    ended = F.col("ts_ns") + F.col("duration_ns")
    merged = staged.groupBy("uid").agg(
        F.min("ts_ns").alias("ts_ns"),
        (F.max(ended) - F.min("ts_ns")).alias("duration_ns"),
        F.sum("missed_bytes").alias("missed_bytes"),
        *(of(name, own=True) for name in (*_IDENTITY, *_ORIG)),
        *(of(name, own=False) for name in _RESP),
    )
    for side in ("orig", "resp"):
        named = nodes.select(F.col("ip").alias(f"id_{side}_h"), F.col("node").alias(f"{side}_node"))
        merged = merged.join(F.broadcast(named), f"id_{side}_h", "left")
    return merged.join(_content(streams, carried, interests), "conn", "left").na.fill(
        0, ["n_frames", "n_topics", "n_logical_links"]
    )


def _content(streams: DataFrame, carried: DataFrame, interests: DataFrame) -> DataFrame:
    """What was seen on each connection: frames, topics of its data, and logical links (both ends subscribe)."""
    frames = streams.where("n_frames > 0").groupBy("conn").agg(F.sum("n_frames").alias("n_frames"))
    topics = carried.distinct()
    for side in ("src_node", "dst_node"):
        own = interests.select(F.col("node").alias(side), "topic", F.lit(True).alias(f"{side}_wants")).distinct()
        topics = topics.join(F.broadcast(own), [side, "topic"], "left")
    wanted = F.col("src_node_wants") & F.col("dst_node_wants")
    counted = topics.groupBy("conn").agg(
        F.count_distinct("topic").alias("n_topics"),
        F.count_distinct(F.when(wanted, F.col("topic"))).alias("n_logical_links"),
    )
    return frames.join(counted, "conn", "left")
