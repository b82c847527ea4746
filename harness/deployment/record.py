"""What a run in progress is called where it runs, for those who look at it from outside."""

from __future__ import annotations

from pathlib import Path

import msgspec

from metrics.rundir import read_document, write_document
from metrics.rundir.files import DEPLOYMENT_FILE


class Record(msgspec.Struct, frozen=True):
    """``deployment.json``: the run's ``folder`` below every machine's work folder, and where ``prometheus`` listens."""

    folder: str
    prometheus: str | None = None


def write_record(record: Record, run_dir: Path) -> None:
    """Keep it in the run directory."""
    write_document(run_dir / DEPLOYMENT_FILE, record)


def read_record(run_dir: Path) -> Record:
    """What ``write_record`` kept.

    Raises:
        RunDirError: it is not there: the run has not got so far.
    """
    return read_document(run_dir / DEPLOYMENT_FILE, msgspec.json.Decoder(Record).decode)
