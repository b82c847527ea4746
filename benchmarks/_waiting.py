"""Waits for what other processes do."""

import time
from collections.abc import Callable

_PERIOD_S = 0.05


def wait_for(condition: Callable[[], object], what: str, most_s: float) -> None:
    """Wait until a condition is true.

    Args:
        condition: asked 20 times per second, and once before.
        what: what it means, for the error.
        most_s: the longest wait (s).

    Raises:
        TimeoutError: it was not true until then.
    """
    deadline_s = time.monotonic() + most_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {most_s:g} s for {what}")
        time.sleep(_PERIOD_S)
