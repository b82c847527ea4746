"""The fidelity certificate: was the emulated network what was asked for, and was the machine fast enough for it?

Every limit that an experiment file does not set is a constant here; docs/verdict.md has the reasons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.checks import JITTER_SIGMAS, Evidence
from metrics.first_packets import check_first_packets
from metrics.plane_checks import check_plane
from metrics.probing import QUANTILES, explained, last_attempts, limits_ms, read_achieved, repeats
from metrics.rundir import INVALID, SUSPECT, Check, RunDir
from metrics.stalls import Stalls, blame, read_stalls

PROBES_LOST_RATIO = 0.001
PUBLISH_LAG_P99_MS = 20.0
RECEIVE_P99_MS = 10.0
SEND_P50_MS = 5.0
CPU_BUSY_RATIO = 0.95
"""Not higher: where processors are kept awake, whatever keeps them awake still gets 2 to 4 % of a saturated one."""

STEAL_RATIO = 0.10
BUSY_SECONDS_RATIO = 0.10
"""Share of the workload's seconds that may be above CPU_BUSY_RATIO or STEAL_RATIO."""

PRESSURE_SILENCE_S = 3.0
"""How long before the judged span's end the last line of ``pressure.jsonl`` may be, which has one a virtual second."""


def check_certificate(run: RunDir, evidence: Evidence, seconds: list[dict[str, Any]]) -> list[Check]:
    """Every check of the emulation itself.

    Args:
        run: the run directory.
        evidence: numbers over the tables.
        seconds: rows of the ``fidelity`` table.
    """
    working = [row for row in seconds if _is_workload(run, row["at_ns"])]
    checks = [publish_lag(evidence)]
    if run.manifest.testbed == "emulated":
        checks += [*_probes(run), *check_plane(run), _throttled(run)]
    if run.clocks:
        checks.append(_clocks(evidence))
    if evidence.captured:
        checks += [receive_delay(evidence), _send(evidence)]
    if any(row["cpu_busy_ratio"] is not None for row in working):
        checks += [_share(working, "cpu_busy_ratio", CPU_BUSY_RATIO), _share(working, "steal_ratio", STEAL_RATIO)]
    return checks


def _is_workload(run: RunDir, at_ns: int) -> bool:
    """Whether the second that begins at ``at_ns`` lies in the workload or in the time its last messages need."""
    phases = [run.phase("workload"), run.phase("cooldown")]
    return any(phase is not None and phase.start_ns <= at_ns < phase.end_ns for phase in phases)


# ------------------------------------------------------------------------------------------------ probes


def _probes(run: RunDir) -> list[Check]:
    table, stalls = read_achieved(run.path), read_stalls(run.path)
    if table is None:
        return [
            Check("certificate", 1, 1, 1, 0, "", INVALID, "achieved.parquet is missing: no pair of hosts was probed")
        ]
    checks = []
    for phase in ("before", "during", "after"):
        rows = table.filter(pc.equal(table["phase"], phase))
        if rows.num_rows:
            checks += _rtt_errors(run, phase, rows, stalls)
            checks.append(_lost(run, phase, rows))
    return [*checks, *check_first_packets(run.path)]


def _rtt_errors(run: RunDir, phase: str, rows: pa.Table, stalls: Stalls) -> list[Check]:
    """The p-th percentile of error / limit over the pairs, each pair's limit being max(ms, ratio x its asked RTT)."""
    answered = last_attempts(rows)
    answered = answered.filter(pc.is_valid(answered["rtt_ms"]))
    asked = answered["asked_rtt_ms"].to_numpy()
    tolerance = JITTER_SIGMAS * answered["asked_jitter_ms"].to_numpy()
    error = np.maximum(np.abs(answered["rtt_ms"].to_numpy() - asked) - tolerance, 0)
    limits = run.experiment["verdict"]
    checks = []
    for name, quantile in QUANTILES.items():
        limit = limits_ms(asked, name, limits)
        worst = float(np.quantile(error / limit, quantile)) if len(error) else 0.0
        raw = float(np.quantile(error, quantile)) if len(error) else 0.0
        beyond = f", beyond {JITTER_SIGMAS:g} standard deviations of the jitter asked for," if tolerance.any() else ""
        asked_limit = (
            f"max({limits[f'rtt_error_{name}_ms']:g} ms, {limits[f'rtt_error_{name}_ratio']:.2%} of the pair's RTT)"
        )
        detail = f"RTT error{beyond} {name} {raw:.3g} ms over {len(error):,} probes, limit {asked_limit}"
        detail += "".join(f"; {words}" for words in repeats(rows))
        title = f"rtt_error_{name}_{phase}"
        # During the workload the prober itself waits for a processor: not the network's error, but a sign of load.
        severity = SUSPECT if phase == "during" else INVALID
        check = Check(title, len(error), int(worst > 1), worst, 1, "of the limit", severity, detail)
        late, by_stalls = int((error > limit).sum()), int(explained(answered, limit + tolerance, stalls).sum())
        checks.append(blame(check, late, by_stalls, int((1 - quantile) * len(error)), "probes"))
    return checks


