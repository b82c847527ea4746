"""Runs that are kept in folders, each with what the machine was like before and after it."""

import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.doctor.collisions import CHECKOUT
from harness.interpreter import python_command
from harness.machine.calibration import Calibration, measure
from metrics.rundir import RunDir
from metrics.rundir.files import PRESSURE_FILE, SUMMARY_FILE

RUN = "run"
BEFORE, AFTER = "calibration.json", "calibration_after.json"


def make_run(words: Sequence[str], place: Path) -> Path:
    """Make a run between two calibrations of the machine, unless its folder has one.

    Args:
        words: of ``trellis run``: the experiment file and its options.
        place: the folder of the run and the calibrations.

    Returns:
        The folder.

    Raises:
        RuntimeError: the machine could not be calibrated, or the run did not come to its end.
    """
    run_dir = place / RUN
    if not all(path.exists() for path in (run_dir / SUMMARY_FILE, place / BEFORE, place / AFTER)):
        shutil.rmtree(place, ignore_errors=True)  # an interrupted run
        place.mkdir(parents=True)
        _calibrate(place / BEFORE)
        command = ["run", *words, "--no-report", "--master", "here", "--out", str(run_dir)]
        print(f"-- {' '.join(words)}", file=sys.stderr, flush=True)
        subprocess.run(python_command("-m", "harness.cli", *command), cwd=CHECKOUT, stdout=sys.stderr, check=False)
        _calibrate(place / AFTER)
        if not (run_dir / SUMMARY_FILE).exists():
            raise RuntimeError(f"no run: {' '.join(words)}")
    return place


def _calibrate(path: Path) -> None:
    if (found := measure()) is None:
        raise RuntimeError("the machine could not be calibrated")
    path.write_bytes(msgspec.json.encode(found))


def read_calibration(path: Path) -> Calibration:
    """Return what ``make_run`` measured."""
    return msgspec.json.decode(path.read_bytes(), type=Calibration)


def busy_share(run: RunDir, duration_s: float) -> float:
    """Return the share of the machine's processor time that programs used in the workload, all programs together.

    Args:
        run: the run.
        duration_s: the length of its workload.
    """
    zero_ns = run.manifest.zero_ns
    end_ns = zero_ns + duration_s * 1e9
    seconds = [each for each in run.lines(PRESSURE_FILE) if zero_ns < each["at_ns"] <= end_ns]
    return statistics.mean(each["cpu_busy_ratio"] for each in seconds)
