"""Messages, and every (message, subscriber) pair that ought to have been a delivery."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from peer.core.frames import Data

_FOREVER = 2**63 - 1


def all_messages(schedule: DataFrame, events: DataFrame, zero_ns: int) -> DataFrame:
    """Every message that was published, by its publisher's word or, where that trace is lost, by a receiver's.

    Columns: message_id, topics, publisher, scheduled_ns, publish_ns (null where the publisher's trace is lost),
    payload_bytes.
    """
    published = events.where(F.col("event") == "publish").select(
        "message_id",
        F.col("ts_ns").alias("publish_ns"),
        F.col("topics").alias("said"),
        F.col("len_bytes").alias("length"),
    )
    received = events.where(F.col("event") == "deliver").select("message_id").distinct()
    asked = schedule.where(F.col("action") == "publish").select(
        "message_id", "topics", "payload_bytes", (F.col("at_ns") + zero_ns).alias("scheduled_ns")
    )
    merged = asked.join(published, "message_id", "full").join(
        received.withColumn("received", F.lit(True)), "message_id", "left"
    )
    return merged.where(F.col("publish_ns").isNotNull() | F.col("received")).select(
        "message_id",
        F.coalesce("said", "topics").alias("topics"),
        F.shiftright("message_id", 32).cast("int").alias("publisher"),
        "scheduled_ns",
        "publish_ns",
        F.coalesce("length", "payload_bytes").alias("payload_bytes"),
    )


def subscriptions(overlay: DataFrame, events: DataFrame) -> DataFrame:
    """Intervals in which a node subscribes to a topic: node, topic, from_ns, to_ns (half open)."""
    initial = overlay.select(F.explode("nodes").alias("spec")).select(
        F.col("spec.node").cast("int").alias("node"),
        F.explode("spec.topics").alias("topic"),
        F.lit(0).cast("bigint").alias("ts_ns"),
        F.lit(True).alias("joins"),
    )
    changes = events.where(F.col("event").isin("join", "leave")).select(
        "node", F.explode("topics").alias("topic"), "ts_ns", (F.col("event") == "join").alias("joins")
    )
    following = F.lead("ts_ns", 1, _FOREVER).over(Window.partitionBy("node", "topic").orderBy("ts_ns"))
    spans = initial.unionByName(changes).withColumn("to_ns", following)
    return spans.where("joins").select("node", "topic", F.col("ts_ns").alias("from_ns"), "to_ns")


def expected_deliveries(messages: DataFrame, interests: DataFrame) -> DataFrame:
    """A row a message and node other than its publisher that subscribed to one of its topics when it was published."""
    at_ns = F.coalesce("publish_ns", "scheduled_ns")
    offered = messages.select(
        "message_id", "publisher", "publish_ns", at_ns.alias("at_ns"), F.explode("topics").alias("topic")
    )
    subscribed = (F.col("from_ns") <= F.col("at_ns")) & (F.col("at_ns") < F.col("to_ns"))
    pairs = offered.join(F.broadcast(interests), "topic").where(subscribed & (F.col("node") != F.col("publisher")))
    return pairs.groupBy("message_id", "node").agg(
        F.min("topic").alias("topic"), F.max("publisher").alias("publisher"), F.max("publish_ns").alias("publish_ns")
    )


def build_deliveries(expected: DataFrame, events: DataFrame, hops: DataFrame, pairs: DataFrame) -> DataFrame:
    """The ``deliveries`` table. The delay is taken twice: from the logs, and from the captures alone."""
    delivered = events.where((F.col("event") == "deliver") & F.col("peer").isNotNull())
    first = delivered.groupBy("message_id", "node").agg(
        F.min("ts_ns").alias("delivered_ns"), F.min_by("hops", "ts_ns").alias("hops")
    )
    copies = hops.where(F.col("kind") == Data.kind)
    arrived = copies.groupBy("message_id", F.col("dst_node").alias("node")).agg(
        F.count("log_recv_ns").alias("copies"), F.min("tap_rx_ns").alias("wire_recv_ns")
    )
    left = copies.groupBy("message_id", F.col("src_node").alias("publisher")).agg(
        F.min("tap_tx_ns").alias("wire_send_ns")
    )
    direct = pairs.select(
        F.col("src_node").alias("publisher"),
        F.col("dst_node").alias("node"),
        F.col("asked_delay_ms").alias("direct_delay_ms"),
    )
    latency = (F.col("delivered_ns") - F.col("publish_ns")) / 1e6
    wire = (F.col("wire_recv_ns") - F.col("wire_send_ns")) / 1e6
    joined = (
        expected.join(first, ["message_id", "node"], "left")
        .join(arrived, ["message_id", "node"], "left")
        .join(left, ["message_id", "publisher"], "left")
        .join(F.broadcast(direct), ["publisher", "node"], "left")
    )
    return joined.withColumns(
        {
            "copies": F.coalesce("copies", F.lit(0)),
            "latency_ms": latency,
            "wire_latency_ms": F.when(F.col("delivered_ns").isNotNull(), wire),
            "stretch": F.when(F.col("direct_delay_ms") > 0, latency / F.col("direct_delay_ms")),
        }
    )


def build_messages(messages: DataFrame, deliveries: DataFrame, hops: DataFrame) -> DataFrame:
    """The ``messages`` table: how far each message came, and what it cost."""
    spread = deliveries.groupBy("message_id").agg(
        F.count("*").alias("n_subscribers"),
        F.count("delivered_ns").alias("n_delivered"),
        F.sort_array(F.collect_list("latency_ms")).alias("latencies"),
    )
    copies = hops.where(F.col("kind") == Data.kind).groupBy("message_id")
    cost = copies.agg(
        F.count("*").alias("n_transmissions"),
        F.count_distinct(F.when(F.col("log_recv_ns").isNotNull(), F.col("dst_node"))).alias("n_reached"),
    )
    joined = messages.join(spread, "message_id", "left").join(cost, "message_id", "left")
    zero = F.lit(0).cast("bigint")
    counts = {name: F.coalesce(name, zero) for name in ("n_subscribers", "n_delivered", "n_transmissions", "n_reached")}
    times = {
        f"t{share}_ms": F.get("latencies", (F.ceil(F.col("n_subscribers") * share / 100) - 1).cast("int"))
        for share in (50, 90, 99, 100)
    }
    redundancy = F.when(F.col("n_reached") > 0, F.col("n_transmissions") / F.col("n_reached") - 1)
    return joined.withColumns(counts).withColumns(times | {"redundancy": redundancy})
