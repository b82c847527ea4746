"""Run by test_datasource.py in a process of its own: read captures through Spark and print the sorted rows' digests.

``PYTHONPATH`` names the folder with the code to this process only: the executors have to get it from ``register``.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

from pyspark.errors import PySparkException

from metrics.pcap.schemas import SCHEMAS
from metrics.pcap.source import register
from metrics.session import session

MASTER, CAPTURES, TRACED = sys.argv[1:]
del os.environ["PYTHONPATH"]

TABLES = ("conns", "frames", "spans", "wire", "captures")


def main() -> None:
    found: dict[str, object] = {}
    with session(MASTER, light=True) as spark:
        register(spark)
        register(spark)  # a second time is none
        reader = spark.read.format("pcap").options(path=CAPTURES, parallelism="2", partition_bytes="20000")
        union = reader.options(tables=",".join(TABLES), traced=TRACED).load()
        found["partitions"] = union.rdd.getNumPartitions()
        rows = {"packets": reader.options(tables="packets").load().collect()}
        collected = union.collect()
        for table in TABLES:
            rows[table] = [
                tuple(row[name] for name in SCHEMAS[table].names) for row in collected if row["table"] == table
            ]
        flows = spark.read.format("pcap").options(path=CAPTURES, tables="flows", parallelism="2")
        rows["flows"] = flows.load().collect()
        for table, some in rows.items():
            texts = sorted(repr(tuple(row)) for row in some)
            found[table] = [len(texts), hashlib.sha256("\n".join(texts).encode()).hexdigest()]
        found["files"] = sorted({row["pcap_file"] for row in collected})
        wrong = Path("wrong.pcap")
        wrong.write_bytes(b"no capture")
        try:
            reader.options(path=str(wrong.absolute())).load().collect()
        except PySparkException as error:
            found["refused"] = str(error)
    print(json.dumps(found))


main()
