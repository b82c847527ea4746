"""From a run directory to its tables."""

from metrics.executors import opened, shares_files
from metrics.executors.cluster import DEFAULTS, ExecutorOptions, require_workers
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.tables.schemas import TABLES

__all__ = ["TABLES", "build"]


def build(
    run_dir: Place,
    master: str | None = None,
    options: ExecutorOptions = DEFAULTS,
    *,
    packets: bool = False,
    results: Place | None = None,
) -> str:
    """Compute every table of a finished run into ``tables/<name>.parquet`` (zstd, a directory of parts each).

    There must be no tables yet: ``metrics.analysis`` makes new ones beside old ones, which they replace.

    Args:
        run_dir: a run directory with ``manifest.json``. A cluster's workers must see it under the same path, or it is
            in a store.
        master: ``here`` (this process) or a Spark master; None = chosen by the size of what was recorded.
        options: of a cluster's executors.
        packets: also write the ``packets`` table, one row per captured packet.
        results: the folder in which ``tables`` is made; None = the run directory.

    Returns:
        What computed them, in words.

    Raises:
        RunDirError: the run did not finish (no manifest), a document of it cannot be read, or the workers of a cluster
            cannot analyse it.
    """
    from metrics.tables.pipeline import Pipeline  # it needs the checks, which need this package

    run = RunDir(run_dir.absolute(), results and results.absolute())
    _ = run.manifest, run.plan, run.underlay
    run.tables.mkdir()
    with opened(master, run.recorded_bytes, options) as executor:
        if master is not None and not shares_files(master):
            require_workers(executor, master, run.path, run.tables)
        Pipeline(executor, run).write(packets=packets)
        return executor.description
