"""Waiting for a Spark cluster's executors: until they have registered, Spark does not know how many cores it has."""

import re
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

WAIT_S = 30.0
"""The longest wait. A cluster that gives no executor within it is used as it is: Spark then waits with the tasks."""

SETTLED_S = 3.0
"""Where it is not known how many executors will come, all are taken to be there when none came for so long."""

_POLL_S = 0.1


def await_executors(spark: SparkSession, master: str) -> None:
    """Wait until the executors of a session have registered, so that ``defaultParallelism`` counts their cores.

    Before, ``defaultParallelism`` is 2 on any cluster. With a local master there is nothing to wait for.
    """
    if is_cluster(master):
        context = spark.sparkContext._jsc.sc()
        wait_until_settled(lambda: int(context.getExecutorMemoryStatus().size()) - 1, expected_executors(master))


def is_cluster(master: str) -> bool:
    """Whether tasks run in executors, which register some time after the session's start."""
    return master.startswith("local-cluster") or not master.startswith("local")


def expected_executors(master: str) -> int | None:
    """How many executors the master's name says there will be; None = it does not say."""
    named = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,.*\]", master)
    return int(named[1]) if named else None


def wait_until_settled(
    count: Callable[[], int],
    expected: int | None,
    *,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when all executors are there, or after ``WAIT_S``.

    Args:
        count: how many there are now.
        expected: how many there will be; None = not known: one at least, and no new one for ``SETTLED_S``.
        now_s: a clock.
        sleep: waits for some seconds.
    """
    begin_s = changed_s = now_s()
    last = 0
    while now_s() - begin_s < WAIT_S:
        found = count()
        if expected is not None and found >= expected:
            return
        if found != last:
            last, changed_s = found, now_s()
        elif expected is None and found and now_s() - changed_s >= SETTLED_S:
            return
        sleep(_POLL_S)
