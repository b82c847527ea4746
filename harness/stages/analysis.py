"""The analysis stage: from a run directory with a manifest to its tables, report and summary.

Spark with a local master runs in a sandbox, so that its temporary files are gone however the analysis ends. Any other
master is reached over the network, so the analysis runs without a sandbox.
"""

import argparse
import fcntl
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.errors import TrellisError, last_line
from harness.machine import sandbox
from metrics.rundir import RunDir, Summary
from metrics.rundir.files import ANALYSIS_LOG

LOCAL = ("local", "here")
"""Prefixes of masters that need no network. "here" means no Spark: the module does everything in its process."""

EXIT_CODES = {"valid": 0, "invalid": 1, "suspect": 3}
"""The exit codes of ``trellis run`` and ``trellis report``, by verdict."""


class AnalysisError(TrellisError):
    """A run could not be analysed."""


def analyse(run_dir: Path, master: str | None = None) -> Summary:
    """Compute a finished run's tables, write its report and return its summary.

    Args:
        run_dir: the run.
        master: a Spark master; None = all cores of this machine.

    Raises:
        RunDirError: the run did not finish, or cannot be read.
        AnalysisError: the run is being analysed, or the analysis failed; ends with its last log line.
        TestbedError: no sandbox could be made.
    """
    run = RunDir(run_dir)
    _ = run.manifest, run.plan
    run_spark(__name__, run_dir, ANALYSIS_LOG, master)
    return run.summary


@contextmanager
def exclusive(folder: Path, words: str = ANALYSIS_LOG) -> Iterator[IO[bytes]]:
    """Open and lock a stage's log, so that one stage at a time works in the folder.

    The lock is free when the last process that has the log open has ended, including one that outlives its parent.

    Raises:
        AnalysisError: another process works in the folder.
    """
    with (folder / words).open("ab") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"another process works on it and writes {words}; try again when it has ended"
            raise AnalysisError(f"{folder}: {problem}") from None
        yield log


def run_spark(module: str, folder: Path, words: str, master: str | None, keep: Iterable[Path] = ()) -> None:
    """Run a module that uses Spark on a folder, as a separate process that leaves nothing behind.

    Args:
        module: the module; called with the folder and ``--master``.
        folder: where it reads and writes.
        words: the name of its log in the folder.
        master: a Spark master; None = all cores of this machine.
        keep: other paths that it must see.

    Raises:
        AnalysisError: it failed (ends with its last log line), or another process works in the folder.
        TestbedError: no sandbox could be made.
    """
    argv = [sys.executable, "-m", module, str(folder.absolute()), *([f"--master={master}"] if master else [])]
    with exclusive(folder, words) as log:
        log.truncate(0)
        if master is None or master.startswith(LOCAL):
            environment = {"SPARK_LOCAL_IP": "127.0.0.1"}
            status = sandbox.run(argv, keep=[folder, *keep], environment=environment, output=log)
        else:
            status = subprocess.run(argv, stdout=log, stderr=log, check=False).returncode
    if status:
        said = folder / words
        raise AnalysisError(f"{folder}: status {status}: {last_line(said)} (full log: {said})")


def main() -> None:
    """Analyse one run in this process."""
    from metrics import report, summary, tables

    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--master")
    given = parser.parse_args()
    tables.build(given.run_dir, given.master)
    summary.write(given.run_dir)
    report.write(given.run_dir)


if __name__ == "__main__":
    main()
