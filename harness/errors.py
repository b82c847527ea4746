"""The errors that users see. The CLI prints each on one line: what was asked and what happened."""

import signal
from pathlib import Path

from harness.terminal import printable


class TrellisError(Exception):
    """The base of every error that is not a bug of Trellis. ``exit_code`` is what the CLI returns."""

    exit_code = 1


class UsageError(TrellisError):
    """The command line has an unknown verb or option, or a value that an option does not take."""

    exit_code = 2


class ExperimentError(TrellisError):
    """An experiment file, a matrix or an option is invalid. ``path`` names the place (``$.underlay.hosts``, a file)."""

    exit_code = 2

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class TestbedError(TrellisError):
    """A testbed could not do what was asked."""

    __test__ = False

    def __init__(self, asked: str, got: str) -> None:
        super().__init__(f"{asked}: {got}")
        self.asked = asked
        self.got = got


class DeploymentError(TrellisError):
    """A step failed on some machines. ``results_by_machine`` has the error message of each."""

    def __init__(self, step: str, results_by_machine: dict[str, str]) -> None:
        words = {machine: printable(text) for machine, text in results_by_machine.items()}
        failures = "; ".join(f"{machine}: {text}" for machine, text in sorted(words.items()))
        super().__init__(f"{step} failed on {failures}")
        self.step = step
        self.results_by_machine = words


def describe_status(status: int) -> str:
    """Describe how a process ended. ``status`` is that of ``subprocess``: -N for signal N."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"ended by signal {-status}"


def last_line(log: Path) -> str:
    """Return the last line of a log that is not blank, usually the reason of a failure."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "no output")
