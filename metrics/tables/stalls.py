"""The ``stalls`` table: when the machine's processors, or the data plane, stood still."""

from __future__ import annotations

from typing import Any

from metrics.rundata import STALLS_FILE, RunDir


def build_stalls(run: RunDir) -> list[dict[str, Any]]:
    """The table's rows, a stall each, in the order of their beginnings."""
    lines = sorted(run.lines(STALLS_FILE), key=lambda line: (line["start_ns"], line["end_ns"]))
    return [line | {"phase": _phase(run, line["start_ns"])} for line in lines]


def _phase(run: RunDir, at_ns: int) -> str | None:
    """The phase of the running stage that an instant lies in, None between two."""
    return next((phase.name for phase in run.manifest.phases if phase.start_ns <= at_ns < phase.end_ns), None)
