"""What the peers' traces say: events, the frames they sent and read, and the input of header-only captures."""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from peer.trace import CRASHED, TraceEvent

_CORRUPT = "corrupt"
_SPARK_TYPES = {"str": "string", "int": "bigint", "tuple": "array<bigint>", "float": "double"}


def event_schema() -> str:
    """The Spark schema of a trace line, from the trace's own type."""
    columns = []
    for field in msgspec.structs.fields(TraceEvent):
        name = str(field.type).removeprefix("<class '").split("[")[0].split("'")[0].split(" ")[0]
        columns.append(f"{field.name} {_SPARK_TYPES[name]}")
    return ", ".join([*columns, f"{_CORRUPT} string"])


def read_events(spark: SparkSession, trace_dir: Path) -> DataFrame:
    """Every line of every trace; a line that is no event has ``event`` null and the node of its file."""
    reader = spark.read.schema(event_schema()).option("mode", "PERMISSIVE")
    lines = reader.option("columnNameOfCorruptRecord", _CORRUPT).json(str(trace_dir / "*.jsonl"))
    good = F.col(_CORRUPT).isNull() & F.col("event").isNotNull() & F.col("ts_ns").isNotNull()
    file_node = F.regexp_extract(F.col("_metadata.file_name"), r"^(\d+)\.", 1).try_cast("int")
    return lines.select(
        F.when(good, F.col("event")).alias("event"),
        F.coalesce(F.when(good, F.col("node").cast("int")), file_node).alias("node"),
        F.col("peer").cast("int").alias("peer"),
        F.col("kind").cast("smallint").alias("kind"),
        F.col("hops").cast("int").alias("hops"),
        *(
            "ts_ns",
            "message_id",
            "topics",
            "conn",
            "direction",
            "off",
            "len_bytes",
            "reason",
            "records",
            "epoch",
            "score",
        ),
    )


def trace_states(events: DataFrame) -> DataFrame:
    """A row a trace: lines, lines that are no event, the count in its ``stop``, and its number of rare events."""
    stops = F.max(F.when(F.col("event") == "stop", F.col("records")))
    return events.groupBy("node").agg(
        F.count("*").alias("lines"),
        F.count_if(F.col("event").isNull()).alias("corrupt"),
        stops.alias("records"),
        F.count_if(F.col("event") == "drop").alias("drops"),
        F.count_if(F.col("event").isin("join", "leave")).alias("changes"),
        F.count_if((F.col("event") == "leave") & (F.col("reason") == CRASHED)).alias("crashes"),
    )


def framed(events: DataFrame) -> DataFrame:
    """The ``send`` and ``receive`` events that say where in a stream their frame lies."""
    located = F.col("conn").isNotNull() & F.col("direction").isNotNull() & F.col("off").isNotNull()
    return events.where(F.col("event").isin("send", "receive") & located & F.col("len_bytes").isNotNull())


def traced_frames(frames: DataFrame, incomplete: list[int]) -> DataFrame:
    """The input of header-only captures (``metrics.pcap.TRACED``): every frame once, sorted by connection.

    Args:
        frames: ``framed`` events.
        incomplete: nodes whose trace is cut off or missing; their frames are taken from the receivers' word.
    """
    key = ["conn", "direction", "off"]
    columns = [*key, "len_bytes", "kind", "topics", "message_id", "ts_ns"]
    sends = frames.where(F.col("event") == "send")
    chosen = sends.select(columns)
    if incomplete:
        orphans = frames.where((F.col("event") == "receive") & F.col("peer").isin(incomplete))
        chosen = chosen.unionByName(orphans.join(sends, key, "left_anti").select(columns))
    return chosen.repartition("conn").sortWithinPartitions("conn", "direction", "off")


def incarnations(frames: DataFrame) -> DataFrame:
    """Connections that reused their addresses and ports: ``conn`` and the sorted ``starts`` of its incarnations.

    Every incarnation begins with a frame at offset 0 in each direction; its start is the earlier of the two.
    """
    ordered = Window.partitionBy("conn", "direction").orderBy("ts_ns")
    firsts = frames.where((F.col("off") == 0) & (F.col("event") == "send"))
    ranked = firsts.select("conn", "ts_ns", F.row_number().over(ordered).alias("rank"))
    starts = ranked.groupBy("conn", "rank").agg(F.min("ts_ns").alias("start_ns"))
    grouped = starts.groupBy("conn").agg(F.sort_array(F.collect_list("start_ns")).alias("starts"))
    return grouped.where(F.size("starts") > 1)
