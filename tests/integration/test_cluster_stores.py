"""A cluster whose workers share no file system with the driver: they analyse runs in a store, and no others.

Spark repeats tasks that die, and begins slow ones again elsewhere: the rows are the same.
"""

import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metrics import tables
from metrics.tables.schemas import TABLES
from tests.fabricate import Fabrication
from tests.standalone import MASTER, run_on_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.root, pytest.mark.long]

DRIVER = """
import os, shutil, signal, sys, time
from pathlib import Path

from tests.object_store import make_bucket, s3_server

del os.environ["PYTHONPATH"]  # known to the driver alone: the code reaches executors as a zip or not at all
from metrics.analysis import analyse
from metrics.copying import copy_run
from metrics.executors.cluster import ExecutorOptions, WorkersError
from metrics.pcap import tasks
from metrics.tables import logs, shares

master, hidden, shared, notes = sys.argv[1], *map(Path, sys.argv[2:])
shares.LEAST_ROWS, logs.SHARE_BYTES, tasks.PARTITION_BYTES = 10, 1 << 12, 1 << 12  # as if the run were large
write = shares.write_share

def troubled(rows, targets, share, *options):
    # The last task of each table dies once in the middle of its first part. That of the deliveries is slow instead:
    # Spark begins a slow task again only on a worker that has not tried it, and there are two.
    name = min(targets)
    where = notes / ("store" if "://" in str(targets[name]) else "shared")
    where.mkdir(exist_ok=True)
    if share.number == share.count - 1 and share.count > 1:
        if name != "copies" and not (where / f"died-{name}").exists():

            class Dying:
                def write_table(rows, path, **options):
                    Path(path).write_bytes(b"PAR1, and no more")
                    (where / f"died-{name}").touch()
                    os.kill(os.getpid(), signal.SIGKILL)

            write.__globals__["pq"] = Dying  # this function was sent with globals of its own
        elif name == "copies" and not (where / "slow").exists():
            (where / "slow").touch()
            time.sleep(120)
            (where / "outlived").touch()
    write(rows, targets, share, *options)
    (where / f"done-{name}-{share.number}").touch()

options = ExecutorOptions(memory_mib=2048, cores=1, python=sys.executable)
os.environ["PYSPARK_PYTHON"] = "/no/such/python"  # which no worker uses, whose options name another one
shares.write_share = troubled  # of tasks: the pipeline has its own name for the driver
try:
    analyse(hidden, master, options)
except WorkersError as error:
    print(error)
with s3_server() as url:
    os.environ["AWS_ENDPOINT_URL"] = url
    bucket = make_bucket()
    copy_run(hidden, bucket / "run")
    print(analyse(bucket / "run", master, options).computed_by)
    analyse(shared, master, options)
    print(*sorted({path.name for path in bucket.walk() if path.name.startswith(".")}))
    copy_run(bucket / "run", hidden.with_name("back"))
"""

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


def rows(run_dir: Path, name: str) -> list[str]:
    return sorted(map(str, pq.read_table(run_dir / "tables" / f"{name}.parquet").to_pylist()))


def test_workers_without_our_files_read_and_write_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, notes = tmp_path / "hidden", tmp_path / "notes"
    local = Fabrication(seed=5, nodes=6, topics=3, messages=30).write(hidden / "run")
    shared = tmp_path / "shared"
    shutil.copytree(local, shared)
    here = tmp_path / "here"
    shutil.copytree(local, here)
    tables.build(here, "here")
    notes.mkdir()
    (tmp_path / "spark-defaults.conf").write_text("\n".join(f"{key} {value}" for key, value in SPECULATION.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    argv = [sys.executable, "-c", DRIVER, MASTER, str(local), str(shared), str(notes)]
    said = run_on_cluster(tmp_path, argv, hidden=hidden).splitlines()

    refused, computed_by, left = said[-3:]
    assert refused.startswith(f"{local}: the workers of {MASTER} on "), refused
    assert "do not see it at this path" in refused
    assert "trellis copy" in refused
    assert not (local / "tables").exists()
    assert computed_by.startswith(f"by Spark at {MASTER}, 2 cores"), computed_by
    assert left == "", "objects of attempts that were given up are gone"
    for run_dir in (hidden / "back", shared):
        for name in TABLES:
            assert rows(run_dir, name) == rows(here, name), (run_dir.name, name)
        assert (run_dir / "report" / "index.html").is_file()
    assert list((tmp_path / "tmp").glob("trellis-*")) == [], "tasks that were killed leave no copies"
    for where in ("store", "shared"):
        found = {path.name for path in (notes / where).iterdir()}
        assert {"died-arrivals", "died-contents", "slow", "done-copies-1"} <= found, found
        assert "outlived" not in found, "the slow attempt ended by itself: nobody began it again"
