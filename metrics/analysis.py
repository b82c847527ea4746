"""The analysis of a finished run: its tables, its summary and its report, which replace older ones together."""

from contextlib import AbstractContextManager

from metrics import summary, tables
from metrics.executors import shares_files
from metrics.executors.cluster import DEFAULTS, ExecutorOptions
from metrics.publication import publishing
from metrics.replacement import replacing
from metrics.rundir import RunDir, Summary
from metrics.storage import Place, StorePath


def analyse(
    run_dir: Place,
    master: str | None = None,
    options: ExecutorOptions = DEFAULTS,
    *,
    packets: bool = False,
    page: bool = True,
) -> Summary:
    """Compute the results of a run beside the older ones, and put them in their place when all are there.

    Whatever fails or is killed before leaves the older ones as they were. Nothing else may analyse the run meanwhile
    (``harness.stages.analysis.exclusive``), except in a store (``metrics.publication``).

    Args:
        run_dir: a run directory with ``manifest.json``, on this machine or in a store.
        master: ``here`` (this process) or a Spark master; None = chosen by the size of what was recorded.
        options: of a cluster's executors.
        packets: also write the ``packets`` table, one row per captured packet.
        page: also write the report; without it the run has none afterwards.

    Raises:
        RunDirError: the run did not finish (no manifest), a document of it cannot be read, or the workers of a cluster
            cannot analyse it.
        StoreError: the store cannot be used.
    """
    RunDir(run_dir).require_documents()
    with _results(run_dir, master) as made:
        computed_by = tables.build(run_dir, master, options, packets=packets, results=made)
        found = summary.write(run_dir, made, computed_by)
        if page:
            from metrics.report import report  # matplotlib takes long to import

            report.write(run_dir, made)
    return found


def _results(run_dir: Place, master: str | None) -> AbstractContextManager[Place]:
    """The folder in which the results are made, which become the run's."""
    if isinstance(run_dir, StorePath):
        return publishing(run_dir, directly=not shares_files(master))
    return replacing(run_dir)
