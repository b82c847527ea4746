"""Where the bytes on the wire went: every captured byte in exactly one class, counted once, at its sender's tap."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from peer.core.frames import Data

FRAME_CLASSES = ("first_payload_bytes", "duplicate_payload_bytes", "framing_bytes", "control_bytes")
PACKET_CLASSES = ("retransmitted_bytes", "ack_bytes", "header_bytes", "other_bytes")


def frame_classes(sent: DataFrame, split: DataFrame, spans: DataFrame) -> DataFrame:
    """Stream bytes of located frames by sender, second, kind and use, as ``condensed.condense_bytes`` has them.

    Args:
        sent: ``condense_bytes`` of the frames whose bytes were first sent in one second.
        split: ``describe_bytes`` of the others, which fill their seconds in order, framing first.
        spans: the seconds of these, as staged.
    """
    earlier = Window.partitionBy("uid", "direction", "off").orderBy("at_ns").rowsBetween(Window.unboundedPreceding, -1)
    pieces = spans.where(F.col("tap") == "tx").withColumn(
        "before", F.coalesce(F.sum("span_bytes").over(earlier), F.lit(0))
    )
    pieces = pieces.select("conn", "direction", "off", F.col("at_ns").alias("second_ns"), "span_bytes", "before")
    head = F.col("len_bytes") - F.col("payload")
    framing = F.greatest(F.least(head - F.col("before"), F.col("span_bytes")), F.lit(0))
    parts = split.join(F.broadcast(pieces), ["conn", "direction", "off"]).select(
        *("node", "kind", "useful", "second_ns"),
        F.when(F.col("before") == 0, 1).otherwise(0).cast("bigint").alias("frames"),
        framing.alias("framing_bytes"),
        (F.col("span_bytes") - framing).alias("body_bytes"),
    )
    return sent.unionByName(parts)


def build_overhead(classes: DataFrame, wire: DataFrame, nodes_by_host: list[int]) -> DataFrame:
    """The ``overhead`` table. Stream bytes in no known frame go to ``other_bytes``."""
    is_data, useful = F.col("kind") == Data.kind, F.col("useful")
    framing, body = F.col("framing_bytes"), F.col("body_bytes")
    framed = classes.groupBy("node", "second_ns").agg(
        F.sum(F.when(is_data & useful, body).otherwise(0)).alias("first_payload_bytes"),
        F.sum(F.when(is_data & ~useful, body).otherwise(0)).alias("duplicate_payload_bytes"),
        F.sum(F.when(is_data, framing).otherwise(0)).alias("framing_bytes"),
        F.sum(F.when(~is_data, framing + body).otherwise(0)).alias("control_bytes"),
    )
    node = F.get(F.lit(nodes_by_host), F.col("vantage_host"))
    sent = wire.where(F.col("tap") == "tx").groupBy(node.alias("node"), F.col("at_ns").alias("second_ns"))
    packets = sent.agg(
        F.sum("wire_bytes").alias("wire_bytes"),
        F.sum("payload_bytes").alias("payload_bytes"),
        F.sum("retx_bytes").alias("retransmitted_bytes"),
        F.sum("pure_ack_bytes").alias("ack_bytes"),
        F.sum("header_bytes").alias("header_bytes"),
        F.sum("other_bytes").alias("strange_bytes"),
    )
    joined = packets.join(framed, ["node", "second_ns"], "full").na.fill(0)
    located = sum((F.col(name) for name in FRAME_CLASSES), F.lit(0))
    return joined.withColumn("other_bytes", F.col("strange_bytes") + F.col("payload_bytes") - located)


def build_control(classes: DataFrame) -> DataFrame:
    """The ``control`` table: frames other than data by sender, second and kind."""
    control = classes.where(F.col("kind") != Data.kind).groupBy("node", "second_ns", "kind")
    return control.agg(
        F.sum("frames").alias("frames"), F.sum(F.col("framing_bytes") + F.col("body_bytes")).alias("frame_bytes")
    )
