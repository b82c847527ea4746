"""The ``stalls`` table: when the machine's processors, or the data plane, stood still."""

from __future__ import annotations

from typing import Any

from metrics.rundir import RunDir
from metrics.rundir.files import STALLS_FILE


def build_stalls(run: RunDir) -> list[dict[str, Any]]:
    """The table's rows, a stall each, in the order of their beginnings."""
    lines = sorted(run.lines(STALLS_FILE), key=lambda line: (line["start_ns"], line["end_ns"]))
    return [line | {"phase": run.timeline.phase_at(line["start_ns"])} for line in lines]
