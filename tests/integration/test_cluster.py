"""The same tables from a cluster: two executors in one process, and a standalone master with two workers.

The standalone cluster lives in a network namespace of its own without a way out, and ends with its processes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metrics.tables.schemas import TABLES
from tests.fabricate import Fabrication

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from pathlib import Path; from metrics import tables; tables.build(Path(sys.argv[1]), sys.argv[2])"

SHARED = """
import os, signal, sys
from pathlib import Path

del os.environ["PYTHONPATH"]  # known to the driver alone: the code reaches executors as a zip or not at all
from metrics import tables
from metrics.pcap import source
from metrics.tables import logs, shares

notes = Path(sys.argv[3])
shares.LEAST_ROWS, logs.SHARE_BYTES, source.PARTITION_BYTES = 10, 1 << 12, 1 << 12  # as if the run were large
write = shares.write_share

def dying(rows, targets, share):
    # The last task of every table dies once, in the middle of its first part.
    import metrics.tables.shares

    (notes / f"share-{min(targets)}-{share.number}-of-{share.count}").touch()
    died = notes / f"died-{min(targets)}"
    if share.number == share.count - 1 and not died.exists():
        died.touch()

        class Dying:
            def write_table(rows, path, **options):
                Path(path).write_bytes(b"PAR1, and no more")
                os.kill(os.getpid(), signal.SIGKILL)

        metrics.tables.shares.pq = Dying
    write(rows, targets, share)

shares.write_share = dying
tables.build(Path(sys.argv[1]), sys.argv[2])
"""

STANDALONE = """
set -e
ip link set lo up
export SPARK_HOME=$({python} -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)')
spark_class=$SPARK_HOME/bin/spark-class
export SPARK_DAEMON_JAVA_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
export SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON={python} SPARK_LOCAL_DIRS={work}/scratch
cd {work}
exec {{master}}< <($spark_class org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 7077 --webui-port 0 2>&1)
for worker in 1 2; do
  $spark_class org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0 -c 1 -m 1g \
    -d {work}/worker$worker spark://127.0.0.1:7077 > worker$worker.log 2>&1 &
done
grep --line-buffered -m 2 'Registering worker' <&$master
cat <&$master > /dev/null &
PYTHONPATH={root} {python} -c '{build}' {run} spark://127.0.0.1:7077
"""


def rows(run_dir: Path, name: str) -> list[str]:
    table = pq.read_table(run_dir / "tables" / f"{name}.parquet")
    return sorted(map(str, table.to_pylist()))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = Fabrication(seed=5, nodes=6, topics=3, messages=30).write(tmp_path_factory.mktemp("local") / "run")
    subprocess.run([sys.executable, "-c", BUILD, run_dir, "local[2]"], cwd=ROOT, check=True, timeout=300)
    return run_dir


def copy_of(local: Path, target: Path) -> Path:
    """The same run, not analysed."""
    subprocess.run(["cp", "-r", local, target], check=True)
    subprocess.run(["rm", "-r", target / "tables"], check=True)
    return target


def assert_equal(local: Path, other: Path) -> None:
    for name in TABLES:
        assert rows(other, name) == rows(local, name), name


def test_cluster_whose_tasks_share_tables_and_die_gives_the_rows_of_local(local: Path, tmp_path: Path) -> None:
    """Two executors with two cores each: every kernel runs as four shares, and one of them twice."""
    run_dir, notes = copy_of(local, tmp_path / "run"), tmp_path / "notes"
    notes.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment["SPARK_LOCAL_DIRS"] = str(tmp_path / "scratch")  # executors that are ended leave theirs behind
    argv = [sys.executable, "-c", SHARED, str(run_dir), "local-cluster[2,2,1024]", str(notes)]
    subprocess.run(argv, cwd=tmp_path, env=environment, check=True, timeout=300)
    assert_equal(local, run_dir)
    kernels = {"carried", "deliveries", "messages", "published"}  # by the first table that each of them writes
    assert {path.name for path in notes.glob("died-*")} == {f"died-{name}" for name in kernels}
    for name in kernels:
        assert len(list(notes.glob(f"share-{name}-*-of-4"))) == 4, name
    for name in ("hops", "deliveries", "messages"):
        parts = sorted(path.name for path in (run_dir / "tables" / f"{name}.parquet").iterdir())
        assert parts == [f"part-{number}.parquet" for number in range(4)], name
    assert len(list((run_dir / "tables" / "frames.parquet").iterdir())) > 1, "captures are read by several tasks"


@pytest.mark.root
def test_cluster_standalone_with_two_workers_gives_the_rows_of_local(local: Path, tmp_path: Path) -> None:
    run_dir = copy_of(local, tmp_path / "run")
    script = STANDALONE.format(python=sys.executable, work=tmp_path, root=ROOT, build=BUILD, run=run_dir)
    isolated = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run([*isolated, "bash", "-c", script], check=False, timeout=200, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_equal(local, run_dir)
