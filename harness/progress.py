"""What the user sees while a run goes on: a bar on a terminal, one line a step otherwise. Always on stderr."""

from __future__ import annotations

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
    """Show that a step is under way, and how long it took.

    Args:
        text: what is being done.
        expected_s: how long it should take; 0 = unknown, the bar then only pulses.
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
    """Show how many of many things are done, and how long they took all together.

    Args:
        text: what is being done.
        total: how many there are.
        count: how many are done now; asked from another thread.
    """
    start = time.monotonic()
    console = Console(stderr=True)
    if console.is_terminal:
        with _bar(console, text, total, count):
            yield
    else:
        print(f"{text}: {count()} of {total} are there", file=sys.stderr, flush=True)
        yield
    print(f"{text}: {total} in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _bar(console: Console, text: str, total: float, count: Callable[[], float] | None = None) -> Iterator[None]:
    """A bar that follows the time, or a count where there is one."""
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
