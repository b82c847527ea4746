"""An analysis that begins before its run: its processes stand still until the run is there, and its results are equal.

The first process of a sandbox starts all others of it, so they are found as descendants of this process.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from select import select

import msgspec
import pytest

from harness.errors import TestbedError
from harness.machine import sandbox
from harness.stages.analysis import AnalysisError, analyse
from harness.stages.prepared import STOPPED, Prepared, await_stopped, prepared
from metrics.executors import HERE
from metrics.executors.cluster import DEFAULTS
from metrics.executors.spark import on_spark
from tests.fabricate import Fabrication

BEGUN_S = 120


def processes_of(parent: int) -> Iterator[tuple[str, str]]:
    """Name and state of every descendant of a process."""
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            name, state = Path(f"/proc/{child}/stat").read_text().partition("(")[2].rpartition(")")[::2]
            yield name, state.split()[0]
            yield from processes_of(child)


def await_begun(analysis: Prepared) -> bytes:
    """What the analysis says when all of it has stopped; nothing if it failed."""
    assert analysis.stopped is not None
    assert select([analysis.stopped], [], [], BEGUN_S)[0]
    return os.read(analysis.stopped, 1)


@pytest.mark.root
def test_all_of_spark_stands_still_until_the_run_is_there(tmp_path: Path) -> None:
    recorded = Fabrication(seed=3, nodes=5, messages=20).write(tmp_path / "recorded", run_id="run")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with prepared(run_dir, "local[1]", DEFAULTS) as analysis:
        assert await_begun(analysis) == b"\n"
        states = list(processes_of(os.getpid()))
        assert {name for name, _ in states} >= {"java"}
        others = [(name, state) for name, state in states if name not in ("setpriv", "unshare")]
        waiting = [name for name, state in others if state == "S"]
        assert len(waiting) == 1, "the first process of the sandbox waits for a line"
        assert {state for _, state in others} == {"S", "T"}
        assert "java" not in waiting
        shutil.copytree(recorded, run_dir, dirs_exist_ok=True)
        found = analysis.finish()
    assert "java" not in dict(processes_of(os.getpid()))
    assert found.computed_by == "by Spark at local[1], 1 core (asked for by --master local[1])"
    shutil.rmtree(recorded / "tables", ignore_errors=True)
    assert found == msgspec.structs.replace(analyse(recorded, HERE), computed_by=found.computed_by)


@pytest.mark.root
@pytest.mark.parametrize("master", [HERE, pytest.param("local[1]", marks=pytest.mark.long)])
def test_it_ends_with_a_run_that_failed(master: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), prepared(tmp_path, master, DEFAULTS) as analysis:
        assert await_begun(analysis) == b"\n"
        raise KeyboardInterrupt
    assert not [name for name, _ in processes_of(os.getpid()) if name in ("java", "setpriv", "unshare")]


@pytest.mark.root
def test_a_spark_that_cannot_begin_keeps_no_run_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with prepared(tmp_path, "local[1]", DEFAULTS) as analysis:
        assert await_begun(analysis) == b"", "it has ended"
        with pytest.raises(AnalysisError, match=f"^{tmp_path}: status 1: "):
            analysis.finish()


def test_on_a_cluster_it_begins_after_the_run(tmp_path: Path) -> None:
    with prepared(tmp_path, "spark://nobody:7077", DEFAULTS) as analysis:
        assert analysis.stopped is None
        assert list(tmp_path.iterdir()) == []


def test_the_running_stage_waits_until_the_analysis_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    await_stopped()  # there is none
    stopped, sending = os.pipe()
    monkeypatch.setenv(STOPPED, str(stopped))
    waiting = threading.Thread(target=await_stopped)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    os.write(sending, b"\n")
    waiting.join()
    for descriptor in (stopped, sending):
        os.close(descriptor)


def test_nothing_but_a_sandbox_is_stopped() -> None:
    with pytest.raises(TestbedError, match="not its first process"):
        sandbox.signal_others(0)  # type: ignore[arg-type] - it would do no harm


def test_workers_on_this_machine_begin_with_our_kernels_imported_and_no_copy_of_them() -> None:
    def look(_: int) -> tuple[bool, str]:
        import sys

        imported = "metrics.tables.hops" in sys.modules
        import metrics

        return imported, metrics.__file__ or ""

    import metrics

    with on_spark("local[2]") as executor:
        assert executor.map(look, range(2)) == [(True, metrics.__file__)] * 2
