"""Replace older results of an analysis as a whole: a reader finds the old results, the new ones or none."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from metrics.rundir.files import RESULTS

_PREFIX = ".analysis-"


@contextmanager
def replacing(run_dir: Path) -> Iterator[Path]:
    """Yield an empty folder for ``RESULTS``, which take the place of the run's when the block ends well.

    Otherwise all stays unchanged. The replacement is a few renames. If the process is killed between two of them, the
    next analysis finishes or undoes it first. Nothing else may write results of the run meanwhile
    (``harness.stages.analysis.exclusive``).

    Args:
        run_dir: the run.
    """
    for left in run_dir.glob(f"{_PREFIX}*"):  # left by an analysis that was killed
        _settle(run_dir, left)
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=run_dir))
    made, old = scratch / "new", scratch / "old"
    try:
        made.mkdir()
        yield made
        old.mkdir()
        _move(RESULTS, run_dir, old)
        made.rename(_ready(scratch))
        _move(reversed(RESULTS), _ready(scratch), run_dir)
    finally:
        _settle(run_dir, scratch)
        shutil.rmtree(scratch, ignore_errors=True)


def _settle(run_dir: Path, scratch: Path) -> None:
    """Finish a replacement if all old results had been moved away; otherwise put them back."""
    if _ready(scratch).is_dir():
        _move(reversed(RESULTS), _ready(scratch), run_dir)
    elif (scratch / "old").is_dir():
        _move(reversed(RESULTS), scratch / "old", run_dir)


def _ready(scratch: Path) -> Path:
    """Return the folder of the new results while they take their place."""
    return scratch / "ready"


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    """Rename the results that exist, unless the target has them: then these are of another analysis."""
    for name in names:
        if (source / name).exists() and not (target / name).exists():
            (source / name).rename(target / name)
