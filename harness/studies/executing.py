"""Runs a sweep's jobs on Spark: one task a run, as many at once as the master has cores."""

from __future__ import annotations

import resource
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from harness.studies.simulating import simulate_point
from harness.studies.store import Job, Result

if TYPE_CHECKING:
    from pyspark import SparkContext


class Failure(Struct, frozen=True, tag=True):
    """A job that raised."""

    key: str
    words: str


class Success(Struct, frozen=True, tag=True):
    """A job's result."""

    result: Result


Outcome = Success | Failure

_OUTCOMES: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)


HERE = "here"
"""In place of a Spark master: one run after the other, without Spark."""


def execute(jobs: Sequence[Job], code: str, master: str | None, take: Callable[[Outcome], None]) -> None:
    """Run jobs, in their order as far as cores become free.

    Args:
        jobs: the runs.
        code: the state of the code, written into the results.
        master: a Spark master, or ``HERE``; None = all cores of this machine.
        take: gets each outcome, in this thread, as soon as it is there.
    """
    if master == HERE:
        for job in jobs:
            take(_OUTCOMES.decode(perform((msgspec.json.encode(job), code))))
    else:
        _execute_on_spark(jobs, code, master, take)


def _execute_on_spark(jobs: Sequence[Job], code: str, master: str | None, take: Callable[[Outcome], None]) -> None:
    from metrics.session import session

    with session(master, light=True) as spark:
        context = spark.sparkContext
        with ThreadPoolExecutor(context.defaultParallelism) as pool:
            waiting = [pool.submit(_submit, context, job, code) for job in jobs]
            for future in as_completed(waiting):
                take(future.result())


def _submit(context: SparkContext, job: Job, code: str) -> Outcome:
    """Run one job as a Spark job of one task. Bytes go both ways, so that workers need no common classes."""
    content = context.parallelize([(msgspec.json.encode(job), code)], 1).map(perform).collect()[0]
    return _OUTCOMES.decode(content)


def perform(task: tuple[bytes, str]) -> bytes:
    """Run an encoded job in this process; its encoded outcome."""
    job, code = msgspec.json.decode(task[0], type=Job), task[1]
    begun_s = time.process_time()
    outcome: Outcome
    try:
        rows = tuple(simulate_point(job.experiment, job.run, job.measures, Path(job.folder)))
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        cpu_s = round(time.process_time() - begun_s, 3)
        outcome = Success(Result(job.key, job.at, job.seed, code, cpu_s, peak_mib, rows))
    except Exception:  # a fault of one run is reported with all of them, not by Spark's own failure
        outcome = Failure(job.key, traceback.format_exc())
    return msgspec.json.encode(outcome)
