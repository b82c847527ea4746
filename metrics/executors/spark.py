"""The executor on Spark: a task of Spark's for each call. No row passes through the JVM."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import SparkSession

from metrics.executors.cluster import DEFAULTS, ExecutorOptions
from metrics.executors.shipping import ship_code
from metrics.session import session

Item = TypeVar("Item")
Result = TypeVar("Result")


class OnSpark:
    """An executor (see ``metrics.executors.Executor``).

    Args:
        spark: a session whose executors have registered.
        master: its master.
    """

    def __init__(self, spark: SparkSession, master: str) -> None:
        ship_code(spark)
        self._context = spark.sparkContext
        self.workers = self._context.defaultParallelism
        self.description = f"by Spark at {master}, {self.workers} core{'s' * (self.workers > 1)}"

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See ``metrics.executors.Executor``. Several threads may call this at once."""
        if not items:
            return []
        return self._context.parallelize(items, len(items)).map(task).collect()  # in the order of the items


@contextmanager
def on_spark(master: str, options: ExecutorOptions = DEFAULTS) -> Iterator[OnSpark]:
    """An executor on a Spark master, with a session of its own that ends with the block."""
    with session(master, light=True, options=options) as spark:
        yield OnSpark(spark, master)
