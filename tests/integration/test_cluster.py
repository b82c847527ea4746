"""The same tables wherever they are computed: in one process, by Spark on this machine, and by clusters.

The clusters are two executors of one master's process, and a standalone master with two workers.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.experiment.loader import load_experiment
from harness.planning import make_plan, write_plan
from harness.stages.simulation import simulate_planned
from metrics import tables
from metrics.rundir import RunDir
from metrics.tables.schemas import TABLES
from metrics.totals import read_totals
from tests import digests
from tests.fabricate import Fabrication
from tests.standalone import MASTER, ROOT, run_on_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BUILD = "import sys; from pathlib import Path; from metrics import tables; tables.build(Path(sys.argv[1]), sys.argv[2])"

BUILD_ALL = """
import sys
from pathlib import Path

from metrics.executors.spark import on_spark
from metrics.rundir import RunDir
from metrics.tables.pipeline import Pipeline

with on_spark(sys.argv[1]) as executor:
    for each in sys.argv[2:]:
        run = RunDir(Path(each))
        run.tables.mkdir()
        Pipeline(executor, run).write(packets=True)
"""

AWAIT_KERNELS = """
import sys, time
from metrics.session import session

def look(batches):
    import sys  # the function travels alone
    for batch in batches:
        yield batch.slice(0, int("metrics.executors.kernels" in sys.modules))

with session("local-cluster[1,1,1024]", light=True, kernels=True) as spark:
    until_s = time.monotonic() + 120
    while not spark.range(0, 1, 1, 1).mapInArrow(look, "id bigint").count():
        assert time.monotonic() < until_s, "no task has imported them"
"""

SHARED = """
import os, signal, sys
from pathlib import Path

del os.environ["PYTHONPATH"]  # known to the driver alone: the code reaches executors as a zip or not at all
from metrics import tables
from metrics.pcap import tasks
from metrics.tables import logs, pipeline, shares

notes = Path(sys.argv[3])
shares.LEAST_ROWS, logs.SHARE_BYTES, tasks.PARTITION_BYTES = 10, 1 << 12, 1 << 12  # as if the run were large
write = shares.write_share

def dying(rows, targets, share, *options):
    # The last task of every table dies once, in the middle of its first part.
    (notes / f"share-{min(targets)}-{share.number}-of-{share.count}").touch()
    died = notes / f"died-{min(targets)}"
    if share.number == share.count - 1 and not died.exists():

        class Dying:
            def write_table(rows, path, **options):
                Path(path).write_bytes(b"PAR1, and no more")
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        write.__globals__["pq"] = Dying  # this function was sent with globals of its own
    write(rows, targets, share, *options)

shares.write_share = dying  # of tasks: the pipeline has its own name for the driver
tables.build(Path(sys.argv[1]), sys.argv[2])
"""

KILL_WORKER = """
import os, signal, sys
from pathlib import Path

del os.environ["PYTHONPATH"]  # known to the driver alone: the code reaches executors as a zip or not at all
from metrics import tables
from metrics.pcap import tasks
from metrics.tables import logs, shares

notes = Path(sys.argv[3])
shares.LEAST_ROWS, logs.SHARE_BYTES, tasks.PARTITION_BYTES = 10, 1 << 12, 1 << 12  # as if the run were large
write = shares.write_share

def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

def killing(rows, targets, share, *options):
    # The first task of the hops kills its executor and the worker that would start another one.
    if "hops" in targets and share.number == 0 and not (notes / "killed").exists():
        daemon = os.getppid()
        executor = parent_of(daemon)
        worker = parent_of(executor)
        names = [Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\\0", b" ") for each in (executor, worker)]
        (notes / "killed").write_bytes(b"\\n".join(names))
        os.kill(worker, signal.SIGKILL)
        os.kill(executor, signal.SIGKILL)
        signal.pause()
    write(rows, targets, share, *options)
    (notes / f"done-{min(targets)}-{share.number}-{os.getppid()}").touch()

shares.write_share = killing  # of tasks: the pipeline has its own name for the driver
print(tables.build(Path(sys.argv[1]), sys.argv[2]))
"""


def rows(run_dir: Path, name: str) -> list[str]:
    table = pq.read_table(run_dir / "tables" / f"{name}.parquet")
    return sorted(map(str, table.to_pylist()))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, analysed in one process."""
    run_dir = Fabrication(seed=5, nodes=6, topics=3, messages=30).write(tmp_path_factory.mktemp("local") / "run")
    tables.build(run_dir, "here")
    return run_dir


def copy_of(local: Path, target: Path) -> Path:
    """The same run, not analysed."""
    subprocess.run(["cp", "-r", local, target], check=True)
    subprocess.run(["rm", "-r", target / "tables"], check=True)
    return target


def assert_equal(local: Path, other: Path) -> None:
    for name in TABLES:
        assert rows(other, name) == rows(local, name), name
    found = [read_totals(RunDir(each)).messages.standouts for each in (local, other)]
    assert found[0] == found[1] and found[0] is not None


DAMAGED = ("captures", "traces", "nothing")
"""What a run lacks: its captures, some traces, or nothing."""


def fabricate(run_dir: Path, lacks: str) -> Path:
    Fabrication(seed=6, nodes=6, topics=3, messages=30).write(run_dir)
    if lacks == "traces":
        cut = run_dir / "trace" / "2.jsonl"
        cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2 - 3])
        (run_dir / "trace" / "5.jsonl").unlink()
    if lacks == "captures":
        (run_dir / "capture" / "plane.pcapng").unlink()
    return run_dir


