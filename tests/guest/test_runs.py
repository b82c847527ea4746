"""The running stages of one experiment on both planes; tests/integration/test_guest.py analyses the runs outside."""

import os
from pathlib import Path

import pytest

from harness.commands.run import perform_stage
from harness.experiment.loader import load_experiment
from harness.planes.registry import PLANES
from harness.planning import make_plan, write_plan

EXPERIMENT = Path(__file__).parent / "run.toml"


@pytest.mark.parametrize("plane", PLANES)
def test_the_running_stage_ends_well(plane: str) -> None:
    run_dir = Path(os.environ["TRELLIS_RESULTS"], f"run-{plane}")
    experiment = load_experiment(EXPERIMENT, [f"plane={plane}"], None)
    write_plan(make_plan(experiment, EXPERIMENT, [], here=True), run_dir)
    assert perform_stage(experiment.testbed, run_dir) == 0
