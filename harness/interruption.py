"""Ctrl-C and SIGTERM: both end a command in the same way, with one line and an exit status of their own.

What a command has started lives in sessions of its own, so that a terminal's Ctrl-C reaches the command alone: it then
ends what it has started in its own order, once, and a second Ctrl-C kills at once.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

GRACE_S = 20.0
"""How long a stage that reaches other machines may take to end what it started there."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """128 and the signal's number, as shells have it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


def describe(interrupt: KeyboardInterrupt) -> str:
    """What has happened, and the notes that were added on the interrupt's way."""
    what = "terminated" if isinstance(interrupt, Terminated) else "interrupted"
    return "; ".join([what, *getattr(interrupt, "__notes__", ())])


def heed_sigterm() -> None:
    """From now on SIGTERM raises ``Terminated``, as SIGINT raises ``KeyboardInterrupt``."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def run_stage(argv: Sequence[str], grace_s: float = GRACE_S) -> int:
    """Run a program that ends by itself after SIGINT, and dies with this process.

    An interrupt is passed on to it as SIGINT. A second one, or ``grace_s`` without an end, kills it.

    Returns:
        Its exit status.
    """
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt as interrupt:
        if process.poll() is None:
            print("ending what was started; Ctrl-C again kills it at once", file=sys.stderr, flush=True)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            process.wait(grace_s)
        raise interrupt
    finally:
        process.kill()
        process.wait()
