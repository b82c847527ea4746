"""An analysis that begins before its run: its processes stand still until the run is there, and its results are equal.

The first process of a sandbox starts all others of it, so they are found as descendants of this process.
"""

import os
import shutil
import threading
import time
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
from tests.fabricate import Fabrication
from tests.processes import Process, children_of, processes_below

BEGUN_S = 600

PAUSE_S = 0.5
"""During a run at least so long passes; whatever still ran would take a tick (10 ms) of it."""


def await_begun(analysis: Prepared) -> bytes:
    """What the analysis says when all of it has stopped; nothing if it failed."""
    assert analysis.stopped is not None
    assert select([analysis.stopped], [], [], BEGUN_S)[0]
    return os.read(analysis.stopped, 1)


def ticks_of(processes: list[Process]) -> list[tuple[str, int]]:
    """Their names and processor times."""
    return [(each.name, each.ticks) for each in processes]


@pytest.mark.root
@pytest.mark.long
def test_all_of_spark_stands_still_until_the_run_is_there(tmp_path: Path) -> None:
    recorded = Fabrication(seed=3, nodes=5, messages=20).write(tmp_path / "recorded", run_id="run")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    others = children_of(os.getpid())
    with prepared(run_dir, "local[1]", DEFAULTS) as analysis:
        assert await_begun(analysis) == b"\n"
        while True:  # the one that says so may not yet wait for a line
            begun = [each for each in processes_below(os.getpid(), others) if each.name not in ("setpriv", "unshare")]
            [waiting] = [each for each in begun if each.state not in ("T", "Z")]
            if waiting.state == "S":
                break
        assert "java" in [each.name for each in begun]
        assert waiting.name.startswith("python")
        shutil.copytree(recorded, run_dir, dirs_exist_ok=True)
        found = analysis.finish()
    assert "java" not in [each.name for each in processes_below(os.getpid(), others)]
    assert found.computed_by == "by Spark at local[1], 1 core (asked for by --master local[1])"
    shutil.rmtree(recorded / "tables", ignore_errors=True)
    assert found == msgspec.structs.replace(analyse(recorded, HERE), computed_by=found.computed_by)


@pytest.mark.root
@pytest.mark.parametrize("master", [HERE, pytest.param("local[1]", marks=pytest.mark.long)])
def test_it_takes_no_processor_time_and_ends_with_a_run_that_failed(master: str, tmp_path: Path) -> None:
    others = children_of(os.getpid())
    with pytest.raises(KeyboardInterrupt), prepared(tmp_path, master, DEFAULTS) as analysis:
        assert await_begun(analysis) == b"\n"
        begun = ticks_of(processes_below(os.getpid(), others))
        time.sleep(PAUSE_S)
        assert ticks_of(processes_below(os.getpid(), others)) == begun
        raise KeyboardInterrupt
    assert not {each.name for each in processes_below(os.getpid(), others)} & {"java", "setpriv", "unshare"}


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
        sandbox.continue_others()
