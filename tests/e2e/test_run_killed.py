"""kill -9 of a run at any moment leaves nothing on the machine but the run directory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.run_experiment import ROOT, trellis, write_experiment

pytestmark = [pytest.mark.root, pytest.mark.spark]

LONGEST_S = 40.0


def observe(moment: str, command: list[str], keep: Path) -> dict[str, Any]:
    """Run and kill a command on a machine of its own; what the observer saw there."""
    observer = [sys.executable, "-m", "tests.e2e.observer", moment, *command]
    program = (
        "import sys\nfrom pathlib import Path\nfrom harness.testbeds.emulated import sandbox\n"
        f"sys.exit(sandbox.run({observer!r}, keep=[Path({str(keep)!r})]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=120)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def left_by_kill(folder: Path, moment: str) -> dict[str, Any]:
    """Kill a run at a moment; what the observer saw."""
    return observe(moment, trellis("run", write_experiment(folder), "--out", folder / "run"), folder)


@pytest.mark.parametrize("moment", ["plan", "boot", "probe before", "warmup", "collect"])
def test_leaves_nothing_when_killed_after(moment: str, tmp_path: Path) -> None:
    seen = left_by_kill(tmp_path, moment)
    assert str(seen["killed_at"]).startswith(moment)
    assert seen["left"] == {}
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("draw", range(20))
def test_leaves_nothing_when_killed_at_a_random_moment(draw: int, tmp_path: Path) -> None:
    moment = random.Random(draw).uniform(0, LONGEST_S)
    assert left_by_kill(tmp_path, f"{moment:.3f}")["left"] == {}


def test_the_observer_sees_what_is_left(tmp_path: Path) -> None:
    """The check itself: a command that leaves a process, a file and an interface behind is found out."""
    script = "setsid sleep 1000 & sleep 1000 & touch /tmp/left; ip link add left0 type bridge; echo ready >&2; wait"
    left = observe("ready", ["sh", "-c", script, "--out", "/nowhere"], tmp_path)["left"]
    assert left["interfaces"] == ["left0"]
    assert left["files"] == ["/tmp/left"]
    assert len(left["processes"]) == 2, "both sleeps: the shell alone was killed"
