"""The analysis stage: from a run directory with a manifest to its tables, report and summary.

On this machine it runs in a sandbox, so that temporary files of Spark are gone however the analysis ends. Any other
master is reached over the network, and so is a store, so the analysis runs without a sandbox.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO

import msgspec
from msgspec.json import Decoder

from harness.errors import ExperimentError, TrellisError, last_line
from harness.interpreter import python_command
from harness.machine import sandbox
from harness.stages.locks import lock
from metrics.executors import HERE, default_master, shares_files
from metrics.executors.cluster import (
    DEFAULTS,
    HEAP_MIB,
    TASK_MIB,
    ExecutorOptions,
    check_master,
    is_connect,
    parse_memory,
    parse_setting,
)
from metrics.rundir import RunDir, RunDirError, Summary, open_log
from metrics.rundir.files import ANALYSIS_LOG
from metrics.storage import Place, StoreError, StorePath

MASTER_HELP = (
    "where to compute the tables: 'local[*]' (Spark on this machine), 'here' (one process without Spark) or a Spark "
    "cluster, such as spark://host:7077 or sc://host:15002 (Spark Connect), whose workers see the run under the same "
    "path or in a store (default: Spark on all cores of this machine, or 'here' if it has no Java)"
)
"""The help of ``--master``."""

IN_SANDBOX = {"SPARK_LOCAL_IP": "127.0.0.1"}
"""The environment of Spark in a sandbox, whose only interface is loopback."""

EXIT_CODES = {"valid": 0, "invalid": 1, "suspect": 3}
"""The exit codes of ``trellis run`` and ``trellis report``, by verdict."""


def add_master_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--master``, and what the executors of a cluster are given."""
    parser.add_argument("--master", type=master_option, help=MASTER_HELP)
    parser.add_argument(
        "--executor-memory",
        metavar="SIZE",
        help=f"memory of each executor of a cluster, such as 8g (default: {HEAP_MIB >> 10}g, and "
        f"{TASK_MIB >> 10}g per core for Python, which takes most of it)",
    )
    parser.add_argument(
        "--executor-cores",
        type=int,
        metavar="N",
        help="cores of each executor of a cluster (default: all of a worker's; one on YARN and Kubernetes)",
    )
    parser.add_argument(
        "--executor-python",
        metavar="PATH",
        help="Python on the machines of a cluster, with NumPy, pyarrow and msgspec (default: $PYSPARK_PYTHON, or the "
        "path of Trellis's own)",
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of Spark on a cluster, such as spark.eventLog.enabled=true; may be given several times",
    )


