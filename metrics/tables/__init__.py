"""Make the tables of a run from its directory."""

from metrics.executors import HERE, Executor, opened, shares_files
from metrics.executors.cluster import DEFAULTS, ExecutorOptions, require_workers
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.tables.schemas import TABLES

__all__ = ["TABLES", "build", "build_by"]


def build(
    run_dir: Place, master: str | None = HERE, options: ExecutorOptions = DEFAULTS, *, packets: bool = False
) -> str:
    """Compute every table of a finished run in its directory, by an executor of its own.

    Args:
        run_dir: see ``build_by``.
        master: ``here`` (this process) or a Spark master; None = Spark on this machine, if it has Java.
        options: the resources of a cluster's executors.
        packets: see ``build_by``.

    Returns:
        The executor that computed the tables, in words.

    Raises:
        RunDirError: see ``build_by``.
    """
    with opened(master, options) as executor:
        build_by(executor, run_dir, packets=packets)
        return executor.description


def build_by(executor: Executor, run_dir: Place, *, packets: bool = False, results: Place | None = None) -> None:
    """Compute every table of a finished run into ``tables/<name>.parquet`` (zstd, one directory of parts each).

    There must be no tables yet: ``metrics.analysis`` makes new tables beside old ones and then replaces the old ones.

    Args:
        executor: runs the tasks.
        run_dir: a run directory with ``manifest.json``. It is in a store, or a cluster's workers see it under the same
            path.
        packets: also write the ``packets`` table, one row per captured packet.
        results: the folder in which ``tables`` is made; None = the run directory.

    Raises:
        RunDirError: the run did not finish (no manifest), a document of it cannot be read, or the workers of a cluster
            cannot analyse it.
    """
    from metrics.tables.pipeline import Pipeline  # it needs the checks, which need this package

    run = RunDir(run_dir.absolute(), results and results.absolute())
    _ = run.manifest, run.plan, run.underlay
    run.tables.mkdir()
    if not shares_files(executor.master):
        require_workers(executor, executor.master, run.path, run.tables)
    Pipeline(executor, run).write(packets=packets)
