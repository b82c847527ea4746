"""The Spark session of the analysis: settings that were measured, in one place."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def session(master: str | None = None) -> Iterator[SparkSession]:
    """A session that leaves nothing behind.

    Args:
        master: a Spark master; None = all cores of this machine.
    """
    cores = len(os.sched_getaffinity(0))
    chosen = master or f"local[{cores}]"
    # Workers otherwise take whatever python3 comes first on the PATH, which may have no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="trellis-spark-") as scratch:
        builder = SparkSession.builder.appName("trellis").master(chosen)
        for key, value in settings(chosen, cores, scratch).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()


def settings(master: str, cores: int, scratch: str) -> dict[str, str]:
    """The configuration for a master; a remote one finds the driver by its own address, a local one on loopback."""
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": scratch,
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.session.timeZone": "UTC",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    return chosen | (_LOOPBACK if master.startswith("local") else {})
