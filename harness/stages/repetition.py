"""Decides, from the ``checks`` table alone, whether to repeat a run that stalls of the host spoiled."""

from pathlib import Path

from metrics.recorded.stalls import is_the_hosts
from metrics.rundir import VALID, Attempt, Summary


def is_spoiled_by_host(summary: Summary) -> bool:
    """Return whether stalls of the host are the only reason why a run is not valid.

    Every reason must be a failed check that would have passed without the samples that stalls of the host explain. Any
    other reason, such as a failed process or a delivery ratio that is too low, makes the answer no.
    """
    failed = [check for check in summary.checks if check.failed]
    only_checks = len(summary.reasons) == len(failed)
    return summary.verdict != VALID and only_checks and all(is_the_hosts(check) for check in failed)


def next_attempt(run_dir: Path, summary: Summary) -> Attempt:
    """Return the attempt that follows a run."""
    number = summary.attempt.attempt if summary.attempt else 1
    return Attempt(number + 1, str(run_dir), summary.reasons)
