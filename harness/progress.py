"""Progress on stderr: a bar on a terminal, otherwise one line per step."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_REFRESH_S = 0.5


@contextlib.contextmanager
def step(text: str, expected_s: float = 0.0) -> Iterator[None]:
    """Show that a step is running, then how long it took.

    Args:
        text: the step's name.
        expected_s: expected duration; 0 = unknown, so the bar only pulses.
    """
    start = time.monotonic()
    console = Console(stderr=True)
    if console.is_terminal:
        with _bar(console, text, expected_s):
            yield
        console.print(f"[green]done[/] {text} [dim]{time.monotonic() - start:.1f} s")
    else:
        yield
        print(f"{text}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def counting(text: str, total: int, count: Callable[[], int]) -> Iterator[None]:
    """Say how many items are done already and how many are to do, count them, then say how long the latter took.

    Args:
        text: the step's name.
        total: the number of items.
        count: returns the number of items done; called from another thread.
    """
    start = time.monotonic()
    console = Console(stderr=True)
    before = count()
    print(f"{text}: {before} of {total} are done already, {total - before} to do", file=sys.stderr, flush=True)
    if console.is_terminal:
        with _bar(console, text, total, count):
            yield
    else:
        yield
    print(f"{text}: {total - before} in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _bar(console: Console, text: str, total: float, count: Callable[[], float] | None = None) -> Iterator[None]:
    """Show a bar that follows the time, or ``count`` if given."""
    start = time.monotonic()
    counted = () if count is None else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *counted, TimeElapsedColumn())
    ended = threading.Event()
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task(text, total=total or None)

        def advance() -> None:
            while not ended.wait(_REFRESH_S):
                progress.update(task, completed=time.monotonic() - start if count is None else count())

        ticker = threading.Thread(target=advance, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            ended.set()
            ticker.join()
