"""What Spark's workers import is what the sweep was started with, and results say what it was."""

import os
import pickle
import struct
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from pyspark import cloudpickle

from harness.experiment.form import Experiment
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import WorkloadSpec
from harness.studies import executor
from harness.studies.code_hash import CODE, ROOT, code_of
from harness.studies.executor import PACKAGES, Failure, Success, perform
from harness.studies.form import RunSpec
from harness.studies.store import Job
from metrics.executors.shipping import pack_code
from metrics.rundir import RunDir
from metrics.storage.parquet import read_parquet
from metrics.tables.pipeline import Pipeline
from tests.fabricate import Fabrication

SMALL = Experiment(
    name="small",
    testbed="simulated",
    underlay=UnderlaySpec(kind="world-cities", hosts=5),
    workload=WorkloadSpec(duration_s=1),
)
CODE_HERE = code_of([SMALL])
JOB = Job("key", CODE_HERE, {}, 1, SMALL, RunSpec(), ("degree_mean",), ".", 1.0)

PERFORM = """
import sys
from harness.studies import code_hash, executor
assert str(code_hash.ROOT) == sys.argv[1], code_hash.ROOT
sys.stdout.buffer.write(executor.perform(sys.stdin.buffer.read()))
"""


def outcome_of(job: Job) -> Success | Failure:
    return executor.OUTCOMES.decode(perform(msgspec.json.encode(job)))


def test_the_shipped_code_makes_the_same_result_under_the_same_hash(tmp_path: Path) -> None:
    """A run from the zip alone: packages, data files and the hash of what was imported."""
    shipped = pack_code(tmp_path, PACKAGES)
    environment = os.environ | {"PYTHONPATH": str(shipped)}
    argv = [sys.executable, "-P", "-c", PERFORM, str(shipped)]
    done = subprocess.run(
        argv, input=msgspec.json.encode(JOB), env=environment, cwd=tmp_path, check=True, stdout=subprocess.PIPE
    )
    there, here = executor.OUTCOMES.decode(done.stdout), outcome_of(JOB)
    assert isinstance(there, Success) and isinstance(here, Success)
    assert there.result.code == here.result.code == CODE_HERE
    assert there.result.rows == here.result.rows != ()


def test_a_worker_with_other_code_computes_nothing() -> None:
    outcome = outcome_of(replace(JOB, code="of yesterday"))
    assert isinstance(outcome, Failure)
    assert f"({CODE_HERE}) differs from that of the sweep (of yesterday)" in outcome.words


def test_the_hash_covers_the_modules_of_studies_that_simulate() -> None:
    """All that a run imports except the form of studies, whose values are in the key of a job."""
    program = "import sys, harness.studies.point_run; print(*(name for name in sys.modules if 'studies.' in name))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    imported = {f"{name.replace('.', '/')}.py" for name in done.stdout.split() if name.startswith("harness.studies.")}
    assert imported - {"harness/studies/form.py"} == {name for name in CODE if name.startswith("harness/studies")}


WORKER = """
import pickle, struct, sys

KNOWN = sys.stdlib_module_names | {"metrics", "peer", "topologies", "numpy", "pyarrow", "msgspec", "pyspark", "py4j"}

class Bare:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] not in KNOWN and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Bare)
answers = sys.stdout.buffer
while size := sys.stdin.buffer.read(4):
    try:
        task, items = pickle.loads(sys.stdin.buffer.read(struct.unpack("!I", size)[0]))
        answer = pickle.dumps([task(item) for item in items])
    except BaseException as error:
        answer = pickle.dumps(error)
    answers.write(struct.pack("!I", len(answer)) + answer)
    answers.flush()
import metrics
assert metrics.__file__.startswith(sys.argv[1]), metrics.__file__
"""


class BareWorker:
    """An executor whose tasks run in a Python that has our code as a zip, and only what the documents ask for."""

    description, workers = "by a worker of a cluster", 2

    def __init__(self, shipped: Path) -> None:
        self.one_at_a_time = threading.Lock()
        installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(shipped), *sorted(installed)])}
        argv = [sys.executable, "-P", "-S", "-c", WORKER, str(shipped)]  # without the path files of this environment
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=shipped.parent, env=environment
        )

    def map(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        assert self.process.stdin and self.process.stdout
        sent = cloudpickle.dumps((task, list(items)))
        with self.one_at_a_time:
            self.process.stdin.write(struct.pack("!I", len(sent)) + sent)
            self.process.stdin.flush()
            (size,) = struct.unpack("!I", self.process.stdout.read(4))
            answer = pickle.loads(self.process.stdout.read(size))
        if isinstance(answer, BaseException):
            raise answer
        return list(answer)


@pytest.fixture
def bare_worker(tmp_path: Path) -> Iterator[BareWorker]:
    worker = BareWorker(pack_code(tmp_path))
    yield worker
    assert worker.process.stdin
    worker.process.stdin.close()
    assert worker.process.wait(300) == 0


def test_the_tasks_of_an_analysis_need_no_more_than_the_documents_say(tmp_path: Path, bare_worker: BareWorker) -> None:
    run = RunDir(Fabrication(seed=4, nodes=5, messages=20).write(tmp_path / "run"))
    run.tables.mkdir()
    Pipeline(bare_worker, run).write(packets=True)
    assert len(read_parquet(run.tables / "deliveries.parquet")) > 0
