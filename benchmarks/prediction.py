"""Predicted against measured processor time, and predicted against actual verdicts, of runs that this benchmark makes.

    trellis bench prediction [--runs FILE] [--out DIR]

Each line of ``--runs`` is a run: an experiment file and, after it, options of ``trellis run`` such as ``--set
underlay.hosts=60 --seed 3``; lines that begin with ``#`` are left out. Default: quickstart, with 10 to 100 hosts and
other rates. A run that ``--out`` already has is not made again.

Before each run, the machine is calibrated. ``predicted`` and ``measured`` are processors that are busy during the
workload; the second is the mean of ``cpu_busy_ratio`` in ``pressure.jsonl``, and so contains what other programs take.
Use a machine with nothing else to do. The last lines have how many predictions are within a quarter, how many verdicts
were predicted (``valid`` or not), and the constants that fit these runs best (least squares), if their peers are Python
peers in processes of their own: ms per run, ms per host with its peer, us per data frame.
"""

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks._calibrated_runs import BEFORE, RUN, busy_share, make_run, read_calibration
from harness.planning import read_plan
from harness.planning.processors import REFERENCE_WORK_US, find_unknown, foresee
from metrics.rundir import RunDir

QUICKSTART = "playbooks/experiments/quickstart.toml"
RUNS = tuple(
    f"{QUICKSTART} --set underlay.hosts={hosts} --set workload.publish_rate_per_s={rate}"
    for hosts, rate in ((10, 4), (20, 1), (20, 4), (20, 16), (40, 4), (40, 12), (60, 4), (60, 12), (100, 2), (100, 8))
)


class Row(NamedTuple):
    """What was predicted for a run and what was found; processors are None if they are not predicted."""

    run: str
    hosts: int
    frames_per_s: float | None
    work_us: float
    predicted: float | None
    measured: float
    fits: bool | None
    verdict: str

    @property
    def ratio(self) -> float | None:
        """Measured by predicted."""
        return self.measured / self.predicted if self.predicted else None


def main(argv: list[str] | None = None) -> int:
    """Make the runs that are missing and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=Path, metavar="FILE", help="the runs, one a line")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the runs here, and go on where they end")
    given = parser.parse_args(argv)
    lines = given.runs.read_text(encoding="utf-8").splitlines() if given.runs else RUNS
    asked = [line for line in lines if line.strip() and not line.startswith("#")]
    with tempfile.TemporaryDirectory(prefix="bench-prediction-") as folder:
        out = (given.out or Path(folder)).absolute()
        out.mkdir(parents=True, exist_ok=True)
        rows = [compare(line, make_run(shlex.split(line), out / str(number))) for number, line in enumerate(asked)]
    result = summarise(rows)
    print(json.dumps({"runs": [row._asdict() for row in rows], **result}) if given.json else describe(rows, result))
    return 0


def compare(line: str, place: Path) -> Row:
    """Return the row of a run that was made."""
    plan, run = read_plan(place / RUN).plan, RunDir(place / RUN)
    calibration = read_calibration(place / BEFORE)
    known = not find_unknown(plan.experiment, plan.prediction)
    outlook = foresee(plan.experiment, plan.prediction, len(plan.placement), calibration) if known else None
    return Row(
        run=line,
        hosts=len(plan.placement),
        frames_per_s=plan.prediction.frames_per_s,
        work_us=calibration.work_us,
        predicted=outlook and outlook.processors,
        measured=busy_share(run, plan.experiment.workload.duration_s) * calibration.processors,
        fits=outlook and outlook.fits,
        verdict=run.summary.verdict,
    )


def summarise(rows: Sequence[Row]) -> dict[str, object]:
    """Return counts over the runs that were predicted, and the constants that fit best."""
    known = [row for row in rows if row.ratio is not None]
    result: dict[str, object] = {
        "predicted": len(known),
        "within_a_quarter": sum(abs((row.ratio or 0) - 1) <= 0.25 for row in known),
        "verdicts_right": sum(row.fits == (row.verdict == "valid") for row in known),
    }
    if len(known) > 3:
        result["median_ratio"] = statistics.median(row.ratio or 0 for row in known)
        speed = np.array([REFERENCE_WORK_US / row.work_us for row in known])
        sizes = np.array([[1.0, row.hosts, row.frames_per_s or 0] for row in known])
        fitted, *_ = np.linalg.lstsq(sizes, np.array([row.measured for row in known]) * speed, rcond=None)
        result |= {"run_ms": fitted[0] * 1e3, "host_ms": fitted[1] * 1e3, "frame_us": fitted[2] * 1e6}
    return result


def describe(rows: Sequence[Row], result: dict[str, object]) -> str:
    """Return the rows and what they come to as lines."""
    lines = ["hosts  frames/s  work us  predicted  measured  ratio  fits   verdict  run"]
    for row in rows:
        numbers = ("-" if each is None else f"{each:.2f}" for each in (row.predicted, row.measured, row.ratio))
        frames, fits = f"{row.frames_per_s or 0:.0f}", "-" if row.fits is None else "yes" if row.fits else "no"
        cells = (row.hosts, frames, f"{row.work_us:.0f}", *numbers, fits, row.verdict)
        widths = (5, 9, 8, 10, 9, 6, 5, 9)
        lines.append(" ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)) + f"  {row.run}")
    return "\n".join(lines + [f"{name:>20}  {value:.4g}" for name, value in result.items()])


if __name__ == "__main__":
    sys.exit(main())
