"""The executor on Spark: one task of Spark for each call. No row of a table passes through the JVM."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from metrics.executors.cluster import DEFAULTS, ExecutorOptions
from metrics.session import count_cores, session

Item = TypeVar("Item")
Result = TypeVar("Result")


class OnSpark:
    """An executor (see ``metrics.executors.Executor``).

    Args:
        spark: a session whose executors have registered, and can import our code.
        master: the master of the session.
    """

    def __init__(self, spark: SparkSession, master: str) -> None:
        self._spark = spark
        self.master = master
        self.workers = count_cores(spark)
        self.description = f"by Spark at {master}, {self.workers} core{'s' * (self.workers > 1)}"

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See ``metrics.executors.Executor``. Several threads may call this at once."""
        if not items:
            return []

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                numbers = batch["id"].to_pylist()
                results = [pickle.dumps(task(items[number])) for number in numbers]
                yield pa.RecordBatch.from_pydict({"number": numbers, "result": results})

        tasks = self._spark.range(0, len(items), 1, len(items))  # one partition each
        answers = tasks.mapInArrow(work, "number bigint, result binary").collect()
        return [pickle.loads(answer["result"]) for answer in sorted(answers, key=lambda answer: answer["number"])]


@contextmanager
def on_spark(master: str, options: ExecutorOptions = DEFAULTS) -> Iterator[OnSpark]:
    """Yield an executor on a Spark master, with a session of its own that ends with the block."""
    with session(master, light=True, kernels=True, options=options) as spark:
        yield OnSpark(spark, master)
