"""Copies of runs: to a store, from it, or between two places."""

from pathlib import Path
from typing import Final

from metrics.rundir import RunDir, RunDirError, require_run_dir
from metrics.rundir.files import ANALYSES_FOLDER, MANIFEST_FILE, PLAN_FILE, POINTER_FILE, RESULTS
from metrics.storage import Place
from metrics.storage.copies import copy_files, files_below

_LEFT_OUT: Final = (ANALYSES_FOLDER, POINTER_FILE)


def copy_run(source: Place, target: Place) -> int:
    """Copy a run with its results, if it was analysed. Hidden files at its top (locks, work folders) stay.

    The manifest is copied last, so that a copy that is not complete is a run that did not finish.

    Args:
        source: the run.
        target: where it is to be: a place in a store, or a folder of this machine that is new or empty.

    Returns:
        The number of files.

    Raises:
        RunDirError: there is no run at ``source``, or ``target`` is not empty; or the source has links: a copy would
            have the content of the linked files.
        StoreError: the store cannot be used, or a name in it leads out of the run.
        OSError: the source cannot be read or the target cannot be written.
    """
    require_run_dir(source)
    if (target / PLAN_FILE).exists():
        raise RunDirError(target, "there is a run already; name another directory")
    if isinstance(target, Path) and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunDirError(target, "expected a new or empty directory")
    results = RunDir(source).results
    files = {name: path for name, path in files_below(source).items() if _top(name) not in _LEFT_OUT}
    files = {name: path for name, path in files.items() if not name.startswith(".")}
    if results != source:
        files = {name: path for name, path in files.items() if _top(name) not in RESULTS}
        files |= {name: path for name, path in files_below(results).items() if _top(name) in RESULTS}
    manifest = {MANIFEST_FILE: files.pop(MANIFEST_FILE)} if MANIFEST_FILE in files else {}
    copy_files(files, target)
    copy_files(manifest, target)
    return len(files) + len(manifest)


def _top(name: str) -> str:
    return name.partition("/")[0]
