"""Kernels in Spark's tasks: each makes its share of a table from what is staged, and writes it as Parquet itself.

Rows that go through Spark to be joined and grouped cost several times what this costs; see ADR 0008.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from metrics.rundir.parquet import with_version
from metrics.tables.staged import remove_attempts, whole

LEAST_ROWS, _MOST_ROWS = 200_000, 8_000_000
_GROUP_ROWS = 100_000


@dataclass(frozen=True)
class Share:
    """Of a table's rows those whose key leaves the remainder ``number`` of ``count``."""

    number: int = 0
    count: int = 1


def write_shares(
    spark: SparkSession, make: Callable[[Share], Mapping[str, pa.Table]], targets: Mapping[str, Path], rows: int
) -> None:
    """Write tables as folders of parts, a task each.

    Args:
        spark: the session; its executors must have the code.
        make: makes a share of every table, by name.
        targets: their folders; none may be there yet.
        rows: about how many rows are read for all shares: a core takes more than one where it would hold too much.
    """
    cores = spark.sparkContext.defaultParallelism
    count = max(1, min(cores, rows // LEAST_ROWS), -(-rows // _MOST_ROWS))
    for target in targets.values():
        target.mkdir()
    shares = [Share(number, count) for number in range(count)]
    spark.sparkContext.parallelize(shares, count).foreach(lambda share: write_share(make(share), targets, share))
    for target in targets.values():
        remove_attempts(target)


def write_share(tables: Mapping[str, pa.Table], targets: Mapping[str, Path], share: Share) -> None:
    """Write one share's part of each table.

    Args:
        tables: name -> rows.
        targets: name -> the table's folder.
        share: which share it is.
    """
    for name, rows in tables.items():
        with whole(targets[name] / f"part-{share.number}.parquet") as path:
            pq.write_table(with_version(rows), path, compression="zstd", row_group_size=_GROUP_ROWS)
