"""The run directory, the only interface between running and analysing (docs/results.md): harness writes, metrics reads.

``files`` names its files, ``reading`` has the rules for missing and damaged ones, ``documents`` are their types and the
schema version, ``timeline`` the instants of a run, ``parquet`` the version in Parquet files. Only the last needs Arrow.
"""

from metrics.rundir.documents import (
    INVALID,
    SCHEMA_VERSION,
    SUSPECT,
    VALID,
    Attempt,
    Check,
    ClockOffset,
    FinalState,
    Manifest,
    Placement,
    Stall,
    Summary,
)
from metrics.rundir.reading import RunDirError, read_document, read_lines, require_run_dir, write_document
from metrics.rundir.run import RunDir, read_clocks
from metrics.rundir.timeline import Phase, Timeline

__all__ = [
    "INVALID",
    "SCHEMA_VERSION",
    "SUSPECT",
    "VALID",
    "Attempt",
    "Check",
    "ClockOffset",
    "FinalState",
    "Manifest",
    "Phase",
    "Placement",
    "RunDir",
    "RunDirError",
    "Stall",
    "Summary",
    "Timeline",
    "read_clocks",
    "read_document",
    "read_lines",
    "require_run_dir",
    "write_document",
]
