"""A run that is analysed again: a failure leaves the old results whole, and two at once do not mix theirs."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metrics import report, summary, tables
from metrics.rundir import RunDir
from metrics.tables.schemas import TABLES
from tests.fabricate import Fabrication

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = Fabrication(seed=4, nodes=5, messages=20).write(tmp_path_factory.mktemp("again") / "run")
    tables.build(run_dir)
    summary.write(run_dir)
    report.write(run_dir)
    return run_dir


def results(run_dir: Path) -> dict[str, tuple[str, int]]:
    """Every file of the results: its content's hash, and when it was written."""
    found = [run_dir / "summary.json", *(run_dir / "tables").rglob("*"), *(run_dir / "report").rglob("*")]
    return {
        str(path.relative_to(run_dir)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in found
        if path.is_file()
    }


def test_a_failure_in_the_middle_leaves_the_old_results_whole(analysed: Path) -> None:
    before = results(analysed)
    assert {name.split("/")[0] for name in before} == {"summary.json", "tables", "report"}
    schedule = analysed / "schedule.jsonl"
    schedule.rename(analysed / "hidden")
    with pytest.raises(Exception, match=r"schedule\.jsonl"):  # from a task, when traces and captures have been read
        tables.build(analysed)
    (analysed / "hidden").rename(schedule)
    assert results(analysed) == before
    assert not list(analysed.glob(".analysis-*"))


@pytest.mark.root
def test_a_second_report_at_the_same_time_is_refused(analysed: Path) -> None:
    before = results(analysed)
    argv = [sys.executable, "-m", "harness.cli", "report", str(analysed)]
    first = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(analysed.glob(".analysis-*")) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    second = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert first.poll() is None, "the first one is still at work"
    assert second.returncode == 1
    assert "another process works on it" in second.stderr
    assert results(analysed) == before, "the old results are there while new ones are made"
    _, words = first.communicate(timeout=120)
    assert first.returncode == 0, words
    now = results(analysed)
    assert all(written_ns > before.get(name, ("", 0))[1] for name, (_, written_ns) in now.items()), "all are new"
    assert {name for name in now if name.startswith("report")} == {name for name in before if name.startswith("report")}
    assert RunDir(analysed).tables == analysed / "tables"
    assert {path.stem for path in (analysed / "tables").iterdir()} == set(TABLES)
