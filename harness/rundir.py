"""The run directory's documents, under the harness's name: one definition, which the analysis shares."""

from metrics.rundata import (
    ATTEMPT_FILE,
    CLOCKS_FILE,
    STALLS_FILE,
    Attempt,
    Check,
    ClockOffset,
    FinalState,
    Manifest,
    Phase,
    Stall,
    Summary,
    read_clocks,
)

__all__ = [
    "ATTEMPT_FILE",
    "CLOCKS_FILE",
    "STALLS_FILE",
    "Attempt",
    "Check",
    "ClockOffset",
    "FinalState",
    "Manifest",
    "Phase",
    "Stall",
    "Summary",
    "read_clocks",
]
