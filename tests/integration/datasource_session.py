"""Run by test_datasource.py in a process of its own: read captures through Spark and print the sorted rows' digests.

``PYTHONPATH`` names the folder with the code to this process only: the executors have to get it from ``register``.
"""

import hashlib
import json
import os
import sys

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
        for table, some in rows.items():
            texts = sorted(repr(tuple(row)) for row in some)
            found[table] = [len(texts), hashlib.sha256("\n".join(texts).encode()).hexdigest()]
    print(json.dumps(found))


main()
