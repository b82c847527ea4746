"""Snapshots of a run, one a second, until it is over: ``python -m harness.live.stream RUN`` prints them as JSON lines.

Whoever shows a run starts this as a process of its own (``harness.live.idle``).
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import TrellisError
from harness.live.collector import Collector
from harness.live.snapshot import Snapshot
from metrics.rundir import RunDirError

PERIOD_S: Final = 1.0
"""Real time between two snapshots."""


def follow(collector: Collector, sleep: Callable[[float], None] = time.sleep) -> Iterator[Snapshot]:
    """Yield snapshots until one of a run that is over.

    Raises:
        RunDirError: a file of the run is damaged.
    """
    while True:
        due_s = time.monotonic() + PERIOD_S
        snapshot = collector.collect()
        yield snapshot
        if snapshot.ended is not None:
            return
        sleep(max(0.0, due_s - time.monotonic()))


def main() -> int:
    """Print the snapshots of the run whose directory is the only argument."""
    run_dir = Path(sys.argv[1])
    try:
        for snapshot in follow(Collector(run_dir)):
            sys.stdout.buffer.write(msgspec.json.encode(snapshot) + b"\n")
            sys.stdout.buffer.flush()
    except (TrellisError, RunDirError) as error:
        print(f"trellis watch: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # nobody reads any longer
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
