"""The work folder of an emulated run, in the run directory, until its files are collected."""

import shutil
from pathlib import Path

from metrics.rundir.files import WORK_FOLDER
from peer.files import EXITS_FILE, LOGS_FOLDER, RECORD_FOLDER, TRACE_FOLDER, ends_file

_PEERS_FILES = (
    *(f"*/{folder}/*" for folder in (TRACE_FOLDER, LOGS_FOLDER, RECORD_FOLDER)),
    *(f"*/{file}" for file in (EXITS_FILE, ends_file("*"))),
)
"""The files of a run that are collected (``deployment.agents.files_of``)."""


def remove_work_folder(run_dir: Path) -> None:
    """Remove the folder, unless it has files of peers that were not collected."""
    folder = run_dir / WORK_FOLDER
    if not any(True for pattern in _PEERS_FILES for _ in folder.glob(pattern)):
        shutil.rmtree(folder, ignore_errors=True)
