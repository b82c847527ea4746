"""Makes the runs of a study's points whose peers are processes: whole runs of this machine, one at a time.

A run's headline numbers are its result. They count if the run is valid.
"""

import resource
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from harness.commands.run import Making, make_attempts, perform_stage
from harness.errors import TrellisError
from harness.planning import make_plan
from harness.planning.plan import PlannedRun
from harness.progress import step
from harness.stages.prepared import Prepared, prepared
from harness.studies.code_hash import code_now
from harness.studies.measures import SEEN
from harness.studies.point_run import Row
from harness.studies.points import describe_point, is_simulated
from harness.studies.store import Job, Result, Store
from metrics.executors import HERE
from metrics.executors.cluster import DEFAULTS
from metrics.rundir import VALID, Summary

RETRIES = 2
"""How often a run that only stalls of the host keep from being valid is repeated."""

FOLDER = "processes"
"""The folder of these runs, in the sweep's folder."""


def make_process_runs(jobs: Sequence[Job], store: Store, folder: Path, source: Path) -> int:
    """Make the runs of jobs without a result whose peers are processes, and keep the results of those that are valid.

    Args:
        jobs: a sweep's jobs.
        store: its results.
        folder: its folder, in which the directories of the runs stay.
        source: the study's file.

    Returns:
        How many of them are not valid, or failed.
    """
    different = {job.key: job for job in jobs if not is_simulated(job.experiment)}
    pending = [job for job in different.values() if store.read(job) is None]
    failed = 0
    for number, job in enumerate(pending, 1):
        where = describe_point({**job.at, "seed": job.seed})
        print(f"run {number} of {len(pending)} ({where})", file=sys.stderr, flush=True)
        begun_s = _children_cpu_s()
        try:
            *_, (run_dir, summary) = make_process_run(job, folder / FOLDER, source)
        except TrellisError as error:
            print(f"failed: {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        print(f"{summary.verdict}: {run_dir}", *summary.reasons, sep="\n  - ", file=sys.stderr, flush=True)
        if code_now([job.experiment], job.measures) != job.code:
            print("failed: the code has changed since the sweep began", file=sys.stderr, flush=True)
            failed += 1
        elif summary.verdict == VALID:
            store.write(_result(job, summary, _children_cpu_s() - begun_s))
        else:
            failed += 1
    return failed


def make_process_run(job: Job, folder: Path, source: Path) -> Iterator[tuple[Path, Summary]]:
    """Yield the attempts to make a job's run, in new directories of a folder."""

    def plan() -> PlannedRun:
        with step("plan"):
            return make_plan(job.experiment, source)

    def perform(run_dir: Path, analysis: Prepared) -> int:
        return perform_stage(job.experiment.testbed, run_dir, analysis.stopped)

    free = (folder / f"{job.key}-{number}" for number in count(1))
    out = next(path for path in free if not path.exists())
    begin = partial(prepared, master=HERE, options=DEFAULTS, page=False)
    return make_attempts(Making(plan, begin, perform, page=False), out, RETRIES)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _result(job: Job, summary: Summary, cpu_s: float) -> Result:
    """Return the headline numbers that the study wants; those of the overlay are of the workload's end.

    The memory is that of the largest process of all runs so far, since the kernel keeps no other.
    """
    workload = job.experiment.workload
    end_s = workload.warmup_s + workload.duration_s
    numbers = {name: summary.headline.get(name) for name in job.measures}
    rows = (
        Row(name, end_s if name in SEEN else None, None, float(value))
        for name, value in numbers.items()
        if value is not None
    )
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    return Result(job.key, job.at, job.seed, job.code, round(cpu_s, 3), peak_mib, tuple(rows))
