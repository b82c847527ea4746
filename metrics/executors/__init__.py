"""Where the kernels of the tables run: in this process, or as tasks of Spark. Nothing else of the analysis knows.

An executor calls a function for each of several items, as many at a time as it has workers. The functions are the
kernels' tasks: they read staged Parquet, keep their share and write parts, so that the same ones run anywhere. What
they take and return is small and can be pickled.

``opened`` chooses: a run is analysed in this process unless more was recorded than ``HERE_BYTES``, or a master is
named. Only ``metrics.executors.spark`` imports PySpark, and only if Spark was chosen.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Final, Protocol, TypeVar

from metrics.executors.cluster import DEFAULTS, ExecutorOptions
from metrics.executors.in_process import InProcess
from metrics.processors import usable_processors

Item = TypeVar("Item")
Result = TypeVar("Result")

HERE: Final = "here"
"""The master that stands for this process."""

HERE_BYTES: Final = 2 << 30
"""The most bytes of traces and captures that are analysed in this process if no master is named."""


OPEN_FILES: Final = 1 << 16
"""Files that are open in this process at most: each thread stages tables in files per bucket, and sorted values of all
tasks are mapped. The usual limit is 1,024."""


class Executor(Protocol):
    """Runs tasks.

    Attributes:
        description: what runs the tasks, and why, for readers of the report.
        workers: how many tasks run at a time.
    """

    description: str
    workers: int

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Call a task for each item, and return what it returned, in the order of the items.

        A task may be called again for the same item, even at the same time, where a worker died or was slow.

        Raises:
            Exception: one that a task raised, or that tells of it.
        """
        ...


def shares_files(master: str | None) -> bool:
    """Whether tasks run on this machine, and so see its files; not where a cluster of others runs them."""
    return master is None or master == HERE or master.startswith("local")


@contextmanager
def opened(master: str | None, recorded_bytes: int, options: ExecutorOptions = DEFAULTS) -> Iterator[Executor]:
    """An executor for one analysis; it ends with the block.

    Args:
        master: ``here``, or a Spark master; None = chosen by size.
        recorded_bytes: the size of the run's traces and captures.
        options: of a cluster's executors.
    """
    _allow_open_files()
    cores = max(1, int(usable_processors()))
    chosen = master or choose(recorded_bytes, cores)
    why = f"asked for by --master {master}" if master else f"chosen for {recorded_bytes / 1e6:,.1f} MB of recordings"
    if chosen == HERE:
        with InProcess(cores) as here:
            here.description += f" ({why})"
            yield here
    else:
        from metrics.executors.spark import on_spark

        with on_spark(chosen, options) as spark:
            spark.description += f" ({why})"
            yield spark


def _allow_open_files() -> None:
    """Raise this process's soft limit of open files to ``OPEN_FILES``, or to its hard limit if that is lower."""
    soft, hard = (sys.maxsize if each == RLIM_INFINITY else each for each in getrlimit(RLIMIT_NOFILE))
    if soft < min(OPEN_FILES, hard):
        setrlimit(RLIMIT_NOFILE, (min(OPEN_FILES, hard), getrlimit(RLIMIT_NOFILE)[1]))


def choose(recorded_bytes: int, cores: int) -> str:
    """Return the master for a run of so many bytes of traces and captures, on a machine with so many cores."""
    return HERE if recorded_bytes <= HERE_BYTES else f"local[{cores}]"
