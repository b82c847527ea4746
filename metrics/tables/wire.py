"""What the captures say: one pass of the ``pcap`` Data Source's tasks, staged as Parquet, and the tables in it."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from metrics.pcap.schemas import SCHEMAS
from metrics.pcap.source import PcapReader
from metrics.tables.staged import STAGED, ParquetPart, remove_attempts

_TABLES = ("conns", "frames", "spans", "wire", "captures")
_KEPT = "frames"
"""The largest of them is a table of the run as it is staged."""


class Wire:
    """The staged tables of a run's captures; all are empty where there is no capture."""

    def __init__(self, spark: SparkSession, staging: Path) -> None:
        self._spark = spark
        self._staging = staging
        for name in _TABLES:
            (staging / name).mkdir(parents=True)

    def read(self, capture_dir: Path, traced: Path, epoch_offset_ns: int, zero_ns: int) -> None:
        """Read all captures once and stage their tables; seconds are counted from ``zero_ns``.

        The tasks are those of the Data Source. They write Parquet themselves: rows that go through Spark to become
        Parquet cost several times what finding them costs. The executors must have the code
        (``metrics.pcap.source.register``).
        """
        options = {
            "path": str(capture_dir),
            "tables": ",".join(_TABLES),
            "traced": str(traced),
            "epoch_offset_ns": str(epoch_offset_ns),
            "origin_ns": str(zero_ns),
            "parallelism": str(self._spark.sparkContext.defaultParallelism),
        }
        reader, staging = PcapReader(options), self._staging
        tasks = list(enumerate(reader.partitions()))
        self._spark.sparkContext.parallelize(tasks, len(tasks)).foreach(lambda task: _stage(reader, *task, staging))

    def keep(self, target: Path) -> bool:
        """Make the staged ``frames`` a table of the run; False where no frame was captured."""
        staged = self._staging / _KEPT
        remove_attempts(staged)
        if not any(staged.iterdir()):
            return False
        staged.rename(target)
        return True

    def table(self, name: str) -> DataFrame:
        """A staged table in its own schema."""
        return self._spark.read.schema(from_arrow_schema(SCHEMAS[name])).parquet(str(self._staging / name))


def _stage(reader: PcapReader, number: int, partition: InputPartition, staging: Path) -> None:
    parts = {
        name: ParquetPart(
            staging / name / f"part-{number}.parquet",
            SCHEMAS[name],
            compression="zstd" if name == _KEPT else STAGED["compression"],
        )
        for name in _TABLES
    }
    for name, rows in reader.read_tables(partition):
        parts[name].add(rows)
    for part in parts.values():
        part.close()
