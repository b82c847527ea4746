"""The run directory's documents as types.

The running stage writes ``manifest.json`` with these types, the analysis reads it and writes ``summary.json``.
``docs/results.md`` explains every file to users. This module imports neither Spark nor Arrow, so that the running
stage may use it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

VALID, SUSPECT, INVALID = "valid", "suspect", "invalid"


class Phase(Struct, frozen=True):
    """A stretch of the running stage, in ns of CLOCK_MONOTONIC.

    Names: boot, probe_before, warmup, workload, cooldown, stop, probe_after.
    """

    name: str
    start_ns: int
    end_ns: int


class FinalState(Struct, frozen=True):
    """How a process ended. ``state``: exited, signalled, running, missing."""

    process: str
    expected: str
    state: str
    status: int | None = None
    at_ns: int | None = None
    detail: str = ""


class Manifest(Struct, frozen=True):
    """``manifest.json``. Its presence means: the running stage came to its end.

    ``problems`` are the running stage's own findings, one sentence each; any of them keeps the run from being valid:
    each is (severity, text) with severity ``invalid`` or ``suspect``.
    """

    run_id: str
    testbed: str
    epoch_offset_ns: int
    zero_ns: int
    phases: tuple[Phase, ...]
    final_states: tuple[FinalState, ...]
    counters: dict[str, int]
    versions: dict[str, str]
    kernel: dict[str, str]
    hashes: dict[str, str]
    problems: tuple[tuple[str, str], ...] = ()
    capture_files: tuple[str, ...] = ()
    resources: dict[str, float] = field(default_factory=dict)


class Check(Struct, frozen=True):
    """A row of the ``checks`` table: one invariant over the run.

    ``severity`` is what a failure makes of the run (``invalid`` or ``suspect``). ``worst`` and ``tolerance`` are in
    ``unit``. A check that could not be made has ``tested`` 0 and says why in ``detail``.
    """

    name: str
    tested: int
    failed: int
    worst: float
    tolerance: float
    unit: str
    severity: str
    detail: str = ""


class Summary(Struct, frozen=True):
    """``summary.json``. ``reasons`` is empty when the verdict is ``valid``."""

    verdict: str
    reasons: tuple[str, ...]
    headline: dict[str, Any]
    checks: tuple[Check, ...]
    run_id: str
    name: str
    seed: int
    protocol: str
