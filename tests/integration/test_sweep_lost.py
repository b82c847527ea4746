"""Sweeps on Spark whose tasks die: what was computed is kept, what was lost is tried again, what stays lost is said.

They are used in a folder with planted modules, none of which is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.studies.loader import load_study
from harness.studies.store import Store, SweepSpec, jobs_of, study_code, write_spec
from tests.planted import plant_modules

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

STUDY = """
name = "small"
measures = ["degree_mean"]
seeds = 4
[experiment.underlay]
kind = "world-cities"
hosts = 10
[experiment.workload]
duration_s = 1
[grid]
random.degree = [2, 3]
[[table]]
name = "table"
title = "Degree"
rows = ["measure"]
columns = "random.degree"
measures = ["degree_mean"]
"""

SWEEP = """
import concurrent.futures, os, signal, sys
from pathlib import Path

del os.environ["PYTHONPATH"]  # known to this process alone: workers have what is shipped, or the installation
import msgspec
from harness.studies import executor, sweep

notes = Path(sys.argv[1]) / "notes"
original = executor.perform

def perform(task):
    from harness.studies.code_hash import ROOT

    job = msgspec.json.decode(task)
    (notes / f"{job['key']}-imports").write_text(str(ROOT))
    once = notes / "lost-once"
    if job["seed"] == 2 and job["at"]["random.degree"] == 2 and not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if job["seed"] == 3 and job["at"]["random.degree"] == 3:
        with (notes / "lost-always").open("a") as lines:
            lines.write("lost\\n")
        os.kill(os.getpid(), signal.SIGKILL)
    return original(task)

class Pool(concurrent.futures.ThreadPoolExecutor):
    def __init__(self, threads):
        (notes / "threads").write_text(str(threads))
        super().__init__(threads)

executor.perform, executor.ThreadPoolExecutor = perform, Pool
sweep.main()
"""


@pytest.mark.parametrize(
    ("master", "cores", "attempts"),
    [
        ("local[2]", 2, 2),
        pytest.param("local-cluster[2,2,1024]", 4, 8, marks=pytest.mark.long),  # four attempts at a task, later cores
    ],
)
def test_a_task_that_dies_takes_no_other_run_with_it(master: str, cores: int, attempts: int, tmp_path: Path) -> None:
    source, out, stranger = tmp_path / "small.toml", tmp_path / "out", tmp_path / "stranger"
    stranger.mkdir()
    imported_there = plant_modules(stranger)
    source.write_text(STUDY)
    study = load_study(source, [], seeds=None, quick=False)
    write_spec(out, SweepSpec(study, str(source), study_code(study), (), {}))
    (out / "notes").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment |= {"SPARK_LOCAL_DIRS": str(tmp_path / "scratch"), "SPARK_LOCAL_IP": "127.0.0.1"}
    argv = [sys.executable, "-P", "-c", SWEEP, str(out), f"--master={master}"]
    done = subprocess.run(argv, cwd=stranger, env=environment, check=False, timeout=600, capture_output=True, text=True)

    assert done.returncode == 1, done.stderr[-3000:]
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("1 runs failed, the others are kept; the first failed with Spark lost the run: "), last
    assert "exited unexpectedly" in last
    jobs = jobs_of(study, tmp_path)
    missing = [job for job in jobs if Store(out).read(job) is None]
    assert [(job.seed, job.at["random.degree"]) for job in missing] == [(3, 3)]
    assert (out / "notes" / "lost-once").exists()
    assert (out / "notes" / "lost-always").read_text().count("lost") == attempts
    assert int((out / "notes" / "threads").read_text()) == cores
    imported = {path.read_text() for path in (out / "notes").glob("*-imports")}
    assert len(imported) >= 1
    assert all(path.endswith(".zip") for path in imported), imported
    results = [msgspec.json.decode(path.read_bytes()) for path in (out / "runs").glob("*.json")]
    assert {result["code"] for result in results} == {study_code(study)}
    assert not (out / "index.html").exists()
    assert not imported_there.exists(), imported_there.read_text()
