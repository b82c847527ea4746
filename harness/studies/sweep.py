"""Executes a sweep: runs without a result, then tables, figures and the page. It can be resumed at any point."""

import argparse
import sys
from pathlib import Path

from harness.studies.executor import Failure, Outcome, execute
from harness.studies.store import Store, jobs_of, read_spec


def sweep(folder: Path, master: str | None = None) -> list[Failure]:
    """Complete the sweep of a folder.

    Every result is written as soon as it is known, so a killed sweep loses only the runs in progress. The output
    depends only on the results, not on their order.

    Args:
        folder: the folder with ``sweep.json``.
        master: a Spark master; None = all cores of this machine.

    Returns:
        The runs that failed; if there are any, no output is written.
    """
    spec = read_spec(folder)
    jobs = jobs_of(spec.study, Path(spec.source).parent)
    store = Store(folder, any_code=spec.any_code)
    failures: list[Failure] = []

    def take(outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            store.write(outcome.result)

    # The longest first, so that no core waits long for the last one.
    missing = {job.key: job for job in jobs if store.read(job) is None}
    pending = sorted(missing.values(), key=lambda job: -job.cost)
    if pending:
        execute(pending, master, take)
    if not failures:
        from harness.studies.page import write_page

        write_page(folder, spec, [result for job in jobs if (result := store.read(job)) is not None])
    return failures


def main() -> None:
    """Execute one sweep in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master")
    given = parser.parse_args()
    failures = sweep(given.folder, given.master)
    for failure in failures:
        print(f"run {failure.key}:\n{failure.words}", file=sys.stderr)
    if failures:
        last = failures[0].words.strip().splitlines()[-1]
        print(f"{len(failures)} runs failed, the others are kept; the first failed with {last}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
