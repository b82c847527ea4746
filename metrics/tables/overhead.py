"""Where the bytes on the wire went: every captured byte in exactly one class, counted once, at its sender's tap."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from peer.core.frames import Data
from peer.wire import HEADER_BYTES

_SECOND_NS = 1_000_000_000
FRAME_CLASSES = ("first_payload_bytes", "duplicate_payload_bytes", "framing_bytes", "control_bytes")
PACKET_CLASSES = ("retransmitted_bytes", "ack_bytes", "header_bytes", "other_bytes")


def _payload_bytes() -> Column:
    """Bytes of a data frame's payload: what is left of it after header, topics and msgpack's array and length marks."""
    body = F.col("len_bytes") - HEADER_BYTES - 4 * F.coalesce(F.size("topics"), F.lit(1)) - 1
    marks = F.when(body < 2 + 256, 2).when(body < 3 + 65536, 3).otherwise(5)
    return F.greatest(body - marks, F.lit(0))


def frame_classes(hops: DataFrame, spans: DataFrame, zero_ns: int) -> DataFrame:
    """Stream bytes of located frames by sender, second and class (and kind): what the four frame classes sum.

    A frame whose bytes were first sent in several seconds (``spans``, as staged) fills them in order, framing first.
    """
    sent = hops.where(F.col("tap_tx_ns").isNotNull()).withColumn("second_ns", _floor("tap_tx_ns", zero_ns))
    is_data = F.col("kind") == Data.kind
    payload = F.when(is_data, _payload_bytes()).otherwise(0)
    useful = F.coalesce(~F.col("is_dup") & ~F.col("is_relay"), F.lit(False))
    columns = [F.col(name) for name in ("conn", "direction", "off", "kind", "len_bytes")]
    columns += [F.col("src_node").alias("node"), payload.alias("payload")]
    described = [*columns, useful.alias("useful"), is_data.alias("is_data")]
    whole = sent.where(F.col("n_seconds") <= 1).select(
        *described, "second_ns", F.col("len_bytes").alias("here"), F.lit(0).cast("bigint").alias("before")
    )
    earlier = Window.partitionBy("uid", "direction", "off").orderBy("at_ns").rowsBetween(Window.unboundedPreceding, -1)
    pieces = spans.where(F.col("tap") == "tx").withColumn(
        "before", F.coalesce(F.sum("span_bytes").over(earlier), F.lit(0))
    )
    pieces = pieces.select(
        "conn", "direction", "off", F.col("at_ns").alias("second_ns"), F.col("span_bytes").alias("here"), "before"
    )
    split = (
        sent.where(F.col("n_seconds") > 1).select(*described).join(F.broadcast(pieces), ["conn", "direction", "off"])
    )
    return whole.unionByName(split)


def _floor(column: str, zero_ns: int) -> Column:
    """The start of the second, counted from zero, in which an instant lies."""
    return F.col(column) - F.pmod(F.col(column) - zero_ns, F.lit(_SECOND_NS))


def build_overhead(classes: DataFrame, wire: DataFrame, nodes_by_host: list[int]) -> DataFrame:
    """The ``overhead`` table. Stream bytes in no known frame go to ``other_bytes``."""
    head = F.col("len_bytes") - F.col("payload")
    framing = F.greatest(F.least(head - F.col("before"), F.col("here")), F.lit(0))
    body = F.col("here") - framing
    is_data, useful = F.col("is_data"), F.col("useful")
    framed = classes.groupBy("node", "second_ns").agg(
        F.sum(F.when(is_data & useful, body).otherwise(0)).alias("first_payload_bytes"),
        F.sum(F.when(is_data & ~useful, body).otherwise(0)).alias("duplicate_payload_bytes"),
        F.sum(F.when(is_data, framing).otherwise(0)).alias("framing_bytes"),
        F.sum(F.when(~is_data, F.col("here")).otherwise(0)).alias("control_bytes"),
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
    control = classes.where(~F.col("is_data")).groupBy("node", "second_ns", "kind")
    return control.agg(
        F.sum(F.when(F.col("before") == 0, 1).otherwise(0)).alias("frames"), F.sum("here").alias("frame_bytes")
    )
