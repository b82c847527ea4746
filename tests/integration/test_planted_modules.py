"""Commands that are used inside a folder of a stranger: no file there is imported, whatever its name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted import plant_modules

pytestmark = pytest.mark.root

EXPERIMENT = """
name = "small"
protocol = "random"
[underlay]
kind = "uniform"
hosts = 4
delay_ms = 20
[random]
degree = 2
[workload]
topics = 2
publish_rate_per_s = 5
duration_s = 2
[interests]
ratio = 1.0
"""

STUDY = """
name = "small"
measures = ["degree_mean"]
seeds = 1
[experiment.underlay]
kind = "unit-square"
hosts = 4
[grid]
random.degree = [2]
[[table]]
name = "table"
title = "Degree"
rows = ["measure"]
columns = "random.degree"
measures = ["degree_mean"]
"""

USUAL = (("run", "small.toml", "--testbed", "simulated", "--out", "run", "--master", "here"),)
"""``test_sweep.py`` has a sweep on Spark in such a folder, too, which one process continues."""

OTHERS = (
    ("tables", "run"),
    ("report", "run", "--master", "here"),
    ("sweep", "study.toml", "--out", "swept", "--master", "here"),
    ("run", "small.toml", "--testbed", "simulated", "--out", "run-on-spark"),
    ("sweep", "study.toml", "--out", "spark", "--master", "local[1]"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with planted modules, an experiment and a study."""
    plant_modules(tmp_path)
    (tmp_path / "small.toml").write_text(EXPERIMENT)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def trellis(folder: Path, *words: str) -> None:
    """Use a command in a folder as the launcher does."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    argv = [sys.executable, "-P", "-m", "harness.cli", *words]
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, 3), done.stderr


@pytest.mark.parametrize(
    "commands", [USUAL, pytest.param((*USUAL, *OTHERS), marks=[pytest.mark.spark, pytest.mark.long])]
)
def test_no_command_imports_a_module_of_the_working_directory(
    folder: Path, commands: tuple[tuple[str, ...], ...]
) -> None:
    """In the long ones tables are computed by Spark, too, which begins before the run or after it."""
    for words in commands:
        trellis(folder, *words)
        assert not (folder / "imported").exists(), f"{words[0]} imported {(folder / 'imported').read_text()}"
    assert (folder / "run/report/index.html").exists()
    assert (folder / "swept/table.md").exists() == (commands != USUAL)
