"""Runs a sweep's jobs on Spark: one task per run, as many at a time as the master has cores."""

from __future__ import annotations

import resource
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from harness.studies.code_hash import ROOT, code_of
from harness.studies.point_run import simulate_point
from harness.studies.points import is_simulated
from harness.studies.store import Job, Result
from metrics.executors import HERE

if TYPE_CHECKING:
    from pyspark import SparkContext


class Failure(Struct, frozen=True, tag=True):
    """A job that raised."""

    key: str
    words: str


class Success(Struct, frozen=True, tag=True):
    """A job's result."""

    result: Result


class Lost(Struct, frozen=True):
    """A job without an outcome because its process or machine died, with Spark's error message."""

    words: str


Outcome = Success | Failure

OUTCOMES: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)


PACKAGES = ("harness", "metrics", "peer", "topologies")
"""The packages that workers import, in the state at the start of the sweep."""


def execute(jobs: Sequence[Job], master: str | None, take: Callable[[Outcome], None]) -> None:
    """Run jobs in order, as cores become free. A worker with other code than a job's fails it.

    Args:
        jobs: the runs.
        master: a Spark master, or ``HERE``: one run after the other, without Spark; None = all cores of this machine.
        take: called in this thread with each outcome as soon as it is known.
    """
    if master == HERE:
        for job in jobs:
            take(OUTCOMES.decode(perform(msgspec.json.encode(job))))
    else:
        _execute_on_spark(jobs, master, take)


def _execute_on_spark(jobs: Sequence[Job], master: str | None, take: Callable[[Outcome], None]) -> None:
    """Run jobs on Spark. Lost jobs are repeated after all others, one at a time: most were lost for lack of memory."""
    from metrics.executors.shipping import ship_code
    from metrics.session import session

    lost: list[Job] = []
    with session(master, light=True) as spark:
        context = spark.sparkContext
        ship_code(spark, PACKAGES)
        pool = ThreadPoolExecutor(context.defaultParallelism)
        try:
            waiting = {pool.submit(_submit, context, job): job for job in jobs}
            for future in as_completed(waiting):
                outcome = future.result()
                if isinstance(outcome, Lost):
                    lost.append(waiting[future])
                else:
                    take(outcome)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        for job in sorted(lost, key=lambda job: -job.cost):
            outcome = _submit(context, job)
            take(Failure(job.key, outcome.words) if isinstance(outcome, Lost) else outcome)


def _submit(context: SparkContext, job: Job) -> Outcome | Lost:
    """Run one job as a Spark job of one task. It takes and returns bytes, so that workers need no common classes."""
    try:
        content = context.parallelize([msgspec.json.encode(job)], 1).map(perform).collect()[0]
    except Exception as error:  # the task's process, its machine or the cluster died: other jobs may still run
        return Lost(f"Spark lost the run: {_reason(error)}")
    return OUTCOMES.decode(content)


def _reason(error: Exception) -> str:
    """Return one line with Spark's and Python's error messages, without their call stacks."""
    java: Any = getattr(error, "java_exception", None)
    said = str(error if java is None else java.getMessage()).split("\n\tat ")[0].strip().splitlines()
    return " ".join(dict.fromkeys((said[0], said[-1]))) if said else type(error).__name__


def perform(task: bytes) -> bytes:
    """Run an encoded job in this process and return its encoded outcome."""
    job = msgspec.json.decode(task, type=Job)
    outcome: Outcome
    code = code_of([job.experiment], job.measures)
    if code != job.code:
        words = f"the code in {ROOT} ({code}) differs from that of the sweep ({job.code})"
        return msgspec.json.encode(Failure(job.key, words))
    if not is_simulated(job.experiment):
        return msgspec.json.encode(Failure(job.key, f'testbed = "{job.experiment.testbed}" is not simulated'))
    begun_s = time.process_time()
    try:
        rows = tuple(simulate_point(job.experiment, job.run, job.measures, Path(job.folder)))
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        cpu_s = round(time.process_time() - begun_s, 3)
        outcome = Success(Result(job.key, job.at, job.seed, code, cpu_s, peak_mib, rows))
    except Exception:  # reported with the outcomes of all runs, not as a failure of Spark
        outcome = Failure(job.key, traceback.format_exc())
    return msgspec.json.encode(outcome)
