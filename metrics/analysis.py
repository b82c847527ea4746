"""The analysis of a finished run: its tables, its summary and its report, which replace older ones together."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from metrics import summary, tables
from metrics.executors import HERE, Executor, opened, shares_files
from metrics.executors.cluster import DEFAULTS, ExecutorOptions
from metrics.replacement import replacing
from metrics.rundir import RunDir, Summary
from metrics.storage import Place, StorePath
from metrics.store_results import publishing

REHEARSALS: Final = 3
"""The number of jobs that Spark runs before the first job with a waiting caller: each loads and compiles code."""


def analyse(
    run_dir: Place,
    master: str | None = HERE,
    options: ExecutorOptions = DEFAULTS,
    *,
    packets: bool = False,
    page: bool = True,
    baseline: Place | None = None,
) -> Summary:
    """Compute the results of a run by an executor of its own.

    Args:
        run_dir: see ``analyse_by``.
        master: ``here`` (this process) or a Spark master; None = Spark on this machine, if it has Java.
        options: the resources of a cluster's executors.
        packets: see ``analyse_by``.
        page: see ``analyse_by``.
        baseline: see ``analyse_by``.

    Raises:
        RunDirError: see ``analyse_by``.
        StoreError: the store cannot be used.
    """
    RunDir(run_dir).require_documents()  # before Spark begins
    with begun(master, options, page=page) as executor:
        return analyse_by(executor, run_dir, packets=packets, page=page, baseline=baseline)


@contextmanager
def begun(master: str | None, options: ExecutorOptions = DEFAULTS, *, page: bool = True) -> Iterator[Executor]:
    """Yield an executor for an analysis; its modules are imported while Spark begins. For arguments see ``analyse``."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_import_modules, page)  # an error there is raised again where the modules are used
        with opened(master, options) as executor:
            yield executor


def _import_modules(page: bool) -> None:
    import metrics.tables.pipeline  # noqa: F401

    if page:
        from metrics.report import report  # noqa: F401


def rehearse(executor: Executor, *, page: bool = True) -> None:
    """Do the first work of an analysis before there is a run: import modules, start workers, run a few jobs."""
    for _ in range(REHEARSALS):
        executor.map(abs, range(executor.workers))
    _import_modules(page)  # waits for the thread that imports them


def analyse_by(
    executor: Executor, run_dir: Place, *, packets: bool = False, page: bool = True, baseline: Place | None = None
) -> Summary:
    """Compute the results of a run beside the older ones, and replace these when all are there.

    If this fails or is killed before, the older results stay. Nothing else may analyse the run meanwhile
    (``harness.stages.analysis.exclusive``), except in a store (``metrics.store_results``).

    Args:
        executor: runs the tasks of the tables.
        run_dir: a run directory with ``manifest.json``, on this machine or in a store.
        packets: also write the ``packets`` table, one row per captured packet.
        page: also write the report; without it the run has none afterwards.
        baseline: the directory of the run with which the report compares; None = one that it finds, if any.

    Raises:
        RunDirError: the run did not finish (no manifest), a document of it cannot be read, or the workers of a cluster
            cannot analyse it.
        StoreError: the store cannot be used.
    """
    RunDir(run_dir).require_documents()
    with _results(run_dir, executor.master) as made:
        tables.build_by(executor, run_dir, packets=packets, results=made)
        found = summary.write(run_dir, made, executor.description)
        if page:
            from metrics.report import report  # matplotlib takes long to import

            report.write(run_dir, made, baseline)
    return found


def _results(run_dir: Place, master: str) -> AbstractContextManager[Place]:
    """Return the context of the folder in which the results are made, which then become the run's."""
    if isinstance(run_dir, StorePath):
        return publishing(run_dir, directly=not shares_files(master))
    return replacing(run_dir)