def master_option(text: str) -> str:
    """Return what ``--master`` names; its form is checked before any work."""
    try:
        return check_master(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def executor_options(arguments: argparse.Namespace) -> ExecutorOptions:
    """Return what ``add_master_arguments`` asks for.

    Raises:
        ExperimentError: a value is none, or there are options without a cluster.
    """
    if arguments.executor_cores is not None and arguments.executor_cores < 1:
        raise ExperimentError("--executor-cores", f"expected at least 1, got {arguments.executor_cores}")
    try:
        memory = None if arguments.executor_memory is None else parse_memory(arguments.executor_memory)
    except ValueError as error:
        raise ExperimentError("--executor-memory", str(error)) from None
    for setting in arguments.conf:
        try:
            parse_setting(setting)
        except ValueError as error:
            raise ExperimentError("--conf", str(error)) from None
    given = memory, arguments.executor_cores, arguments.executor_python, tuple(arguments.conf)
    options = ExecutorOptions(*given)
    if options != DEFAULTS and shares_files(arguments.master):
        raise ExperimentError("--executor-*, --conf", "these are options of a cluster: name one with --master")
    if options != DEFAULTS and is_connect(arguments.master):
        raise ExperimentError("--executor-*, --conf", "the executors of a Spark Connect server are the server's own")
    return options


def remark_on_java(master: str | None) -> None:
    """Say so if one process does the work because there is no Java for Spark."""
    if master is None and default_master() == HERE:
        words = "there is no Java for Spark, so one process computes the tables (trellis doctor says how to install it)"
        print(f"remark: {words}", file=sys.stderr)


class AnalysisError(TrellisError):
    """A run could not be analysed."""


class UnreadableRunError(AnalysisError):
    """A file of the run is damaged, as the analysis found on its way."""

    exit_code = 2


def analyse(
    run_dir: Place,
    master: str | None = None,
    options: ExecutorOptions = DEFAULTS,
    baseline: Path | None = None,
    *,
    page: bool = True,
) -> Summary:
    """Compute a finished run's tables, write its report and return its summary.

    Args:
        run_dir: the run. The analysis of one in a store runs in this process, and has no log.
        master: ``here`` (one process) or a Spark master; None = Spark on this machine, if it has Java.
        options: of a cluster's executors.
        baseline: the analysed run with which the report compares; None = one that it finds, if any.
        page: also write the report; without it the run has none afterwards.

    Raises:
        RunDirError: the run did not finish, or cannot be read.
        AnalysisError: the run is being analysed, or the analysis failed; ends with its last log line.
        StoreError: the store cannot be used.
        TestbedError: no sandbox could be made.
    """
    run = RunDir(run_dir)
    run.require_documents()
    if baseline is not None:
        _ = RunDir(baseline).summary
    if isinstance(run_dir, StorePath):
        from metrics.analysis import analyse as analyse_here

        return analyse_here(run_dir, master, options, page=page, baseline=baseline)
    compared = [] if baseline is None else [baseline.absolute()]
    given = [*as_words(options, page), *(f"--baseline={each}" for each in compared)]
    run_spark(__name__, run_dir, ANALYSIS_LOG, master, keep=compared, given=given)
    return run.summary


def as_words(options: ExecutorOptions, page: bool) -> list[str]:
    """Return words of this module's command line: the options, and whether there is to be a report."""
    return [f"--options={msgspec.json.encode(options).decode()}", *([] if page else ["--no-report"])]


def alone(run_dir: Place) -> AbstractContextManager[object]:
    """Keep other analyses of a run out. In a store they need not be (``metrics.store_results``)."""
    return nullcontext() if isinstance(run_dir, StorePath) else exclusive(run_dir)


@contextmanager
def exclusive(folder: Path, words: str = ANALYSIS_LOG) -> Iterator[IO[bytes]]:
    """Open and lock a stage's log, so that one stage at a time works in the folder.

    The lock is free when the last process that has the log open has ended, including one that outlives its parent.

    Raises:
        AnalysisError: another process works in the folder, or the log cannot be opened.
    """
    try:
        opened = open_log(folder / words)
    except OSError as error:
        raise AnalysisError(f"{folder}: {words} cannot be written: {error.strerror}") from None
    with opened as log:
        try:
            lock(log)
        except BlockingIOError:
            problem = f"another process works on it and writes {words}; try again when it has ended"
            raise AnalysisError(f"{folder}: {problem}") from None
        yield log


def run_spark(
    module: str,
    folder: Path,
    words: str,
    master: str | None,
    keep: Iterable[Path] = (),
    given: Sequence[str] = (),
) -> None:
    """Run a module that may use Spark on a folder, as a separate process that leaves nothing behind.

    Args:
        module: the module; called with the folder and ``--master``.
        folder: where it reads and writes.
        words: the name of its log in the folder.
        master: ``here`` (no Spark) or a Spark master; None = the module chooses, on this machine.
        keep: other paths that it must see.
        given: other arguments of the module.

    Raises:
        AnalysisError: it failed (ends with its last log line), found a damaged file, or another process works in the
            folder.
        TestbedError: no sandbox could be made.
    """
    argv = spark_command(module, folder, master, *given)
    with exclusive(folder, words) as log:
        log.truncate(0)
        if shares_files(master):
            status = sandbox.run(argv, keep=[folder, *keep], environment=IN_SANDBOX, output=log)
        else:
            status = subprocess.run(argv, stdout=log, stderr=log, check=False).returncode
    require_success(status, folder, words)


def spark_command(module: str, folder: Path, master: str | None, *given: str) -> list[str]:
    """Return the command of a module that may use Spark. See ``run_spark`` for the arguments."""
    chosen = [f"--master={master}"] if master else []
    return python_command("-m", module, str(folder.absolute()), *chosen, *given)


def require_success(status: int, folder: Path, words: str) -> None:
    """Raise if a module that may use Spark failed.

    Args:
        status: its exit status.
        folder: where it worked.
        words: the name of its log there.

    Raises:
        AnalysisError: it failed, or found a damaged file.
    """
    said = folder / words
    if status == os.EX_DATAERR:
        raise UnreadableRunError(last_line(said))
    if status:
        raise AnalysisError(f"{folder}: status {status}: {last_line(said)} (full log: {said})")


def main() -> None:
    """Analyse one run in this process, as soon as it is there."""
    from metrics.analysis import analyse, analyse_by, begun, rehearse

    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--master")
    parser.add_argument("--options", type=Decoder(ExecutorOptions).decode, default=DEFAULTS)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--no-report", dest="page", action="store_false")
    parser.add_argument("--stopped", type=int, help="descriptor of ``await_run``")
    given = parser.parse_args()
    if not given.page:
        _import_igraph()
    try:
        if given.stopped is None:
            analyse(given.run_dir, given.master, given.options, page=given.page, baseline=given.baseline)
        else:
            with begun(given.master, given.options, page=given.page) as executor:
                rehearse(executor, page=given.page)
                await_run(given.stopped)
                analyse_by(executor, given.run_dir, page=given.page)
    except (RunDirError, StoreError) as error:
        print(error, file=sys.stderr)
        sys.exit(os.EX_DATAERR)


def _import_igraph() -> None:
    """Import igraph without matplotlib, which takes a third of a second, and which nothing needs that does not draw."""
    present = sys.modules.get("matplotlib")
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    try:
        import igraph  # noqa: F401
    finally:
        del sys.modules["matplotlib"]
        if present is not None:
            sys.modules["matplotlib"] = present


def await_run(stopped: int) -> None:
    """Stop all other processes of the sandbox, say so, and wait for a line: the run is there.

    Args:
        stopped: the descriptor to which a byte is written when they have stopped.
    """
    sandbox.stop_others()
    os.write(stopped, b"\n")
    os.close(stopped)
    sys.stdin.buffer.readline()
    sandbox.continue_others()


if __name__ == "__main__":
    main()
