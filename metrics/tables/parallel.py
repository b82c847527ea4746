"""Independent parts of an analysis side by side: planning a query fills one core, and so do a small one's tasks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_THREADS = 2
"""Two are enough: what Spark itself does side by side fills the other cores."""


def in_parallel(**parts: Callable[[], Any]) -> dict[str, Any]:
    """Call all parts, two at a time in the order given, and return what each of them returns.

    Raises:
        Exception: what the first part that failed raised, after all have ended.
    """
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        begun = {name: pool.submit(part) for name, part in parts.items()}
    return {name: future.result() for name, future in begun.items()}
