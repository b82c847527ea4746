"""What the user sees while a run goes on: a bar on a terminal, one line a step otherwise. Always on stderr."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

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
def _bar(console: Console, text: str, expected_s: float) -> Iterator[None]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    ended = threading.Event()
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task(text, total=expected_s or None)

        def advance() -> None:
            while not ended.wait(_REFRESH_S):
                progress.advance(task, _REFRESH_S)

        ticker = threading.Thread(target=advance, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            ended.set()
            ticker.join()
