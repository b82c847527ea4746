"""Hops: one transmission of a frame between two nodes, from both logs and both taps.

A frame is known by its stream (connection, incarnation, direction) and its offset there. Both sides are aggregated on a
64-bit hash of the stream, so that only integers are shuffled and hashed; the names come back from a small table.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from peer.core.frames import Data

_KEY = ["stream", "off"]


def build_hops(
    frames: DataFrame,
    reused: DataFrame | None,
    taps: DataFrame,
    conns: DataFrame,
    nodes_by_host: list[int],
    pairs: DataFrame,
    topics: DataFrame,
    firsts: DataFrame,
) -> DataFrame:
    """The ``hops`` table.

    Args:
        frames: ``logs.framed`` events.
        reused: ``logs.incarnations``, None where no connection reused its addresses and ports.
        taps: staged ``frames`` of the captures.
        conns: staged ``conns`` of the captures.
        nodes_by_host: the node on each host.
        pairs: src_node, dst_node, asked_delay_ms, asked_jitter_ms of every directed pair.
        topics: message_id, topics of every message.
        firsts: ``first_copies``.
    """
    logged = _with_stream(_number_log(frames, reused))
    seen = _with_stream(_number_taps(taps, reused, conns))
    both = _logged(logged).join(_seen(seen, nodes_by_host), _KEY, "full").select(*_KEY, *_merged())
    marked = mark_duplicates(both, firsts)  # moves every row, so before the names make them wide
    named = marked.join(F.broadcast(_stream_names(logged, seen)), "stream")
    asked = named.join(F.broadcast(pairs), ["src_node", "dst_node"], "left")
    return asked.join(topics, "message_id", "left").withColumns(_delays())


def _merged() -> list[Column]:
    """The log's word where there is one, the capture's otherwise."""
    both = {
        "src_node": ("logged_src", "seen_src"),
        "dst_node": ("logged_dst", "seen_dst"),
        "len_bytes": ("logged_bytes", "seen_bytes"),
        "kind": ("logged_kind", "seen_kind"),
        "message_id": ("logged_message", "seen_message"),
    }
    instants = ["log_send_ns", "tap_tx_ns", "tap_tx_last_ns", "tap_rx_ns", "log_recv_ns", "n_retx", "n_seconds"]
    return [F.coalesce(*pair).alias(name) for name, pair in both.items()] + [F.col(name) for name in instants]


def _number_log(frames: DataFrame, reused: DataFrame | None) -> DataFrame:
    if reused is None:
        return frames.withColumn("incarnation", F.lit(0))
    earlier = F.size(F.filter("starts", lambda start: start <= F.col("ts_ns")))
    number = F.greatest(F.coalesce(earlier - 1, F.lit(0)), F.lit(0))
    return frames.join(F.broadcast(reused), "conn", "left").withColumn("incarnation", number)


def _number_taps(taps: DataFrame, reused: DataFrame | None, conns: DataFrame) -> DataFrame:
    if reused is None:
        return taps.withColumn("incarnation", F.lit(0))
    begun = conns.join(F.broadcast(reused), "conn", "semi").groupBy("conn", "uid").agg(F.min("ts_ns").alias("ts_ns"))
    rank = F.row_number().over(Window.partitionBy("conn").orderBy("ts_ns")) - 1
    numbers = begun.select("uid", rank.alias("number"))
    numbered = taps.join(F.broadcast(numbers), "uid", "left")
    return numbered.withColumn("incarnation", F.coalesce("number", F.lit(0)))


def _with_stream(frames: DataFrame) -> DataFrame:
    return frames.withColumn("stream", F.xxhash64("conn", "direction", "incarnation"))


def _stream_names(logged: DataFrame, seen: DataFrame) -> DataFrame:
    columns = ["stream", "conn", "direction", "incarnation"]
    return logged.select(columns).distinct().union(seen.select(columns).distinct()).distinct()


def _logged(logged: DataFrame) -> DataFrame:
    sent = F.col("event") == "send"
    return logged.groupBy(_KEY).agg(
        F.max(F.when(sent, F.col("ts_ns"))).alias("log_send_ns"),
        F.min(F.when(~sent, F.col("ts_ns"))).alias("log_recv_ns"),
        F.max(F.when(sent, F.col("node")).otherwise(F.col("peer"))).alias("logged_src"),
        F.max(F.when(sent, F.col("peer")).otherwise(F.col("node"))).alias("logged_dst"),
        F.max("len_bytes").alias("logged_bytes"),
        F.max("kind").alias("logged_kind"),
        F.max("message_id").alias("logged_message"),
    )


def _seen(seen: DataFrame, nodes_by_host: list[int]) -> DataFrame:
    tx, rx = F.col("tap") == "tx", F.col("tap") == "rx"
    node = F.get(F.lit(nodes_by_host), F.col("vantage_host"))
    return seen.groupBy(_KEY).agg(
        F.min(F.when(tx, F.col("t_first_ns"))).alias("tap_tx_ns"),
        F.min(F.when(tx, F.col("t_last_ns"))).alias("tap_tx_last_ns"),
        F.min(F.when(rx, F.col("t_last_ns"))).alias("tap_rx_ns"),
        F.max(F.when(tx, F.col("n_retx"))).alias("n_retx"),
        F.max(F.when(tx, F.col("n_seconds"))).alias("n_seconds"),
        F.max(F.when(tx, node)).alias("seen_src"),
        F.max(F.when(rx, node)).alias("seen_dst"),
        F.max("len_bytes").alias("seen_bytes"),
        F.max("kind").alias("seen_kind"),
        F.max("message_id").alias("seen_message"),
    )


def _delays() -> dict[str, Column]:
    return {
        "d_sndbuf_ns": F.col("tap_tx_ns") - F.col("log_send_ns"),
        "d_wire_ns": F.col("tap_rx_ns") - F.col("tap_tx_ns"),
        "d_rcv_ns": F.col("log_recv_ns") - F.col("tap_rx_ns"),
    }


def first_copies(events: DataFrame) -> DataFrame:
    """The first copy of each message at each node (``dst_node``): who sent it and when it was handed on."""
    firsts = events.where(F.col("event").isin("deliver", "relay") & F.col("peer").isNotNull())
    return firsts.groupBy(F.col("node").alias("dst_node"), "message_id").agg(
        F.min("ts_ns").alias("first_ns"),
        F.min_by("peer", "ts_ns").alias("first_peer"),
        F.min_by(F.col("event") == "relay", "ts_ns").alias("first_relay"),
    )


def mark_duplicates(hops: DataFrame, firsts: DataFrame) -> DataFrame:
    """Say of each copy of a message whether the node had it already, or took it only to pass it on."""
    arrived = (F.col("kind") == Data.kind) & F.col("log_recv_ns").isNotNull()
    same = (F.col("src_node") == F.col("first_peer")) & (F.col("log_recv_ns") <= F.col("first_ns"))
    is_first = F.coalesce(same, F.lit(False))
    marked = hops.join(firsts, ["dst_node", "message_id"], "left")
    return marked.withColumns(
        {"is_dup": F.when(arrived, ~is_first), "is_relay": F.when(arrived, is_first & F.col("first_relay"))}
    )
