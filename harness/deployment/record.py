"""What a run in progress is called where it runs, for those who look at it from outside."""

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
    """Keep it in the run directory; it is there whole or not at all."""
    unfinished = run_dir / f"{RECORD}.part"
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    unfinished.replace(run_dir / RECORD)


def read_record(run_dir: Path) -> Record:
    """What ``write_record`` kept.

    Raises:
        ExperimentError: it is not there: the run has not got so far.
    """
    path = run_dir / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except OSError as error:
        raise ExperimentError(str(path), error.strerror or str(error)) from None
    except msgspec.MsgspecError as error:
        raise ExperimentError(str(path), str(error)) from None