def simulate(run_dir: Path) -> Path:
    """A run with joins, leaves, crashes and adversaries."""
    file = run_dir.with_suffix(".toml")
    file.write_text(digests.EXPERIMENT.format(protocol="similarity", adversary="asker", network=""), encoding="utf-8")
    write_plan(make_plan(load_experiment(file), file), run_dir)
    simulate_planned(run_dir)
    return run_dir


@pytest.mark.long
def test_spark_on_this_machine_gives_the_rows_of_one_process(tmp_path: Path) -> None:
    """One session for all runs, since its start takes most of the time."""
    runs = [fabricate(tmp_path / lacks, lacks) for lacks in DAMAGED] + [simulate(tmp_path / "simulated")]
    for run_dir in runs:
        shutil.copytree(run_dir, run_dir.with_name(f"{run_dir.name}-here"))
        tables.build(run_dir.with_name(f"{run_dir.name}-here"), "here", packets=True)
    subprocess.run([sys.executable, "-c", BUILD_ALL, "local[2]", *runs], cwd=ROOT, check=True, timeout=900)
    for run_dir in runs:
        assert_equal(run_dir.with_name(f"{run_dir.name}-here"), run_dir)
        assert rows(run_dir, "packets") == rows(run_dir.with_name(f"{run_dir.name}-here"), "packets")


@pytest.mark.long
@pytest.mark.parametrize(("master", "cores"), [("local[2, 2]", 2), ("local-cluster[2,2,1024]", 4)])
def test_tasks_that_share_tables_and_die_give_the_rows_of_one_process(
    master: str, cores: int, local: Path, tmp_path: Path
) -> None:
    """Every kernel runs as a share per core, and the last of them twice: the masters try a task as often, or more."""
    run_dir, notes = copy_of(local, tmp_path / "run"), tmp_path / "notes"
    notes.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment["SPARK_LOCAL_DIRS"] = str(tmp_path / "scratch")  # executors that are ended leave theirs behind
    argv = [sys.executable, "-c", SHARED, str(run_dir), master, str(notes)]
    subprocess.run(argv, cwd=tmp_path, env=environment, check=True, timeout=900)
    assert_equal(local, run_dir)
    kernels = {"arrivals", "conns", "contents", "control", "copies", "connected", "instances", "sharing", "transits"}
    """By the first table that each writes."""
    assert {path.name for path in notes.glob("died-*")} == {f"died-{name}" for name in kernels}
    for name in kernels:
        assert len(list(notes.glob(f"share-{name}-*-of-{cores}"))) == cores, name
    for name in ("hops", "deliveries", "messages"):
        parts = sorted(path.name for path in (run_dir / "tables" / f"{name}.parquet").iterdir())
        assert parts == [f"part-{number}.parquet" for number in range(cores)], name
    assert len(list((run_dir / "tables" / "frames.parquet").iterdir())) > 1, "captures are read by several tasks"


@pytest.mark.root
@pytest.mark.long
def test_cluster_standalone_with_two_workers_gives_the_rows_of_local(local: Path, tmp_path: Path) -> None:
    run_dir = copy_of(local, tmp_path / "run")
    run_on_cluster(tmp_path, [sys.executable, "-c", BUILD, str(run_dir), MASTER])
    assert_equal(local, run_dir)


@pytest.mark.root
@pytest.mark.long
def test_cluster_that_loses_a_worker_in_the_middle_of_a_job_gives_the_rows_of_local(
    local: Path, tmp_path: Path
) -> None:
    run_dir, notes = copy_of(local, tmp_path / "run"), tmp_path / "notes"
    notes.mkdir()
    said = run_on_cluster(tmp_path, [sys.executable, "-c", KILL_WORKER, str(run_dir), MASTER, str(notes)])
    assert said.splitlines()[-1].startswith(f"by Spark at {MASTER}, 2 cores"), "both workers were there at first"
    executor, worker = (notes / "killed").read_text().splitlines()
    assert "CoarseGrainedExecutorBackend" in executor and "deploy.worker.Worker" in worker
    later = {path.name.rpartition("-")[2] for path in notes.glob("done-copies-*")}
    assert len(later) == 1, "one executor is left"
    assert_equal(local, run_dir)


@pytest.mark.long
def test_workers_of_a_cluster_import_the_kernels_before_a_task_needs_them(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-c", AWAIT_KERNELS]
    done = subprocess.run(argv, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=900, check=False)
    assert done.returncode == 0
