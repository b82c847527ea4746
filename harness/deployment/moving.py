"""Bringing home what a machine left in a folder that this computer sees: by renaming, whatever the amount."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path


def move_files(folder: Path, names: Mapping[str, str], destination: Path) -> None:
    """Move files, and the files of folders, as far as they exist.

    Only regular files: peers wrote what is there, and a link would have later readers look elsewhere.

    Args:
        folder: where they are; on the file system of ``destination``.
        names: each one's name in ``folder``, and its name in ``destination``.
        destination: gets them; what is there of the same name is replaced.

    Raises:
        OSError: a file could not be moved.
    """
    destination.mkdir(parents=True, exist_ok=True)
    for name, new_name in names.items():
        source, target = folder / name, destination / new_name
        if _is_folder(source):
            target.mkdir(exist_ok=True)
            for file in source.iterdir():
                _move(file, target / file.name)
        else:
            _move(source, target)


def _move(file: Path, target: Path) -> None:
    try:
        regular = stat.S_ISREG(file.lstat().st_mode)
    except FileNotFoundError:
        return
    if regular:
        file.replace(target)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
