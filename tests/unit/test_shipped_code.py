"""What Spark's workers import is what the sweep was started with, and results say what it was."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import msgspec
import pytest

from harness.experiment.form import Experiment, UnderlaySpec, WorkloadSpec
from harness.studies import executor
from harness.studies.executor import PACKAGES, Failure, Success, perform
from harness.studies.form import RunSpec
from harness.studies.store import CODE, Job, code_hash
from metrics.pcap.source import pack_code
from metrics.tables import pipeline

JOB = Job(
    "key",
    {},
    1,
    Experiment(name="small", underlay=UnderlaySpec(kind="world-cities", hosts=5), workload=WorkloadSpec(duration_s=1)),
    RunSpec(),
    ("degree_mean",),
    ".",
    1.0,
)

PERFORM = """
import sys
from harness.studies import executor, store
assert str(store.ROOT) == sys.argv[1], store.ROOT
sys.stdout.buffer.write(executor.perform((sys.stdin.buffer.read(), store.code_hash())))
"""


def outcome_of(code: str) -> Success | Failure:
    return executor.OUTCOMES.decode(perform((msgspec.json.encode(JOB), code)))


def test_the_shipped_code_makes_the_same_result_under_the_same_hash(tmp_path: Path) -> None:
    """A run from the zip alone: packages, data files and the hash of what was imported."""
    shipped = pack_code(tmp_path, PACKAGES)
    environment = os.environ | {"PYTHONPATH": str(shipped)}
    argv = [sys.executable, "-P", "-c", PERFORM, str(shipped)]
    done = subprocess.run(
        argv, input=msgspec.json.encode(JOB), env=environment, cwd=tmp_path, check=True, stdout=subprocess.PIPE
    )
    there, here = executor.OUTCOMES.decode(done.stdout), outcome_of(code_hash())
    assert isinstance(there, Success) and isinstance(here, Success)
    assert there.result.code == here.result.code == code_hash()
    assert there.result.rows == here.result.rows != ()


def test_a_worker_with_other_code_computes_nothing() -> None:
    outcome = outcome_of("of yesterday")
    assert isinstance(outcome, Failure)
    assert f"({code_hash()}) differs from that of the sweep (of yesterday)" in outcome.words


def test_the_hash_changes_with_every_source_that_makes_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CODE:
        path = tmp_path / name
        (path.parent if name.endswith(".py") else path).mkdir(parents=True, exist_ok=True)
        (path if name.endswith(".py") else path / "module.py").write_text("1")
    monkeypatch.setattr("harness.studies.store.ROOT", tmp_path)
    hashes = {code_hash.__wrapped__()}
    for count, path in enumerate(sorted(tmp_path.rglob("*.py")), 2):
        path.write_text("2")
        hashes.add(code_hash.__wrapped__())
        assert len(hashes) == count
    (tmp_path / "peer" / "notes.txt").write_text("no code")
    assert code_hash.__wrapped__() in hashes
    (tmp_path / "peer" / "module.py").rename(tmp_path / "peer" / "other.py")
    assert code_hash.__wrapped__() not in hashes


def test_packets_are_read_by_all_cores_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = MagicMock()
    spark.sparkContext.defaultParallelism = 37
    monkeypatch.setattr(pipeline, "register", lambda session: None)
    run = SimpleNamespace(path=tmp_path, tables=tmp_path / "tables", manifest=SimpleNamespace(epoch_offset_ns=5))
    pipeline.Pipeline(spark, run).write_packets()
    options = spark.read.format.return_value.option.return_value.options.call_args.kwargs
    assert options["parallelism"] == "37"
