"""The run directory's documents, under the harness's name: one definition, which the analysis shares."""

from metrics.rundata import (
    CLOCKS_FILE,
    STALLS_FILE,
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
    "CLOCKS_FILE",
    "STALLS_FILE",
    "Check",
    "ClockOffset",
    "FinalState",
    "Manifest",
    "Phase",
    "Stall",
    "Summary",
    "read_clocks",
]
