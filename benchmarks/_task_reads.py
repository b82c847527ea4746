"""What each task of an analysis reads and holds: rows of staged tables, and the peak of its memory.

Also the rows that the process that starts the tasks holds. Tasks run one after the other here. The rows of a task are
those of the Parquet that it opens, whether a filter keeps them or not; a file that is read twice counts twice. Memory
is what Arrow, NumPy and Python allocate; mapped files do not count.
"""

import gc
import inspect
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from metrics import summary
from metrics.pcap import tasks
from metrics.report import report
from metrics.rundir import RunDir
from metrics.storage import parquet
from metrics.tables import logs, shares, staging, wire
from metrics.tables.pipeline import Pipeline

Item = TypeVar("Item")
Result = TypeVar("Result")

_pools: list[pa.MemoryPool] = []
"""Of all tasks: a pool must outlive what was allocated from it."""


@dataclass(frozen=True)
class TaskUse:
    """What tasks of a kind used at most.

    Attributes:
        tasks: how many there were.
        rows: that one of them read.
        all_rows: that all of them read together.
        mib: that one of them held.
    """

    tasks: int = 0
    rows: int = 0
    all_rows: int = 0
    mib: float = 0.0


def measure_tasks(
    run: RunDir, workers: int, share_rows: int = shares.MOST_ROWS, *, memory: bool = True
) -> dict[str, TaskUse]:
    """Make all tables of a run, which must have none, and return what its tasks used, by the name of their function.

    Args:
        run: the run.
        workers: how many tasks at a time the tables are made for.
        share_rows: what a share holds on the average. A run is large if it has many shares, and with smaller shares,
            pieces and parts of captures a smaller run is.
        memory: whether memory is measured, which takes several times as long.
    """
    executor = _Metered(workers, memory=memory)
    run.tables.mkdir()
    with _limits(share_rows / shares.MOST_ROWS), executor.counting():
        Pipeline(executor, run).write(packets=False)
    return executor.found


def measure_driver(run: RunDir, workers: int) -> dict[str, int]:
    """Analyse a run, which must have no tables, and return the most rows that a function held outside tasks.

    These are the rows of a Parquet that it read, without those that a filter drops, and what the tasks of a call of
    the executor returned to it together: rows of tables, and items of lists and other containers.

    Args:
        run: the run.
        workers: how many tasks at a time the tables are made for.
    """
    executor = _Metered(workers, memory=False)
    run.tables.mkdir()
    with executor.counting():
        Pipeline(executor, run).write(packets=True)
        summary.write(run.path)
        report.write(run.path)
    return executor.held


@contextmanager
def _limits(factor: float) -> Iterator[None]:
    """Let all that is divided by its size be divided by so much less."""
    places = ((shares, "MOST_ROWS"), (shares, "LEAST_ROWS"), (shares, "PIECE_ROWS"), (wire, "PART_BYTES"))
    places += ((tasks, "PARTITION_BYTES"), (logs, "SHARE_BYTES"))
    with ExitStack() as patches:
        for module, name in places:
            patches.enter_context(patch.object(module, name, round(getattr(module, name) * factor)))
        yield


