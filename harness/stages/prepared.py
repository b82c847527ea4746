"""An analysis that begins before its run, so that Spark has started when the run ends.

Its process starts in its sandbox (``harness.stages.analysis``) while the testbed boots. It imports what it needs, opens
its executor and lets every worker run a task. Then it stops all other processes of its sandbox, which are Spark's, and
waits for a line. So it takes no processor time while the network is probed and the peers run: the running stage waits
until they have stopped.
"""

import contextlib
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.machine import sandbox
from harness.stages.analysis import IN_SANDBOX, analyse, as_words, exclusive, require_success, spark_command
from metrics.executors import shares_files
from metrics.executors.cluster import ExecutorOptions
from metrics.rundir import RunDir, Summary
from metrics.rundir.files import ANALYSIS_LOG

STOPPED = "TRELLIS_ANALYSIS_STOPPED"
"""The variable of the running stage with the descriptor that can be read when the analysis has stopped, or failed."""

LONGEST_S = 120.0
"""How long the running stage waits. After that the verdict judges what the analysis takes from the run."""


@dataclass(frozen=True)
class Prepared:
    """An analysis that waits for the end of its run.

    Attributes:
        finish: analyses the run, as ``harness.stages.analysis.analyse`` does.
        stopped: a descriptor of ``STOPPED``; None = the analysis begins with ``finish``.
    """

    finish: Callable[[], Summary]
    stopped: int | None = None


@contextmanager
def prepared(run_dir: Path, master: str | None, options: ExecutorOptions, *, page: bool = True) -> Iterator[Prepared]:
    """Begin the analysis of a run that is to be made. It ends with the block at the latest.

    An analysis on a cluster begins with ``finish``: it would hold the cluster's cores during the run.

    Args:
        run_dir: the run's directory, which exists.
        master: see ``analyse``.
        options: see ``analyse``.
        page: see ``analyse``.

    Raises:
        AnalysisError: another process works in the directory.
        TestbedError: no sandbox could be made.
    """
    if not shares_files(master):
        yield Prepared(lambda: analyse(run_dir, master, options, page=page))
        return
    stopped, sending = os.pipe()
    with exclusive(run_dir) as log:
        log.truncate(0)
        given = [*as_words(options, page), f"--stopped={sending}"]
        argv = spark_command("harness.stages.analysis", run_dir, master, *given)
        process = sandbox.enter(argv, keep=[run_dir], environment=IN_SANDBOX, output=log, descriptors=[sending])
        os.close(sending)  # so that the end can be read if the analysis fails

        def finish() -> Summary:
            with contextlib.suppress(BrokenPipeError):  # it has failed, and its status says why
                process.communicate(b"\n")
            require_success(process.wait(), run_dir, ANALYSIS_LOG)
            return RunDir(run_dir).summary

        try:
            yield Prepared(finish, stopped)
        finally:
            sandbox.end(process)
            os.close(stopped)


def await_stopped() -> None:
    """Wait, in the running stage, until the analysis that has begun beside it has stopped, if there is one."""
    if given := os.environ.get(STOPPED):
        select.select([int(given)], [], [], LONGEST_S)
