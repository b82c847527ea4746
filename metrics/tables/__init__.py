"""From a run directory to its tables, with Spark."""

from pathlib import Path

from metrics.replacement import replacing
from metrics.rundir import RunDir
from metrics.rundir.files import REPORT_FOLDER, SUMMARY_FILE, TABLES_FOLDER
from metrics.tables.schemas import TABLES

__all__ = ["TABLES", "build"]


def build(run_dir: Path, master: str | None = None, *, packets: bool = False) -> None:
    """Compute every table of a finished run into ``tables/<name>.parquet`` (zstd, a directory of parts each).

    When all are there they replace the older ones as a whole; the older ones' summary and report go with them.

    Args:
        run_dir: a run directory with ``manifest.json``. A cluster's workers must see it under the same path.
        master: a Spark master; None = all cores of this machine.
        packets: also write the ``packets`` table, one row per captured packet.

    Raises:
        RunDirError: the run did not finish (no manifest), or a document of it cannot be read.
    """
    from metrics.session import session
    from metrics.tables.pipeline import Pipeline

    run_dir = run_dir.absolute()
    run = RunDir(run_dir)
    _ = run.manifest, run.plan, run.underlay
    with replacing(run_dir, TABLES_FOLDER, outdated=(SUMMARY_FILE, REPORT_FOLDER)) as made:
        run.tables = made
        with session(master, light=not packets) as spark:
            Pipeline(spark, run).write(packets=packets)
