"""Collects files from a work folder on this computer's file system by renaming them, however large they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def move_files(folder: Path, names: Mapping[str, str], destination: Path) -> None:
    """Move the files that exist.

    It moves only regular files in real folders: peers write the folder, and a link could lead readers elsewhere.

    Args:
        folder: the folder of the files, on the file system of ``destination``.
        names: path in ``folder`` -> path in ``destination``.
        destination: the new folder; files with the same names are replaced.

    Raises:
        OSError: a file could not be moved.
    """
    for name, new_name in names.items():
        source, target = folder / name, destination / new_name
        if source.is_file() and not (source.is_symlink() or source.parent.is_symlink()):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
