"""Compares the run of a report with a baseline: the run that was asked for, or the last one of another protocol."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from metrics.measures.measure import Measure
from metrics.measures.registry import find_measure
from metrics.report.run import Run
from metrics.report.values import format_number, format_value
from metrics.rundir import INVALID, RunDir, RunDirError, Summary
from metrics.rundir.files import EXPERIMENT_FILE, MANIFEST_FILE
from metrics.storage import Place

_SAME: Final = ("underlay", "workload", "interests", "expressions", "groups", "churn", "faults", "adversary", "peer")
"""The keys of an experiment that say what every protocol gets: options of the command line may change them."""

COMPARED: Final = (
    *(
        "deliveries_expected",
        "delivery_ratio",
        "propagation_delay_ms_p50",
        "propagation_delay_ms_p99",
        "stretch_p50",
        "hops_mean",
    ),
    *("duplicates_per_delivery", "traffic_overhead_ratio", "degree_mean", "control_bytes_per_peer_per_s"),
    "topics_partitioned",
)
"""The headline numbers that are compared first."""

UNKNOWN: Final = "not known"


class Contrast(Struct, frozen=True):
    """A number of the run beside that of the baseline, for people.

    Attributes:
        text: what the number means.
        here: its value in the run.
        there: its value in the baseline.
        difference: how much larger or smaller it is in the run; empty if one of them is not known.
    """

    text: str
    here: str
    there: str
    difference: str


def contrast(run: RunDir, baseline: RunDir) -> list[Contrast]:
    """Return the numbers that are compared first; those that neither run has are left out."""
    found = []
    for name in COMPARED:
        measure = find_measure(name)
        here, there = (each.summary.headline.get(name) for each in (run, baseline))
        if measure is not None and (here is not None or there is not None):
            one, other = (UNKNOWN if value is None else format_value(measure, value) for value in (here, there))
            found.append(Contrast(measure.text, one, other, _describe_difference(measure, here, there)))
    return found


def _describe_difference(measure: Measure[Any], here: float | None, there: float | None) -> str:
    if here is None or there is None:
        return ""
    if here == there:
        return "none"
    if measure.unit == "ratio":
        return f"{100 * (here - there):+.3g} percentage points"
    if not there:
        return f"{'+' if here > there else '-'}{format_number(abs(here - there))} {measure.unsaid_unit}".rstrip()
    return f"{100 * (here / there - 1):+.3g} %"


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


def name_sides(run: RunDir, baseline: RunDir) -> tuple[str, str]:
    """Return short names of the run and of its baseline: their protocols, or their identities if these are equal."""
    one, other = run.summary, baseline.summary
    return (one.protocol, other.protocol) if one.protocol != other.protocol else (one.run_id, other.run_id)


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
