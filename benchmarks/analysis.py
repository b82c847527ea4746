"""How long the analysis of a run takes in one process, and on Spark on this machine, one after the other in turn.

Each analysis is a process of its own. ``tables`` and ``analysis`` are timed from its start, without the sandbox.
``after_run`` is what ``trellis run`` takes from the end of the recording to the report: the analysis has begun before,
in its sandbox. The runs are those named by ``--run``, of which copies are analysed, or one that is made here
(``_synthetic_run``). Times are medians.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from select import select

from _synthetic_run import write_run

from harness.stages.prepared import prepared
from metrics.executors import HERE
from metrics.executors.cluster import DEFAULTS
from metrics.processors import usable_cores
from metrics.rundir import RunDir
from metrics.rundir.files import RESULTS

SYNTHETIC_PACKETS = 300_000
_ROUNDS = 5
_AFTER_RUN = "after_run"
_PARTS = {
    "tables": "metrics.tables.build(Path(sys.argv[1]), sys.argv[2])",
    "analysis": "metrics.analysis.analyse(Path(sys.argv[1]), sys.argv[2])",
}
"""What the processes do that are timed from their start."""


def main(argv: list[str] | None = None) -> int:
    """Measure and print; exits 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--run", type=Path, action="append", default=[], help="a run directory (several allowed)")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        runs = [_copy(run, Path(folder)) for run in given.run]
        if not runs:
            runs = [Path(folder) / "synthetic"]
            write_run(runs[0], SYNTHETIC_PACKETS)
        result = {f"{run.name}_{name}": value for run in runs for name, value in measure(run, given.rounds).items()}
    print(
        json.dumps(result) if given.json else "\n".join(f"{name:>44}  {value:,.4g}" for name, value in result.items())
    )
    return 0


def measure(run: Path, rounds: int) -> dict[str, float]:
    """Seconds by part and master, and their ratio.

    ``tables`` are the tables alone, ``analysis`` is that with the summary and the report. Both include the start and
    the end of their process. ``after_run`` is ``analysis`` without the start.

    Args:
        run: a run directory without results.
        rounds: how often each is measured.
    """
    masters = {"here": HERE, "spark": f"local[{usable_cores()}]"}
    timed = {part: partial(_time, part=part) for part in _PARTS} | {_AFTER_RUN: _time_after_run}
    seconds: dict[str, list[float]] = {f"{part}_{name}": [] for part in timed for name in masters}
    for _ in range(rounds):
        for part, measured in timed.items():
            for name, master in masters.items():
                seconds[f"{part}_{name}"].append(measured(run, master))
                _remove_results(run)
    result = {"recorded_mb": RunDir(run).recorded_bytes / 1e6}
    result |= {f"{name}_s": statistics.median(each) for name, each in seconds.items()}
    for part in timed:
        result[f"{part}_spark_over_here"] = result[f"{part}_spark_s"] / result[f"{part}_here_s"]
    return result | {"children_peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3}


def _time(run: Path, master: str, part: str) -> float:
    program = f"import sys; from pathlib import Path; import metrics.analysis, metrics.tables; {_PARTS[part]}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    start = time.perf_counter()
    argv = [sys.executable, "-c", program, str(run), master]
    subprocess.run(argv, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def _time_after_run(run: Path, master: str) -> float:
    with prepared(run, master, DEFAULTS) as analysis:
        assert analysis.stopped is not None, "a master on this machine"
        select([analysis.stopped], [], [])
        start = time.perf_counter()
        analysis.finish()
        return time.perf_counter() - start


def _copy(run: Path, folder: Path) -> Path:
    """A copy of a run, without its results."""
    copy = folder / run.resolve().name
    shutil.copytree(run, copy)
    _remove_results(copy)
    return copy


def _remove_results(run: Path) -> None:
    for name in RESULTS:
        path = run / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main())
