"""What the captures say: one pass of the ``pcap`` Data Source, staged as Parquet, and the tables taken from it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from metrics.pcap import SCHEMAS, union_schema

STAGED = {"compression": "snappy"}
"""What lives for minutes is compressed for speed."""

_TABLES = ("conns", "frames", "spans", "wire", "captures")


class Wire:
    """The staged tables of a run's captures; all are empty where there is no capture."""

    def __init__(self, spark: SparkSession, staging: Path) -> None:
        self._spark = spark
        self._staging = staging

    def read(self, capture_dir: Path, traced: Path, epoch_offset_ns: int, zero_ns: int) -> None:
        """Read all captures once and stage their tables; seconds are counted from ``zero_ns``.

        The session must know the format (``metrics.pcap.source.register``).
        """
        options = {
            "tables": ",".join(_TABLES),
            "traced": str(traced),
            "epoch_offset_ns": str(epoch_offset_ns),
            "origin_ns": str(zero_ns),
            "parallelism": str(self._spark.sparkContext.defaultParallelism),
        }
        everything = self._spark.read.format("pcap").options(**options).load(str(capture_dir))
        everything.write.options(**STAGED).partitionBy("table").parquet(str(self._staging))

    def table(self, name: str) -> DataFrame:
        """A staged table in its own schema."""
        columns = SCHEMAS[name].names
        if not self._staging.exists():
            return self._spark.createDataFrame([], from_arrow_schema(SCHEMAS[name]))
        schema = from_arrow_schema(union_schema(_TABLES))
        everything = self._spark.read.schema(schema).parquet(str(self._staging))
        return everything.where(F.col("table") == name).select(columns)
