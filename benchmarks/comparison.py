"""How often ``trellis compare`` names a difference between two groups of simulated runs.

Each trial makes its own runs. In the first row both groups have the same experiment and different seeds, so a
difference is a false alarm. (With the same seeds, simulated runs would be copies.) In the other rows every link of the
second group's network is slower by ``--change``: with the same seeds in both groups, which are compared in pairs, as
after ``run --repeat`` of both; and with different seeds. A row counts the trials in which ``compare`` called a
difference of any measure real, and of the delay.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from harness.experiment.loader import load_experiment
from harness.planning import make_plan, write_plan
from harness.stages.simulation import simulate_planned
from metrics.analysis import analyse
from metrics.comparison.differences import compare
from metrics.comparison.groups import group_runs
from metrics.report.run import Run

EXPERIMENT = """
name = "compared"
seed = {seed}
protocol = "random"
testbed = "simulated"

[underlay]
kind = "uniform"
hosts = 20
delay_ms = {delay_ms}

[random]
degree = 4

[workload]
topics = 10
publish_rate_per_s = 4
duration_s = 30

[interests]
ratio = 0.4
"""
DELAY_MS = 50.0
MEASURE = "propagation_delay_ms_p50"

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Make the runs, compare them, and print a row per condition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5, help="runs of each group")
    parser.add_argument("--change", type=float, default=0.08, help="by which share the second group's links are slower")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        conditions = ((0.0, False), (given.change, True), (given.change, False))
        rows = list(_measure(Path(folder), given.trials, given.runs, conditions))
    if given.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(
                f"links slower by {100 * row['change']:g} %, {row['runs']} runs per group, "
                f"{'the same seeds' if row['paired'] else 'different seeds'}: a difference named in "
                f"{row['named']} of {row['trials']} trials, of {MEASURE} in {row['delay_named']}; measures named: "
                f"{', '.join(row['measures']) or 'none'}"
            )
    return 0


def _measure(folder: Path, trials: int, runs: int, conditions: Sequence[tuple[float, bool]]) -> Iterator[Row]:
    numbers = count()
    for change, paired in conditions:
        named: list[list[str]] = []
        for trial in range(trials):
            baseline, other = (folder / f"{change}-{paired}-{trial}-{name}" for name in ("baseline", "other"))
            number = next(numbers)
            _make_runs(baseline, DELAY_MS, number, runs)
            _make_runs(other, DELAY_MS * (1 + change), number if paired else next(numbers), runs)
            groups = (baseline, other)
            made = [Run(path) for group in groups for path in sorted((group / "runs").iterdir())]
            [(_, measures)] = compare(group_runs(made, by_folder=True)).real
            named.append(measures)
        yield {
            "change": change,
            "paired": paired,
            "runs": runs,
            "trials": trials,
            "named": sum(map(bool, named)),
            "delay_named": sum(MEASURE in measures for measures in named),
            "measures": sorted({name for measures in named for name in measures}),
        }


def _make_runs(group: Path, delay_ms: float, number: int, runs: int) -> None:
    """Make a group's runs. Groups of different numbers have no seed in common."""
    group.mkdir()
    source = group / "experiment.toml"
    for seed in range(1 + number * runs, 1 + (number + 1) * runs):
        source.write_text(EXPERIMENT.format(seed=seed, delay_ms=delay_ms), encoding="utf-8")
        run_dir = group / "runs" / str(seed)
        write_plan(make_plan(load_experiment(source), source), run_dir)
        simulate_planned(run_dir)
        analyse(run_dir, page=False)


if __name__ == "__main__":
    sys.exit(main())
