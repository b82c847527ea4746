"""Finds the run with which a report compares its run: the one asked for, or the last one of another protocol."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metrics.report.run import Run
from metrics.rundir import INVALID, RunDir, RunDirError, Summary
from metrics.rundir.files import EXPERIMENT_FILE, MANIFEST_FILE
from metrics.storage import Place

_SAME: Final = ("underlay", "workload", "interests", "expressions", "groups", "churn", "faults", "adversary", "peer")
"""The keys of an experiment that say what every protocol gets: options of the command line may change them."""


def find_baseline(run: Run, asked: Place | None = None) -> RunDir | None:
    """Return the baseline of a run, None if there is none.

    Without a question it is the latest analysed run in the folder of the run's directory that had the same experiment
    file, network, workload and testbed and another protocol, and was not invalid. The date of a run is the date of its
    manifest.

    Args:
        run: the run.
        asked: the directory of the run to compare with; None = look for one.

    Raises:
        RunDirError: the run that was asked for is not an analysed run.
    """
    if asked is not None:
        found = RunDir(asked)
        _ = found.plan, found.manifest, found.summary
        return found
    return next(_find_others(run, run.path.resolve()), None) if isinstance(run.path, Path) else None


def describe_baseline(baseline: RunDir) -> str:
    """Return a baseline in a few words."""
    summary = baseline.summary
    return f"{summary.protocol}, seed {summary.seed}, {summary.verdict} ({summary.run_id})"


def _find_others(run: Run, path: Path) -> Iterator[RunDir]:
    """Yield the runs that can be the baseline, the latest first. Directories that are no such runs are passed over."""
    manifests = [each for each in path.parent.glob(f"*/{MANIFEST_FILE}") if each.parent.resolve() != path]
    for manifest in sorted(manifests, key=_date, reverse=True):
        try:
            other = RunDir(manifest.parent)
            if _is_other(run, other.summary) and _is_alike(run, other):
                yield other
        except (RunDirError, OSError):
            continue


def _date(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # the run has been removed meanwhile
        return 0


def _is_other(run: Run, summary: Summary) -> bool:
    return summary.protocol != run.experiment["protocol"] and summary.verdict != INVALID


def _is_alike(run: Run, other: RunDir) -> bool:
    """Return whether two runs had the same experiment file, testbed, network and workload.

    Files of other sizes are not read.
    """
    one, another = (each.path / EXPERIMENT_FILE for each in (run, other))
    is_same_file = one.stat().st_size == another.stat().st_size and one.read_bytes() == another.read_bytes()
    is_same_testbed = is_same_file and run.manifest.testbed == other.manifest.testbed
    return is_same_testbed and all(run.experiment.get(key) == other.experiment.get(key) for key in _SAME)
