"""Where kernels run: on Spark if it has Java, where a master says, and without Spark where that was chosen."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.stages.analysis import remark_on_java
from metrics.executors import HERE, OPEN_FILES, WITHOUT_JAVA, default_master, opened
from metrics.executors.in_process import InProcess
from metrics.pcap.listing import list_captures
from metrics.pcap.tables import Reading
from metrics.processors import usable_cores
from metrics.tables import shares, wire
from metrics.tables.shares import count_shares, write_shares
from tests.fabricate import Fabrication

ROOT = Path(__file__).parents[2]

ALONE = """
import sys
from pathlib import Path

class NoSpark:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, NoSpark)
from metrics.analysis import analyse

print(analyse(Path(sys.argv[1])).computed_by)
"""


def test_spark_on_all_cores_is_the_default_if_it_has_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert default_master() == f"local[{usable_cores()}]"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert default_master() == HERE, "Spark uses no other Java if JAVA_HOME is set"
    monkeypatch.delenv("JAVA_HOME")
    assert default_master() == f"local[{usable_cores()}]"
    monkeypatch.setenv("PATH", "/nowhere")
    assert default_master() == HERE


@pytest.mark.parametrize(("master", "why"), [(None, WITHOUT_JAVA), ("here", "asked for by --master here")])
def test_an_executor_says_what_it_is_and_why(master: str | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with opened(master) as executor:
        assert isinstance(executor, InProcess)
        assert executor.description.startswith("in one process, ")
        assert executor.description.endswith(f"({why})")


@pytest.mark.parametrize(("master", "home", "said"), [(None, "/nowhere", 1), ("here", "/nowhere", 0), (None, None, 0)])
def test_a_user_without_java_is_told_so_in_one_line(
    master: str | None,
    home: str | None,
    said: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    monkeypatch.setenv("JAVA_HOME", home or str(tmp_path))
    remark_on_java(master)
    assert capsys.readouterr().err.count("remark: there is no Java for Spark") == said


def test_an_analysis_may_open_more_files_than_usual() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with opened("here"):
            allowed, same = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert allowed == (OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard))
    assert same == hard


def test_results_are_in_the_order_of_the_items_and_tasks_run_side_by_side() -> None:
    together = threading.Barrier(2, timeout=300)

    def meet(item: int) -> int:
        together.wait()
        return -item

    with InProcess(2) as executor:
        assert executor.map(meet, range(6)) == [0, -1, -2, -3, -4, -5]
        assert executor.map(meet, []) == []


def test_what_a_task_raises_is_raised_and_the_rest_is_not_begun() -> None:
    begun = []

    def fail(item: int) -> None:
        begun.append(item)
        raise ValueError(f"item {item}")

    with InProcess(1) as executor, pytest.raises(ValueError, match="item 0"):
        executor.map(fail, range(1000))
    assert len(begun) < 1000


class Counting:
    """An executor that runs nothing."""

    description = ""
    master = HERE

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.items: list[object] = []

    def map(self, task: object, items: list[object]) -> list[object]:
        self.items += items
        return []


@pytest.mark.parametrize(("rows", "count"), [(0, 1), (399_999, 1), (400_000, 2), (10**7, 37), (37 * 2_000_000 + 1, 74)])
def test_workers_share_tables_by_their_rows(tmp_path: Path, rows: int, count: int) -> None:
    executor = Counting(37)
    write_shares(executor, dict, {"a": tmp_path / "a"}, count_shares(executor.workers, rows))
    assert executor.items == [shares.Share(number, count) for number in range(count)]


def test_captures_are_read_by_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = Fabrication(seed=1, nodes=5, messages=5).write(tmp_path / "run")
    monkeypatch.setattr("metrics.pcap.tasks.PARTITION_BYTES", 1)
    executor = Counting(3)
    captures = list_captures(run_dir / "capture").captures
    wire.write_packets(executor, captures, Reading(("packets",)), tmp_path / "packets")
    assert len(executor.items) == 3


def test_an_analysis_in_one_process_imports_no_spark(tmp_path: Path) -> None:
    """Nor does it start a JVM, for which it would need PySpark."""
    run_dir = Fabrication(seed=2, nodes=4, messages=10).write(tmp_path / "run")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAVA_HOME": "/nowhere"}
    argv = [sys.executable, "-c", ALONE, str(run_dir)]
    done = subprocess.run(argv, env=environment, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "in one process" in done.stdout
    assert (run_dir / "report" / "index.html").is_file()
    assert "tables computed" in (run_dir / "report" / "index.html").read_text()
