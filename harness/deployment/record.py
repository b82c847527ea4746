"""The record of a run in progress, for programs that watch it from outside."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.errors import ExperimentError

RECORD = "deployment.json"


class Record(msgspec.Struct, frozen=True):
    """``deployment.json``: the run's ``folder`` below every machine's work folder, and where ``prometheus`` listens."""

    folder: str
    prometheus: str | None = None


def write_record(record: Record, run_dir: Path) -> None:
    """Write the record into the run directory. The file appears whole or not at all."""
    unfinished = run_dir / f"{RECORD}.part"
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    unfinished.replace(run_dir / RECORD)


def read_record(run_dir: Path) -> Record:
    """Return the record that ``write_record`` wrote.

    Raises:
        ExperimentError: there is no record yet.
    """
    path = run_dir / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except OSError as error:
        raise ExperimentError(str(path), error.strerror or str(error)) from None
    except msgspec.MsgspecError as error:
        raise ExperimentError(str(path), str(error)) from None
