"""Ctrl-C and SIGTERM: both end a command in the same way, each with one line and its own exit status.

A command starts its processes in separate sessions, so that a terminal's Ctrl-C reaches the command only. The command
then ends them in its own order; a second Ctrl-C kills them at once.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

GRACE_S = 20.0
"""Time that a stage has to end what it started, on other machines too."""


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return 128 plus the signal's number, as shells do: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


def describe(interrupt: KeyboardInterrupt) -> str:
    """Describe the interrupt, with the notes that were added to it."""
    what = "terminated" if isinstance(interrupt, Terminated) else "interrupted"
    return "; ".join([what, *getattr(interrupt, "__notes__", ())])


def heed_sigterm() -> None:
    """Make SIGTERM raise ``Terminated``, as SIGINT raises ``KeyboardInterrupt``."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def run_stage(argv: Sequence[str]) -> int:
    """Run a program that ends after SIGINT, and that is killed if this process dies.

    An interrupt is passed on to it as SIGINT. A second interrupt kills it, and so does the end of ``GRACE_S``.

    Returns:
        Its exit status.
    """
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt as interrupt:
        if process.poll() is None:
            print("ending the processes; press Ctrl-C again to kill them", file=sys.stderr, flush=True)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        raise interrupt
    finally:
        process.kill()
        process.wait()
