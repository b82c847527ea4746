"""``trellis tables RUN``: compute the tables of a finished run."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ExperimentError
from harness.stages.analysis import add_master_arguments
from harness.terminal import say
from metrics.storage import Place, StoreError, local_path, place

if TYPE_CHECKING:
    from metrics.rundir import RunDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=place, metavar="RUN", help="directory of a finished run, or its URI (s3://...)")
    add_master_arguments(parser)
    parser.add_argument("--packets", action="store_true", help="also write the packets table, one row per packet")
    parser.add_argument(
        "--csv",
        type=local_path,
        metavar="FOLDER",
        help="write every table to FOLDER/TABLE.csv; tables that the run has are not computed again",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compute the tables and the summary, and print the verdict. Return 0 whatever the verdict is."""
    from harness.stages.analysis import AnalysisError, alone, executor_options
    from metrics.analysis import analyse
    from metrics.rundir import RunDir
    from metrics.tables.schemas import TABLES

    run_dir: Place = arguments.run
    options = executor_options(arguments)
    run = RunDir(run_dir)
    run.require_documents()
    with alone(run_dir):
        if arguments.csv is None or arguments.packets or not _has_tables(run):
            try:
                written = analyse(run_dir, arguments.master, options, packets=arguments.packets, page=False)
            except StoreError:
                raise
            except OSError as error:
                raise AnalysisError(f"{run_dir}: {error}") from None
            run = RunDir(run_dir)
            made = f"{run.tables}: {len(TABLES) + arguments.packets} tables; verdict {written.verdict}"
            say(made, *(f"  {reason}" for reason in written.reasons))
        if arguments.csv is not None:
            _export(run, arguments.csv)
    return 0


def _has_tables(run: "RunDir") -> bool:
    """Whether the run was analysed, and its tables have every column."""
    from metrics.rundir import RunDirError
    from metrics.rundir.files import table_file
    from metrics.tables.schemas import TABLES, require_tables

    try:
        require_tables(run)
    except RunDirError:
        return False
    return all((run.tables / table_file(name)).is_dir() for name in TABLES)


def _export(run: "RunDir", folder: Path) -> None:
    from metrics.tables.exports import write_csv

    try:
        files = write_csv(run, folder)
    except OSError as error:
        raise ExperimentError(f"--csv {folder}", error.strerror or str(error)) from None
    say(f"{folder}: {len(files)} CSV files")