def _lost(run: RunDir, phase: str, rows: pa.Table) -> Check:
    sent, received = (pc.sum(rows[name]).as_py() for name in ("sent", "received"))
    lost = sent - received
    if run.underlay.loss_ratio.any():
        asked = 1 - (1 - run.underlay.loss_ratio) * (1 - run.underlay.loss_ratio.T)
        detail = f"{lost:,} of {sent:,} probes lost; loss was asked for (up to {asked.max():.2%} a round trip)"
        return Check(f"probes_returned_{phase}", 0, 0, lost, 0, "probes", SUSPECT, detail)
    ratio = lost / max(sent, 1)
    severity = INVALID if ratio > 10 * PROBES_LOST_RATIO else SUSPECT
    detail = f"{lost:,} of {sent:,} probes did not come back" if lost else ""
    failed = lost if ratio > PROBES_LOST_RATIO else 0
    return Check(f"probes_returned_{phase}", sent, failed, ratio, PROBES_LOST_RATIO, "ratio", severity, detail)


# ------------------------------------------------------------------------------------------------ the machine


def publish_lag(evidence: Evidence) -> Check:
    """Messages are published when they are scheduled."""
    found = evidence.messages
    p99 = found["lag_ms_p99"] or 0.0
    failed = int(p99 > PUBLISH_LAG_P99_MS)
    severity = INVALID if p99 > 10 * PUBLISH_LAG_P99_MS else SUSPECT
    detail = f"publications came later than scheduled: p99 {p99:.3g} ms, latest {found['lag_ms_max'] or 0:.3g} ms"
    tested = found["with_schedule"] or 0
    check = Check("publish_lag", tested, failed, p99, PUBLISH_LAG_P99_MS, "ms", severity, detail)
    return blame(check, found["lag_late"], found["lag_explained"], tested // 100, "publications")


def _clocks(evidence: Evidence) -> Check:
    """Delays between machines whose clocks are only known so well; shorter ones than that say nothing."""
    found, worst_ms = evidence.hops, (evidence.hops["unsure_ns"] or 0) / 1e6
    unresolved = found["unsure_unresolved"]
    detail = f"delays between machines, and latencies, are known to within {worst_ms:.3g} ms by their clocks"
    if unresolved:
        detail += f"; {unresolved:,} of {found['unsure_tested']:,} frames between machines took no longer than that"
    return Check("clocks", found["unsure_tested"], unresolved, worst_ms, 0, "ms", SUSPECT, detail)


def receive_delay(evidence: Evidence) -> Check:
    """From the last byte's arrival at the host to the peer's read: only the machine's load lies in between."""
    p99 = evidence.hops["receive_ms_p99"] or 0.0
    severity = INVALID if p99 > 10 * RECEIVE_P99_MS else SUSPECT
    detail = (
        f"peers read a frame after its arrival: median {evidence.hops['receive_ms_p50'] or 0:.3g} ms, p99 {p99:.3g} ms"
    )
    found, failed = evidence.hops, int(p99 > RECEIVE_P99_MS)
    check = Check("receive_delay", found["frames_sent"] or 0, failed, p99, RECEIVE_P99_MS, "ms", severity, detail)
    return blame(check, found["receive_late"], found["receive_explained"], found["received"] // 100, "frames")


def _send(evidence: Evidence) -> Check:
    """From the peer's write to the first byte on the wire. The tail is TCP's window, so the median is judged."""
    p50, p99 = evidence.hops["send_ms_p50"] or 0.0, evidence.hops["send_ms_p99"] or 0.0
    severity = INVALID if p50 > 10 * SEND_P50_MS else SUSPECT
    detail = f"frames left their host after the peer's write: median {p50:.3g} ms, p99 {p99:.3g} ms"
    return Check(
        "send_delay",
        evidence.hops["frames_sent"] or 0,
        int(p50 > SEND_P50_MS),
        p50,
        SEND_P50_MS,
        "ms",
        severity,
        detail,
    )


def _share(working: list[dict[str, Any]], column: str, limit: float) -> Check:
    values = [row[column] for row in working if row[column] is not None]
    above = sum(1 for value in values if value > limit)
    failed = above if above > BUSY_SECONDS_RATIO * len(values) else 0
    detail = f"{above} of {len(values)} seconds of the workload above {limit:.0%}"
    return Check(
        column.removesuffix("_ratio"), len(values), failed, max(values, default=0.0), limit, "ratio", SUSPECT, detail
    )


def _throttled(run: RunDir) -> Check:
    """A quota of this run's cgroups that was used up: everything stood still for the rest of a period.

    Seconds that the judged span only touches count, too. A record that ends before the span does fails: what came after
    is not known.
    """
    start_ns, end_ns = run.judged_ns
    lines = run.lines("pressure.jsonl")
    begun_ns = [0, *(line["at_ns"] for line in lines[:-1])]
    judged = [
        line for before, line in zip(begun_ns, lines, strict=False) if before < end_ns and line["at_ns"] > start_ns
    ]
    throttled_ms = [line.get("throttled_us", 0) / 1000 for line in judged if line.get("throttled_periods", 0)]
    periods = sum(line.get("throttled_periods", 0) for line in judged)
    detail = (
        f"a processor quota of the run's cgroups was used up in {periods} periods ({sum(throttled_ms):.3g} ms, summed "
        f"over processors), in {len(throttled_ms)} of {len(judged)} seconds"
    )
    silent_s = (end_ns - max((line["at_ns"] for line in lines), default=start_ns)) / 1e9
    failed = periods
    if not lines or silent_s > PRESSURE_SILENCE_S:
        failed += 1
        detail += f"; pressure.jsonl has no line of the last {silent_s:.1f} s before the peers were told to end"
    return Check("throttled", len(judged), failed, max(throttled_ms, default=0.0), 0, "ms", SUSPECT, detail)
