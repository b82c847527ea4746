"""Checks that a run directory holds only its own folders and regular files. Anybody may have made it.

A symbolic link in it would let its maker choose which files of the reader are read, uploaded, served or overwritten. A
named pipe or a device is a file without an end. So each command that reads a run looks at every name first, and no
other code has to.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metrics.rundir.files import (
    CAPTURE_FOLDER,
    CHANGES_FILE,
    MANIFEST_FILE,
    PLAN_FILE,
    PROMETHEUS_FOLDER,
    REPORT_FOLDER,
    SUMMARY_FILE,
    TABLES_FOLDER,
    UNDERLAY_FILE,
    WORK_FOLDER,
)
from peer.files import (
    LOGS_FOLDER,
    OUTPUT_FOLDER,
    OVERLAY_FILE,
    RECORD_FOLDER,
    SCHEDULE_FILE,
    SCRIPT_FILE,
    TRACE_FOLDER,
)

_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
}

_OF_FILES: Final = (TRACE_FOLDER, CAPTURE_FOLDER, RECORD_FOLDER, OUTPUT_FOLDER)
_FOLDERS: Final = (*_OF_FILES, LOGS_FOLDER, TABLES_FOLDER, REPORT_FOLDER, PROMETHEUS_FOLDER)
_DOCUMENTS: Final = (PLAN_FILE, UNDERLAY_FILE, OVERLAY_FILE, SCHEDULE_FILE, SCRIPT_FILE, CHANGES_FILE)
_FILES: Final = (*_DOCUMENTS, MANIFEST_FILE, SUMMARY_FILE)


def find_foreign(run_dir: Path) -> str | None:
    """Return what a run directory should not hold, as a clause that names it; None if there is no such thing.

    The folder in which agents work during a run is not searched: no command reads it.
    """
    for entry, name in _walk(run_dir, ""):
        kind = _kind(entry)
        if kind not in (stat.S_IFDIR, stat.S_IFREG):
            return f"{_shown(name)} is {_KINDS.get(kind, 'neither a file nor a folder')}"
        if (wanted := _wanted(name)) and wanted != kind:
            return f"{_shown(name)} is {_KINDS[kind]}, expected {_KINDS[wanted]}"
    return None


def _shown(name: str) -> str:
    """Return a name on one line."""
    return name if name.isprintable() else repr(name)


def _wanted(name: str) -> int | None:
    """Return what a name must be; None = it may be a folder or a file."""
    folder, _, inner = name.rpartition("/")
    if name in _FOLDERS:
        return stat.S_IFDIR
    return stat.S_IFREG if name in _FILES or (folder in _OF_FILES and inner) else None


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    try:
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:  # it was removed meanwhile, as files of a running run may be
        return stat.S_IFREG


def _walk(folder: Path, prefix: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield every entry below a folder, with its path from there; entries that are removed meanwhile are left out."""
    waiting = [(os.fspath(folder), prefix)]
    while waiting:
        path, prefix = waiting.pop()
        try:
            with os.scandir(path) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False) and name != WORK_FOLDER:
                waiting.append((entry.path, f"{name}/"))
            yield entry, name
