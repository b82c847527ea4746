"""Where the kernels of the tables run: in this process, or as tasks of Spark. The rest of the analysis does not know.

An executor calls a function for each of several items, as many at a time as it has workers. The functions are the
kernels' tasks: they read staged Parquet, keep their share and write parts, so the same functions run anywhere. Their
arguments and results are small and can be pickled.

``opened`` chooses if no master is named: Spark on this machine, or this process if there is no Java for Spark. Only
``metrics.executors.spark`` and the ``daemon`` of its workers import PySpark, and only if Spark was chosen.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Final, Protocol, TypeVar

from metrics.executors.cluster import DEFAULTS, ExecutorOptions
from metrics.executors.in_process import HERE, InProcess
from metrics.processors import usable_cores

__all__ = ["HERE", "OPEN_FILES", "WITHOUT_JAVA", "Executor", "default_master", "has_java", "opened", "shares_files"]

Item = TypeVar("Item")
Result = TypeVar("Result")

WITHOUT_JAVA: Final = "there is no Java for Spark"
"""Why this process is the default, if it is."""

OPEN_FILES: Final = 1 << 16
"""The most open files of this process: each thread stages tables in files per bucket, and the sorted values of all
tasks are mapped. The usual limit is 1,024."""


class Executor(Protocol):
    """Runs tasks.

    Attributes:
        description: what runs the tasks, and why, for readers of the report.
        master: ``HERE``, or the master of Spark.
        workers: how many tasks run at a time.
    """

    description: str
    master: str
    workers: int

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Call a task for each item, and return the results in the order of the items.

        A task may be called again for the same item, even at the same time, if a worker died or was slow.

        Raises:
            Exception: one that a task raised, or an exception about it.
        """
        ...


def shares_files(master: str | None) -> bool:
    """Return whether tasks run on this machine, and so see its files; a cluster of other machines does not."""
    return master is None or master == HERE or master.startswith("local")


@contextmanager
def opened(master: str | None, options: ExecutorOptions = DEFAULTS) -> Iterator[Executor]:
    """Yield an executor for one analysis; it ends with the block.

    Args:
        master: ``here``, or a Spark master; None = the default.
        options: the resources of a cluster's executors.
    """
    _allow_open_files()
    chosen = master or default_master()
    why = f"asked for by --master {master}" if master else "the default" if chosen != HERE else WITHOUT_JAVA
    if chosen == HERE:
        with InProcess(usable_cores()) as here:
            here.description += f" ({why})"
            yield here
    else:
        from metrics.executors.spark import on_spark

        with on_spark(chosen, options) as spark:
            spark.description += f" ({why})"
            yield spark


def default_master() -> str:
    """Return the master if none is named: all cores of this machine on Spark, or ``HERE`` if Spark finds no Java."""
    return f"local[{usable_cores()}]" if has_java() else HERE


def has_java() -> bool:
    """Return whether there is the Java that Spark would start: that of ``JAVA_HOME``, or else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java") is not None


def _allow_open_files() -> None:
    """Raise this process's soft limit of open files to ``OPEN_FILES``, or to its hard limit if that is lower."""
    soft, hard = (sys.maxsize if each == RLIM_INFINITY else each for each in getrlimit(RLIMIT_NOFILE))
    if soft < min(OPEN_FILES, hard):
        setrlimit(RLIMIT_NOFILE, (min(OPEN_FILES, hard), getrlimit(RLIMIT_NOFILE)[1]))
