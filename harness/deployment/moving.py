"""Bringing home what a machine left in a folder that this computer sees: by renaming, whatever the amount."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def move_files(folder: Path, names: Mapping[str, str], destination: Path) -> None:
    """Move files, as far as they exist.

    Only regular files in real folders: peers wrote what is there, and a link would have later readers look elsewhere.

    Args:
        folder: where they are; on the file system of ``destination``.
        names: each one's path in ``folder``, and its path in ``destination``.
        destination: gets them; what is there of the same name is replaced.

    Raises:
        OSError: a file could not be moved.
    """
    for name, new_name in names.items():
        source, target = folder / name, destination / new_name
        if source.is_file() and not (source.is_symlink() or source.parent.is_symlink()):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
