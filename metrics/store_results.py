"""Publish results of a run in a store, where nothing can be renamed: a folder per analysis, and a pointer object.

A reader reads the pointer once (``metrics.rundir.RunDir``) and then finds the results of one analysis as a whole, while
others are made beside them. Two analyses at once do not disturb each other: the pointer of the one that ends last
remains. No lock is needed, and stores have none.

The results to which the pointer pointed before are kept, since somebody may be reading them. The next analysis removes
older results, and results of analyses that were killed, a day after these began.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from metrics.rundir import Pointer, read_pointer, write_document
from metrics.rundir.files import ANALYSES_FOLDER, POINTER_FILE
from metrics.storage import Place, StorePath
from metrics.storage.copies import copy_files, files_below, scratch_folder

KILLED_AFTER: Final = timedelta(days=1)
"""An analysis that began this long ago, and to which nothing points, counts as killed."""

_BEGUN = "%Y%m%dT%H%M%SZ"


@contextmanager
def publishing(run_dir: StorePath, *, directly: bool = False) -> Iterator[Place]:
    """Yield an empty folder for ``RESULTS``, which become the run's when the block ends well, and only then.

    Args:
        run_dir: the run.
        directly: make the folder in the store, for tasks on other machines; otherwise on this machine, from which the
            results are uploaded at the end.
    """
    analysis = f"{datetime.now(UTC):{_BEGUN}}-{uuid4().hex[:8]}"
    target = run_dir / ANALYSES_FOLDER / analysis
    try:
        if directly:
            yield target
        else:
            with tempfile.TemporaryDirectory(prefix="trellis-", dir=scratch_folder()) as folder:
                yield Path(folder)
                copy_files(files_below(Path(folder)), target)
    except BaseException:
        with suppress(OSError):
            target.remove_tree()
        raise
    old = read_pointer(run_dir)
    write_document(run_dir / POINTER_FILE, Pointer(analysis, None if old is None else old.analysis))
    with suppress(OSError):  # a later analysis removes what cannot be removed now
        _remove_old(run_dir, old)


def _remove_old(run_dir: StorePath, old: Pointer | None) -> None:
    """Remove the results to which the pointer before ``old`` pointed, and those of killed analyses."""
    pointers = [pointer for pointer in (read_pointer(run_dir), old) if pointer is not None]
    kept = {pointer.analysis for pointer in pointers}
    replaced = {pointer.before for pointer in pointers}
    for folder in (run_dir / ANALYSES_FOLDER).glob("*"):
        if folder.name not in kept and (folder.name in replaced or is_of_killed(folder.name)):
            folder.remove_tree()


def is_of_killed(analysis: str) -> bool:
    """Return whether an analysis without a pointer began so long ago that it counts as killed; else False."""
    try:
        begun = datetime.strptime(analysis.partition("-")[0], _BEGUN).replace(tzinfo=UTC)
    except ValueError:
        return False
    return datetime.now(UTC) - begun > KILLED_AFTER
