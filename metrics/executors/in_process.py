"""The executor without Spark: threads of this process.

Kernels spend their time in NumPy and Arrow, which let other threads run meanwhile.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

HERE: Final = "here"
"""The master whose tasks run in this process."""


class InProcess:
    """An executor (see ``metrics.executors.Executor``); a context manager, whose end waits for its threads.

    Args:
        workers: the number of threads.
    """

    def __init__(self, workers: int) -> None:
        self.master = HERE
        self.workers = workers
        self.description = f"in one process, {workers} thread{'s' * (workers > 1)}"
        self._pool = ThreadPoolExecutor(workers, "kernel")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See ``metrics.executors.Executor``. Several threads may call this at once; a task may not."""
        return list(self._pool.map(task, items))
