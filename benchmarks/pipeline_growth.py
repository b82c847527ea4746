"""The tables of runs of growing size, in one process and by Spark, and by a cluster of growing size.

Each analysis is a process of its own whose start is included. Runs are made here (``_synthetic_run``), one after the
other; the largest of ``--full`` needs 40 GB of disk. Times per packet are of the wall clock and of all processors; both
are compared with the smallest run's. Memory is anonymous memory, sampled: of the whole analysis, and of the process
that had the most: a worker of Spark runs one task at a time. ``--workers`` adds a standalone Spark cluster on loopback
with so many workers of one core. Its speed-up is to be judged by a plain loop's. ``--tasks`` also makes the tables with
one task at a time and says what the largest task of each kind read (rows of staged tables) and held (memory of Arrow,
NumPy and Python); that takes several times as long.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from _processes import measure
from _synthetic_run import write_run
from _task_reads import measure_tasks

from metrics.executors import HERE
from metrics.rundir import RunDir
from metrics.tables.shares import MOST_ROWS

SIZES, FULL_SIZES = (300_000, 1_000_000), (1_000_000, 10_000_000, 100_000_000)
_ROOT = Path(__file__).parents[1]
_BUILD = "import sys, pathlib, metrics.tables; metrics.tables.build(pathlib.Path(sys.argv[1]), sys.argv[2])"
_WORKERS = 2  # for which tasks are measured
_HOST, _PORT = "127.0.0.1", 17077
_LOOP = "x = 0\nfor i in range(20_000_000): x += i"

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Measure and print; exits 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--full", action="store_true", help="1, 10 and 100 million packets")
    parser.add_argument("--packets", type=int, nargs="+", help="other numbers of packets")
    parser.add_argument("--master", nargs="+", default=[HERE, "local[2]"], help="where tables are computed")
    parser.add_argument("--workers", type=int, nargs="*", default=[], help="workers of a cluster, for the second size")
    parser.add_argument("--tasks", action="store_true", help="what the largest task read and held")
    parser.add_argument("--share-rows", type=int, default=MOST_ROWS, help="what tasks hold on the average, for --tasks")
    parser.add_argument("--run", type=Path, nargs="*", default=[], help="runs that are there, instead of new ones")
    given = parser.parse_args(argv)
    sizes = given.packets or (FULL_SIZES if given.full else SIZES)
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        share_rows = given.share_rows if given.tasks else None
        rows = list(measure_all(Path(folder), sizes, given.master, given.workers, given.run, share_rows))
    print(json.dumps(rows) if given.json else "\n".join(_lines(rows)))
    return 0


def measure_all(
    folder: Path,
    sizes: Sequence[int],
    masters: Sequence[str],
    workers: Sequence[int],
    runs: Sequence[Path],
    share_rows: int | None = None,
) -> Iterator[Row]:
    """A row per size and master, then one per number of workers.

    Args:
        folder: where runs are made.
        sizes: numbers of packets.
        masters: where each run's tables are computed.
        workers: of clusters, by which the tables of the second run are computed.
        runs: those that are there already; no others are made then.
        share_rows: what a share of the measured tasks holds; None = tasks are not measured.
    """
    first: dict[str, Row] = {}
    for number, run in enumerate(runs or (folder / str(size) for size in sizes)):
        if not runs:
            write_run(run, sizes[number])
        for master in masters:
            row = _measure_build(run, master)
            first.setdefault(master, row)
            for name in ("wall_us_per_packet", "cpu_us_per_packet"):
                row[f"{name}_over_first"] = row[name] / first[master][name]
            yield _shown(row)
        if share_rows is not None:
            yield _shown(_measure_largest_tasks(run, share_rows))
        if number == 1 or len(runs or sizes) == 1:
            yield from _measure_clusters(run, folder, workers)
        if not runs:
            shutil.rmtree(run)


def _measure_largest_tasks(run: Path, share_rows: int) -> Row:
    shutil.rmtree(run / "tables", ignore_errors=True)
    found = measure_tasks(RunDir(run), _WORKERS, share_rows)
    shutil.rmtree(run / "tables")
    row: Row = {"packets": RunDir(run).manifest.counters["records_written"], "master": f"tasks for {_WORKERS} workers"}
    row |= {"share_rows": share_rows, "largest_rows": max(use.rows for use in found.values())}
    row |= {"largest_mib": max(use.mib for use in found.values())}
    for name, use in found.items():
        row |= {f"{name}_tasks": use.tasks, f"{name}_rows": use.rows, f"{name}_mib": use.mib}
    return row


def _measure_clusters(run: Path, folder: Path, workers: Sequence[int]) -> Iterator[Row]:
    alone_s: float | None = None
    for count in workers:
        with _cluster(folder / f"cluster-{count}", count) as processes:
            row = _measure_build(run, f"spark://{_HOST}:{_PORT}", processes)
        alone_s = alone_s or row["wall_s"]
        loop_s = _time_loops(1), _time_loops(count)
        row |= {"workers": count, "speed_up": alone_s / row["wall_s"], "plain_loop": count * loop_s[0] / loop_s[1]}
        yield _shown(row)


def _shown(row: Row) -> Row:
    print("\n".join(_lines([row])), file=sys.stderr, flush=True)
    return row


def _measure_build(run: Path, master: str, cluster: Sequence[int] = ()) -> Row:
    """All tables of a run."""
    os.sync()
    shutil.rmtree(run / "tables", ignore_errors=True)
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    used = measure([sys.executable, "-P", "-c", _BUILD, str(run), master], environment, cluster)
    shutil.rmtree(run / "tables")
    packets = RunDir(run).manifest.counters["records_written"]
    return {
        "packets": packets,
        "recorded_mb": RunDir(run).recorded_bytes / 1e6,
        "master": master,
        "wall_s": used.seconds,
        "cpu_s": used.total_cpu_s,
        "wall_us_per_packet": used.seconds / packets * 1e6,
        "cpu_us_per_packet": used.total_cpu_s / packets * 1e6,
        "peak_mb": used.peak_together_mb,
        "peak_driver_mb": sum(map(used.largest_mb, ("metrics.tables.build", "SparkSubmit"))),  # Python and its JVM
        "peak_task_mb": used.largest_mb("daemon" if master != HERE else ""),
    }


@contextmanager
def _cluster(folder: Path, workers: int) -> Iterator[list[int]]:
    """A standalone cluster on loopback, each worker on a core of its own as on a machine with one: the processes."""
    folder.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
    }
    started: list[subprocess.Popen[bytes]] = []

    cores = sorted(os.sched_getaffinity(0))

    def start(name: str, kind: str, *options: str, on: Sequence[int] = cores) -> Path:
        log = folder / f"{name}.log"
        argv = ["taskset", "--cpu-list", ",".join(map(str, on)), str(home / "bin" / "spark-class")]
        argv += [f"org.apache.spark.deploy.{kind}", "--host", _HOST, *options]
        with log.open("wb") as file:
            process = subprocess.Popen(argv, env=environment, cwd=folder, stdout=file, stderr=file)
        started.append(process)
        return log

    try:
        log = start("master", "master.Master", "--port", str(_PORT), "--webui-port", "0")
        for number in range(workers):
            work = ("--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(folder / f"work-{number}"))
            core = cores[number % len(cores)]
            start(f"worker-{number}", "worker.Worker", *work, f"spark://{_HOST}:{_PORT}", on=[core])
        _await(log, "Registering worker", workers)
        yield [process.pid for process in started]
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def _await(log: Path, word: str, count: int, most_s: float = 120.0) -> None:
    start = time.monotonic()
    while log.read_text(encoding="utf-8", errors="replace").count(word) < count:
        if time.monotonic() - start > most_s:
            raise TimeoutError(f"the cluster has not begun: {log.read_text(encoding='utf-8', errors='replace')[-500:]}")
        time.sleep(0.1)


def _time_loops(processes: int) -> float:
    start = time.perf_counter()
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(processes)]
    for loop in loops:
        loop.wait()
    return time.perf_counter() - start


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield f"{row['packets']:,} packets, {row['master']}" + (
            f", workers: {row['workers']}" if "workers" in row else ""
        )
        for name, value in row.items():
            if name not in ("packets", "master", "workers"):
                yield f"{name:>32}  {value:,.4g}"


if __name__ == "__main__":
    raise SystemExit(main())
