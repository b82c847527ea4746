"""A run that is analysed again: a failure or a kill leaves the old results whole, and two at once are refused."""

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metrics.analysis import analyse
from metrics.rundir import RunDir
from metrics.storage.names import UnreadableError
from metrics.tables.schemas import TABLES
from tests.fabricate import Fabrication

ROOT = Path(__file__).parents[2]

KILLED = """
import os, signal, sys
from pathlib import Path

import metrics.report.report
import metrics.summary
import metrics.tables.deliveries
import metrics.tables.pipeline
from metrics.analysis import analyse

def die(*given, **named):
    os.kill(os.getpid(), signal.SIGKILL)

module, name = sys.argv[2].rsplit(".", 1)
setattr(sys.modules[module], name, die)
analyse(Path(sys.argv[1]))
"""

PLACES = (
    *(
        pytest.param(place, marks=pytest.mark.long)
        for place in (
            "metrics.tables.pipeline.build_and_condense",
            "metrics.tables.deliveries.build_deliveries",
            "metrics.tables.pipeline.check_run",
            "metrics.summary.headline",
        )
    ),
    "metrics.report.report.render",
)
"""Where an analysis is killed: from the first kernel to the page, where all that went wrong before shows, too."""


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = Fabrication(seed=4, nodes=5, messages=20).write(tmp_path_factory.mktemp("again") / "run")
    analyse(run_dir)
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
    achieved = analysed / "achieved.parquet"
    sound = achieved.read_bytes()
    achieved.write_bytes(b"junk")
    with pytest.raises(UnreadableError, match=r"achieved\.parquet is damaged"):  # when all other tables have been made
        analyse(analysed)
    achieved.write_bytes(sound)
    assert results(analysed) == before
    assert not list(analysed.glob(".analysis-*"))


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_analysis_leaves_the_old_results_whole(analysed: Path, place: str) -> None:
    before = results(analysed)
    done = subprocess.run([sys.executable, "-c", KILLED, str(analysed), place], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert results(analysed) == before
    assert len(list(analysed.glob(".analysis-*"))) == 1, "what it had made, which the next analysis removes"


@pytest.mark.slow
@pytest.mark.root
def test_a_second_report_at_the_same_time_is_refused(analysed: Path) -> None:
    for left in analysed.glob(".analysis-*"):
        subprocess.run(["rm", "-r", left], check=True)
    before = results(analysed)
    argv = [sys.executable, "-m", "harness.cli", "report", str(analysed), "--master=here"]
    first = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not list(analysed.glob(".analysis-*")) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)  # its sandbox goes on, but it cannot end meanwhile
    second = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 1
    assert "another process works on it" in second.stderr
    _, words = first.communicate(timeout=600)
    assert first.returncode == 0, words
    now = results(analysed)
    assert all(written_ns > before.get(name, ("", 0))[1] for name, (_, written_ns) in now.items()), "all are new"
    assert {name for name in now if name.startswith("report")} == {name for name in before if name.startswith("report")}
    assert RunDir(analysed).tables == analysed / "tables"
    assert {path.stem for path in (analysed / "tables").glob("*.parquet")} == set(TABLES)
    assert not list(analysed.glob(".analysis-*"))
