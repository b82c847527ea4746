"""``trellis tables RUN``: compute the tables of a finished run; with ``--to``, of captures of any hosts."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ExperimentError, UsageError
from harness.stages.analysis import add_master_arguments
from harness.terminal import say
from metrics.storage import Place, StoreError, local_path, place

if TYPE_CHECKING:
    from metrics.rundir import RunDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        type=place,
        nargs="+",
        metavar="RUN",
        help="directory of a finished run, or its URI (s3://...); with --to, captures and folders of them",
    )
    add_master_arguments(parser)
    parser.add_argument("--packets", action="store_true", help="also write the packets table, one row per packet")
    parser.add_argument(
        "--csv",
        type=local_path,
        metavar="FOLDER",
        help="write every table to FOLDER/TABLE.csv; tables that the run has are not computed again",
    )
    parser.add_argument(
        "--to",
        type=local_path,
        metavar="FOLDER",
        help="write the tables flows and captures of pcap and pcapng files into an empty or new folder",
    )
    parser.add_argument(
        "--hosts",
        type=local_path,
        metavar="CSV",
        help="with --to: the host of each address, in the columns address and host",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compute the tables and the summary, and print the verdict. Return 0 whatever the verdict is."""
    if arguments.to is not None:
        return _read_captures(arguments)
    if len(arguments.paths) > 1 or arguments.hosts is not None:
        raise UsageError("--to FOLDER is missing: it says where the tables of captures go; of runs, name one")
    return _compute(arguments.paths[0], arguments)


def _compute(run_dir: Place, arguments: argparse.Namespace) -> int:
    from harness.stages.analysis import AnalysisError, alone, executor_options, remark_on_java
    from metrics.analysis import analyse
    from metrics.rundir import RunDir
    from metrics.tables.schemas import TABLES

    options = executor_options(arguments)
    run = RunDir(run_dir)
    run.require_documents()
    with alone(run_dir):
        if arguments.csv is None or arguments.packets or not _has_tables(run):
            remark_on_java(arguments.master)
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


def _read_captures(arguments: argparse.Namespace) -> int:
    """Write the tables of captures, and say what they have.

    Raises:
        UsageError: an option is for runs.
        ExperimentError: a file cannot be read, or the folder is not empty.
    """
    from harness.stages.analysis import executor_options, remark_on_java
    from metrics.executors import opened
    from metrics.flows.reading import HostsError, list_all, read_hosts
    from metrics.flows.written import summarise, write_tables
    from metrics.pcap.files import CaptureError

    if arguments.packets or arguments.csv is not None:
        raise UsageError("--packets and --csv are for runs: expected none of them with --to")
    options, folder = executor_options(arguments), arguments.to
    try:
        hosts = {} if arguments.hosts is None else read_hosts(arguments.hosts)
        captures, left_out = list_all(arguments.paths)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ExperimentError(f"--to {folder}", "expected a new or an empty folder")
        remark_on_java(arguments.master)
        with opened(arguments.master, options) as executor:
            write_tables(executor, captures, hosts, folder)
    except HostsError as error:
        raise ExperimentError("--hosts", str(error)) from None
    except (CaptureError, FileNotFoundError) as error:
        raise ExperimentError("tables", str(error)) from None
    except StoreError:
        raise
    except OSError as error:
        raise ExperimentError(str(error.filename or folder), error.strerror or str(error)) from None
    say(*left_out, f"{folder}: flows.parquet, captures.parquet", *summarise(folder))
    return 0


def _has_tables(run: "RunDir") -> bool:
    """Return whether the run was analysed, and its tables have every column."""
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
