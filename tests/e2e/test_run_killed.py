"""kill -9 of a run at any moment leaves nothing on the machine but the run directory."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.machine import observe
from tests.e2e.observer import cgroups_of, cgroups_of_processes
from tests.e2e.run_experiment import QUICKLY, trellis, write_brief, write_experiment

pytestmark = pytest.mark.root

LONGEST_S = 40.0


def left_by_kill(experiment: Path, moment: str, *options: str) -> dict[str, Any]:
    """Kill a run at a moment; what the observer saw."""
    folder = experiment.parent
    return observe("KILL", moment, trellis("run", experiment, *options, "--out", folder / "run"), folder)


@pytest.mark.parametrize(
    ("moment", "options"),
    [
        ("plan", QUICKLY),
        ("boot", ()),
        pytest.param("probe before", (), marks=pytest.mark.long),
        ("warmup", QUICKLY),
        pytest.param("collect", QUICKLY, marks=pytest.mark.long),
    ],
)
def test_leaves_nothing_when_killed_after(moment: str, options: tuple[str, ...], tmp_path: Path) -> None:
    """Once while Spark starts beside it; without, the start of Spark need not be waited for."""
    seen = left_by_kill(write_brief(tmp_path), moment, *options)
    assert str(seen["killed_at"]).startswith(moment)
    assert seen["left"] == {}
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("draw", range(20))
def test_leaves_nothing_when_killed_at_a_random_moment(draw: int, tmp_path: Path) -> None:
    moment = random.Random(draw).uniform(0, LONGEST_S)
    assert left_by_kill(write_experiment(tmp_path), f"{moment:.3f}")["left"] == {}


def test_the_observer_sees_what_is_left(tmp_path: Path) -> None:
    """The check itself: a command that leaves a process, a file and an interface behind is found out."""
    script = "setsid sleep 1000 & sleep 1000 & touch /tmp/left; ip link add left0 type bridge; echo ready >&2; wait"
    left = observe("KILL", "ready", ["sh", "-c", script, "--out", "/nowhere"], tmp_path, survival_s=2)["left"]
    assert left["interfaces"] == ["left0"]
    assert left["files"] == ["/tmp/left"]
    assert len(left["processes"]) == 2, "both sleeps: the shell alone was killed"


def test_the_observer_sees_the_cgroups_of_the_run_and_no_others(tmp_path: Path) -> None:
    """A process in a cgroup of its own, one that is ending and shows the root, and one of another PID namespace."""
    for process, path in (("self", "/job"), ("17", "/job"), ("18", "/job/made"), ("19", "/"), ("other", "/elsewhere")):
        (tmp_path / process).mkdir()
        (tmp_path / process / "cgroup").write_text(f"3:pids:{path}\n1:name=systemd:/\n")
    assert cgroups_of_processes(tmp_path) - cgroups_of(tmp_path / "self") == {"/sys/fs/cgroup/pids/job/made"}
