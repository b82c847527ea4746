"""The Spark session of the analysis: settings that were measured, in one place.

``python -m metrics.session``, which set-up calls, makes the class archive with which later sessions start faster.
"""

import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from metrics.executors.cluster import DEFAULTS, ExecutorOptions, MasterError, is_connect
from metrics.executors.shipping import ship_code
from metrics.processors import usable_cores

WAIT_S = 30.0
"""The longest wait. A cluster that gives no executor within it is used anyway: Spark then waits with the tasks."""

SETTLED_S = 3.0
"""If the number of executors is not known, all count as present when no new one has come for this long."""

_POLL_S = 0.1

_CONNECT_PORT = 15002
"""The port of a Spark Connect server if its URL does not say."""

_MANY = 1 << 20
"""More rows than any session has cores."""

_KERNELS = {
    "spark.python.daemon.module": "metrics.executors.daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[1]),
}

_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_STOPPABLE = {"spark.network.timeout": "30d", "spark.executor.heartbeatInterval": "1d"}
"""An executor in the driver's JVM lives as long as the driver, even if both were stopped between two heartbeats."""

_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
"""Options without an optimising compiler: queries run once. No caller waits for the garbage collector's pauses."""
_LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LIGHT_HEAP = "-Xms1g -Xmn600m"
_LIGHT = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.buffer.pageSize": "1m",
}
"""Options for sessions with few rows in the JVM: otherwise, most of the processor time would go into compiling code
that runs once, into collecting garbage while the heap grows, and into zeroing pages of 64 MiB for a few rows."""


@contextmanager
def session(
    master: str | None = None, *, light: bool = False, kernels: bool = False, options: ExecutorOptions = DEFAULTS
) -> Iterator[SparkSession]:
    """Yield a session that leaves nothing behind, and knows its executors' cores (``defaultParallelism``).

    Args:
        master: a Spark master, or the URL of a Spark Connect server, which has its own settings; None = all cores of
            this machine that a quota allows.
        light: few rows go through the JVM, so start fast rather than run fast.
        kernels: Python workers begin with the kernels imported: on this machine (``metrics.executors.daemon``), and on
            a cluster, to which our code is shipped, while further executors are awaited.
        options: the resources of a cluster's executors.

    Raises:
        MasterError: the cluster's master does not give a session.
    """
    if master is not None and is_connect(master):
        with _connected(master) as spark:
            if kernels:
                ship_code(spark)
            yield spark
        return
    cores = usable_cores()
    chosen = master or f"local[{cores}]"
    with _python_of_workers(options.python), tempfile.TemporaryDirectory(prefix="trellis-spark-") as scratch:
        builder = SparkSession.builder.appName("trellis").master(chosen)
        settings = _settings(chosen, cores, scratch, light=light, kernels=kernels)
        if not chosen.startswith("local"):
            settings |= options.settings()
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            spark = builder.getOrCreate()
        except Exception:  # there are many types, with messages of Java
            if not is_cluster(chosen):
                raise
            raise MasterError(chosen) from None
        spark.sparkContext.setLogLevel("ERROR")
        try:
            if kernels and is_cluster(chosen):
                ship_code(spark)
                await_executors(spark, chosen, _ImportingKernels(spark))
            else:
                await_executors(spark, chosen)
            yield spark
        finally:
            spark.stop()


class _ImportingKernels:
    """Lets the workers of executors that have just registered import the kernels, a task per core.

    A worker takes seconds for that, during which others may still register. What fails here fails again in the tasks of
    the analysis, which say why.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._cores = spark, 0

    def __call__(self) -> None:
        cores = count_cores(self._spark)
        tasks, self._cores = cores - self._cores, cores
        if tasks > 0:
            threading.Thread(target=self._run, args=(tasks,), daemon=True).start()

    def _run(self, tasks: int) -> None:
        with suppress(Exception):
            self._spark.range(0, tasks, 1, tasks).mapInArrow(_import_kernels, "id bigint").collect()


def _import_kernels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import_module("metrics.executors.kernels")  # which needs most of metrics, and so this module
    yield from batches


@contextmanager
def _connected(url: str) -> Iterator[SparkSession]:
    """Yield a session of a Spark Connect server.

    Raises:
        MasterError: the server does not give a session, or the packages for it are missing here.
    """
    try:
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError:
        raise MasterError(url, 'Spark Connect needs packages: pip install "pyspark[connect]"') from None
    host, _, port = url.removeprefix("sc://").partition("/")[0].partition(":")
    try:
        socket.create_connection((host, int(port or _CONNECT_PORT)), WAIT_S).close()  # gRPC would retry for minutes
        spark: Any = ConnectSession.builder.remote(url).create()
        _ = spark.version  # the first request that the server must answer
    except Exception:  # there are many types: from gRPC, from Spark, about the URL
        raise MasterError(url) from None
    try:
        yield spark
    finally:
        spark.stop()


def count_cores(spark: SparkSession) -> int:
    """Return how many tasks a session runs at a time; with Spark Connect only a query can find this."""
    if isinstance(spark, SparkSession):
        return spark.sparkContext.defaultParallelism
    return spark.range(_MANY).selectExpr("spark_partition_id() AS part").distinct().count()


@contextmanager
def _python_of_workers(path: str | None) -> Iterator[None]:
    """Let workers run this Python; None = ``PYSPARK_PYTHON``, otherwise this process's.

    Otherwise, workers take the first python3 on the PATH, which may have no pyarrow.
    """
    before = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_PYTHON"] = path or before
    try:
        yield
    finally:
        os.environ["PYSPARK_PYTHON"] = before


def _settings(master: str, cores: int, scratch: str, *, light: bool, kernels: bool) -> dict[str, str]:
    """Return the configuration for a master; the driver's address is its own for a remote one, otherwise loopback."""
    local = not is_cluster(master)
    java = _LIGHT_JAVA if light else _JAVA
    if class_archive().exists():  # an executor on another machine, without it, uses its own
        java += f" -XX:SharedArchiveFile={class_archive()} -Xlog:disable -Xlog:all=error:stderr"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": scratch,
        "spark.executorEnv.PYTHONSAFEPATH": "1",  # shipped code comes before code in the working folder
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": f"{java} {_LIGHT_HEAP}" if light else java,
        "spark.executor.extraJavaOptions": java,
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.autoBroadcastJoinThreshold": str(64 << 20),
        "spark.sql.join.preferSortMergeJoin": "false",
        "spark.sql.maxConcurrentOutputFileWriters": "16",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.session.timeZone": "UTC",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    chosen = (
        (_LIGHT, light),
        (_KERNELS, kernels and local),
        (_STOPPABLE, local),
        (_LOOPBACK, master.startswith("local")),
    )
    return settings | {key: value for group, applies in chosen if applies for key, value in group.items()}


