"""The work folder of an emulated run, in the run directory, until its files are collected."""

from __future__ import annotations

import shutil
from pathlib import Path

WORK_FOLDER = ".work"

_PEERS_FILES = ("*/trace/*", "*/logs/*", "*/record/*", "*/exits.jsonl")
"""The files of a run that are collected (``deployment.agents.files_of``)."""


def remove_work_folder(run_dir: Path) -> None:
    """Remove the folder, unless it has files of peers that were not collected."""
    folder = run_dir / WORK_FOLDER
    if not any(True for pattern in _PEERS_FILES for _ in folder.glob(pattern)):
        shutil.rmtree(folder, ignore_errors=True)