class _Metered:
    """An executor (``metrics.executors.Executor``) that notes what its tasks use."""

    description = "one task at a time"

    def __init__(self, workers: int, *, memory: bool) -> None:
        self.workers = workers
        self.found: dict[str, TaskUse] = {}
        self.held: dict[str, int] = {}
        self._memory = memory
        self._lock = threading.Lock()
        self._task: int | None = None  # the thread of the task that runs
        self._rows = 0

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        results = [self._run(task, item) for item in items]
        self._hold(f"results of {_name(task)}", _count_items(results))
        return results

    def _run(self, task: Callable[[Item], Result], item: Item) -> Result:
        with self._lock:
            self._task, self._rows = threading.get_ident(), 0
            with _peak_mib(self._memory) as held:
                result = task(item)
            name, most = _name(task), self.found.get(_name(task), TaskUse())
            self.found[name] = TaskUse(
                most.tasks + 1, max(most.rows, self._rows), most.all_rows + self._rows, max(most.mib, *held)
            )
            self._task = None
            return result

    def count(self, rows: int, kept: int) -> None:
        """Note that rows are read, of which a filter keeps some."""
        if self._task == threading.get_ident():
            self._rows += rows
        else:
            self._hold(_reader(), kept)

    def _hold(self, name: str, rows: int) -> None:
        self.held[name] = max(self.held.get(name, 0), rows)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Let both ways to read Parquet tell of their rows, whatever module calls them."""
        opens: Callable[..., Any] = parquet.open_dataset
        reads: Callable[..., pa.Table] = parquet.read_parquet
        groups: Callable[..., pa.Table] = parquet.group_parquet

        def open_dataset(*args: object, **options: object) -> _Counted:
            return _Counted(opens(*args, **options), self.count)

        def read_parquet(*args: object, **options: object) -> pa.Table:
            found = reads(*args, **options)
            self.count(len(found), len(found))
            return found

        def group_parquet(*args: object, **options: object) -> pa.Table:
            found = groups(*args, **options)
            self.count(0, len(found))
            return found

        originals = {"open_dataset": opens, "read_parquet": reads, "group_parquet": groups}
        changed = [(each.__name__, each) for each in (open_dataset, read_parquet, group_parquet)]
        modules = [module for name, module in sys.modules.items() if name.startswith("metrics.")]
        together = staging.STEPS
        staging.STEPS = 1  # memory is that of the task alone
        places = [
            (module, name, counted)
            for module in modules
            for name, counted in changed
            if getattr(module, name, None) is originals[name] and module is not parquet
        ]
        for module, name, counted in places:
            setattr(module, name, counted)
        try:
            yield
        finally:
            staging.STEPS = together
            for module, name, _ in places:
                setattr(module, name, originals[name])


@contextmanager
def _peak_mib(measured: bool) -> Iterator[list[float]]:
    """A list that has the peak of the block's memory in MiB after it; 0 if it is not measured."""
    held = [0.0]
    if not measured:
        yield held
        return
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    _pools.append(pool)
    gc.collect()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield held
    finally:
        held[0] = (tracemalloc.get_traced_memory()[1] + pool.max_memory()) / 2**20
        tracemalloc.stop()
        pa.set_memory_pool(pa.default_memory_pool())


class _Counted:
    """A dataset that tells of all its rows when some of them are read."""

    def __init__(self, dataset: ds.Dataset, count: Callable[[int, int], None]) -> None:
        self._dataset = dataset
        self._count = count

    def __getattr__(self, name: str) -> object:
        return getattr(self._dataset, name)

    def to_table(self, **options: object) -> pa.Table:
        found = self._dataset.to_table(**options)
        self._count(self._dataset.count_rows(), len(found))
        return found

    def to_batches(self, **options: object) -> Iterator[pa.RecordBatch]:
        rows = self._dataset.count_rows()
        for batch in self._dataset.to_batches(**options):
            self._count(rows, len(batch))
            yield batch
            rows = 0


def _name(task: Callable[[Any], Any]) -> str:
    """The function's, or that of the function which makes the tables that the task writes."""
    if isinstance(task, partial):
        return _name(task.func)
    variables = inspect.getclosurevars(task).nonlocals
    return _name(variables["make"]) if "make" in variables else task.__qualname__


_READ_FOR_OTHERS = ("read_columns", "read_staged", "table", "grouped", "_group_sharing", "_node_links")


def _reader() -> str:
    """The function of the analysis that reads, without those that every reader calls."""
    frame = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals["__name__"]
        if module.startswith("metrics.") and frame.f_code.co_name not in _READ_FOR_OTHERS:
            return f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def _count_items(value: object) -> int:
    """How many rows and items a value holds; a text or a number is none."""
    if isinstance(value, pa.Table | pa.Array | pa.ChunkedArray | np.ndarray):
        return len(value)
    if isinstance(value, Mapping):
        return len(value) + sum(map(_count_items, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return len(value) + sum(map(_count_items, value))
    if isinstance(value, msgspec.Struct):
        return _count_items(msgspec.structs.astuple(value))
    return _count_items(list(vars(value).values())) if is_dataclass(value) else 0