@contextmanager
def connect_server(spark: SparkSession) -> Iterator[str]:
    """Serve Spark Connect on a free port of loopback, in the JVM of a session. Yield the server's URL."""
    context: Any = spark.sparkContext._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context.conf().set("spark.connect.grpc.binding.port", "0")
    jvm: Any = spark.sparkContext._jvm
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(context)
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())


def class_archive() -> Path:
    """Return the path of the JVM's class-data archive, beside the PySpark to which it belongs."""
    return Path(sys.prefix) / "share" / f"trellis-spark-{pyspark.__version__}.jsa"


def make_class_archive() -> Path:
    """Run a small job and keep the classes that it loaded. A JVM that cannot use the archive works without it."""
    archive = class_archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="trellis-spark-") as scratch:
        settings = _settings("local[1]", 1, scratch, light=True, kernels=True)
        java = f"{_LIGHT_JAVA} {_LIGHT_HEAP} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
        settings["spark.driver.extraJavaOptions"] = java
        builder = SparkSession.builder.appName("trellis").master("local[1]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        _train(spark, Path(scratch))
        gateway = spark.sparkContext._gateway
        assert gateway is not None, "a session that has run a job has a gateway"
        jvm = gateway.proc
        spark.stop()
        gateway.shutdown()
        jvm.stdin.close()
        jvm.wait()
    return archive


def _train(spark: SparkSession, scratch: Path) -> None:
    """Use what tasks use: Python in the analysis, and JSON, Parquet, joins ... in readers of its tables."""
    spark.range(2).mapInArrow(lambda batches: batches, "id bigint").collect()
    rows = spark.range(100).select("id", (F.col("id") % 7).alias("key"), F.array("id").alias("list"))
    rows.write.json(str(scratch / "json"))
    lines = spark.read.schema("id bigint, key bigint, list array<bigint>").json(str(scratch / "json"))
    lines.repartition(2, "key").write.parquet(str(scratch / "parquet"))
    stored = spark.read.parquet(str(scratch / "parquet"))
    counts = stored.groupBy("key").agg(F.count("*").alias("n"), F.percentile_approx("id", 0.5).alias("median"))
    stored.join(counts, "key", "full").join(F.broadcast(counts.select("key", "n")), "key", "left").collect()


def await_executors(spark: SparkSession, master: str, arrived: Callable[[], None] = lambda: None) -> None:
    """Wait until the executors of a session have registered, so that ``defaultParallelism`` counts their cores.

    Before that, ``defaultParallelism`` is 2 on any cluster. With a local master there is nothing to wait for.

    Args:
        spark: the session.
        master: its master.
        arrived: called each time when executors have registered.
    """
    if is_cluster(master):
        context = spark.sparkContext._jsc.sc()
        expected = expected_executors(master)
        wait_until_settled(lambda: int(context.getExecutorMemoryStatus().size()) - 1, expected, arrived)


def is_cluster(master: str) -> bool:
    """Return whether tasks run in executors, which register some time after the session's start."""
    return master.startswith("local-cluster") or not master.startswith("local")


def expected_executors(master: str) -> int | None:
    """Return how many executors the master's name announces; None = it does not say."""
    named = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,.*\]", master)
    return int(named[1]) if named else None


def wait_until_settled(
    count: Callable[[], int],
    expected: int | None,
    arrived: Callable[[], None] = lambda: None,
    *,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when all executors are there, or after ``WAIT_S``.

    Args:
        count: how many there are now.
        expected: how many there will be; None = not known: one at least, and no new one for ``SETTLED_S``.
        arrived: is called when there are more than before.
        now_s: a clock.
        sleep: waits for some seconds.
    """
    begin_s = changed_s = now_s()
    last = 0
    while now_s() - begin_s < WAIT_S:
        found = count()
        if found > last:
            arrived()
        if expected is not None and found >= expected:
            return
        if found != last:
            last, changed_s = found, now_s()
        elif expected is None and found and now_s() - changed_s >= SETTLED_S:
            return
        sleep(_POLL_S)


if __name__ == "__main__":
    print(make_class_archive())
