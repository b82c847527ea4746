"""What Spark's workers import is what the sweep was started with, and results say what it was."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.experiment.form import Experiment, UnderlaySpec, WorkloadSpec
from harness.studies import executor
from harness.studies.code_hash import CODE, ROOT, code_of
from harness.studies.executor import PACKAGES, Failure, Success, perform
from harness.studies.form import RunSpec
from harness.studies.store import Job
from metrics.executors.shipping import pack_code

SMALL = Experiment(
    name="small", underlay=UnderlaySpec(kind="world-cities", hosts=5), workload=WorkloadSpec(duration_s=1)
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
