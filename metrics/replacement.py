"""Results of an analysis replace older ones as a whole: whoever looks finds the old ones, the new ones or none."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = ".analysis-"


@contextmanager
def replacing(run_dir: Path, name: str, outdated: tuple[str, ...] = ()) -> Iterator[Path]:
    """An empty folder that becomes ``run_dir / name`` when the block ends well; otherwise all stays as it was.

    Nothing else may write results of the run meanwhile (``harness.stages.analysis.exclusive``).

    Args:
        run_dir: the run.
        name: the folder to replace.
        outdated: files and folders made from the old one: they are removed before it is replaced.
    """
    for left in run_dir.glob(f"{_PREFIX}*"):  # of an analysis that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=run_dir) as scratch:
        made, old = Path(scratch) / "new", Path(scratch) / "old"
        made.mkdir()
        yield made
        old.mkdir()
        for each in (*outdated, name):
            if (run_dir / each).exists():
                (run_dir / each).rename(old / each)
        made.rename(run_dir / name)
