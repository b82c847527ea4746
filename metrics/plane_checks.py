"""The data plane's part of the certificate: was it in time, and was it there? docs/verdict.md has the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from metrics.dataplane import Burst, Span, busy_spans, merge_counts, quantile_ns, spans
from metrics.rundir import INVALID, SUSPECT, Check, RunDir
from metrics.stalls import Bools, Ints, blame

PLANE_BUSY_RATIO = 0.95

STALL_MS = 100.0
"""The latest that any frame may be. Crowded machines were seen to hold the plane for 80 ms."""

SILENCE_S = 2.0
"""The data plane writes a line a second; a longer gap means that it did not run."""

_OVERSTATED = 2**0.25
"""By which a histogram's largest value may exceed the real one."""


def check_plane(run: RunDir) -> list[Check]:
    """Every check of the data plane's own record."""
    found = spans(run.lines("dataplane.jsonl"))
    judged = [span for span in found if _is_judged(run, span.at_ns)]
    checks = [_lateness(run, judged), _intake(run, judged), _stalls(run, judged)]
    return [*checks, *_presence(run), _plane_busy(run, found)]


def _is_judged(run: RunDir, at_ns: int) -> bool:
    """Whether a line of the data plane written at ``at_ns`` speaks of the span in which hosts are judged."""
    start_ns, end_ns = run.judged_ns
    return start_ns < at_ns <= end_ns


def _lateness(run: RunDir, judged: list[Span]) -> Check:
    """The 99th percentile over all frames, however late ones are spread over the time (docs/adr/0014)."""
    limit = float(run.experiment["verdict"]["lateness_p99_ms"])
    histograms = [span.lateness_counts for span in judged if span.lateness_counts is not None]
    uncounted = len(judged) - len(histograms)
    counts = merge_counts(histograms)
    total = sum(count for _, count in counts)
    p99 = quantile_ns(counts, 0.99) / 1e6
    detail = f"the data plane's lateness over {total:,} frames: p99 {p99:.3g} ms"
    if uncounted:
        detail += f"; {uncounted} of {len(judged)} seconds have no counts"
    failed = int(bool(uncounted) or p99 > limit)
    check = Check("plane_lateness", total, failed, p99, limit, "ms", INVALID, detail)
    if uncounted:
        return check
    late = sum(span.counts.get("frames_late", 0) for span in judged)
    return blame(
        check, late, _explained(run, [burst for span in judged for burst in span.late]), total // 100, "frames"
    )


def _intake(run: RunDir, judged: list[Span]) -> Check:
    """The 99th percentile of the longest that frames may have waited in their devices before they were read.

    What a frame waits there is in no other measure of the data plane: every due time counts from the read. So it has
    the limit of the lateness, which it adds to.
    """
    limit = float(run.experiment["verdict"]["lateness_p99_ms"])
    histograms = [span.intake_counts for span in judged if span.intake_counts is not None]
    uncounted = len(judged) - len(histograms)
    if not histograms:
        detail = "the data plane has no counts of frames' waits before they were read"
        return Check("plane_intake", 0, 1, 0.0, limit, "ms", INVALID, detail)
    counts = merge_counts(histograms)
    total = sum(count for _, count in counts)
    p99, largest = quantile_ns(counts, 0.99) / 1e6, max((bound_ns for bound_ns, _ in counts), default=0) / 1e6
    detail = f"{total:,} frames waited to be read by the data plane: p99 at most {p99:.3g} ms, all {largest:.3g} ms"
    if uncounted:
        detail += f"; {uncounted} of {len(judged)} seconds have no counts"
    failed = int(bool(uncounted) or p99 > limit)
    check = Check("plane_intake", total, failed, p99, limit, "ms", INVALID, detail)
    if uncounted:
        return check
    late = sum(span.counts.get("frames_waited", 0) for span in judged)
    return blame(
        check, late, _explained(run, [burst for span in judged for burst in span.waits]), total // 100, "frames"
    )


def _explained(run: RunDir, bursts: Sequence[Burst]) -> int:
    """How many of the frames that were late in bursts stalls of the host explain.

    A burst is explained as a whole: if so much of it is covered by stalls that the rest is within the limit, then the
    same is true of every frame in it. The others are not counted, nor frames of bursts that were not kept.
    """
    due_ns, came_ns, frames = np.array(bursts, np.int64).reshape(-1, 3).T
    limit_ns = round(float(run.experiment["verdict"]["lateness_p99_ms"]) * 1e6)
    return int(frames[run.stalls.excuse(due_ns, came_ns, limit_ns)].sum())


def _stalls(run: RunDir, judged: list[Span]) -> Check:
    """A plane that stood still: few frames are late then, so the 99th percentile of a busy second may not show it."""
    late = [(span.lateness_ns["max"] / 1e6, span.at_ns) for span in judged if "max" in span.lateness_ns]
    worst, at_ns = max(late, default=(0.0, run.manifest.zero_ns))
    failed = [span for span in judged if span.lateness_ns.get("max", 0) / 1e6 > STALL_MS]
    second = (at_ns - run.manifest.zero_ns) / 1e9
    detail = f"the data plane's latest frame was {worst:.3g} ms late, at {second:.0f} s"
    check = Check("plane_stalls", len(late), len(failed), worst, STALL_MS, "ms", SUSPECT, detail)
    return blame(check, len(failed), sum(_stall_is_explained(run, span) for span in failed), 0, "seconds")


def _stall_is_explained(run: RunDir, span: Span) -> bool:
    """Whether stalls of the host explain all frames of a line that were later than ``STALL_MS``."""
    limit_ns = round(STALL_MS * 1e6)
    due_ns, came_ns, _ = np.array(span.late, np.int64).reshape(-1, 3).T
    late_ns: Ints = came_ns - due_ns
    if late_ns.max(initial=0) < span.lateness_ns["max"] / _OVERSTATED - 1:
        return False  # the burst of the latest was not kept
    unexplained: Bools = (late_ns > limit_ns) & ~run.stalls.excuse(due_ns, came_ns, limit_ns)
    return not unexplained.any()


def _presence(run: RunDir) -> list[Check]:
    """Whether the data plane reported throughout the workload."""
    workload = run.phase("workload")
    if workload is None:
        return []
    lines = [line["at_ns"] for line in run.lines("dataplane.jsonl")]
    inside = [at for at in lines if workload.start_ns < at < workload.end_ns]
    gaps_ns = np.array(list(pairwise([workload.start_ns, *inside, workload.end_ns])), np.int64)
    gap_s = float(np.diff(gaps_ns).max()) / 1e9
    detail = f"longest time without a line of the data plane: {gap_s:.1f} s"
    check = Check("plane_present", len(inside), int(gap_s > SILENCE_S), gap_s, SILENCE_S, "s", INVALID, detail)
    late, explained = run.stalls.tally(gaps_ns[:, 0], gaps_ns[:, 1], round(SILENCE_S * 1e9))
    return [blame(check, late, explained, 0, "lines")]


def _plane_busy(run: RunDir, found: list[Span]) -> Check:
    """No stall of the host explains this: at nearly full load the kernel itself holds real-time processes back."""
    busy = [ratio for at_ns, ratio in busy_spans(found) if _is_judged(run, at_ns)]
    failed = sum(1 for value in busy if value > PLANE_BUSY_RATIO)
    return Check("plane_busy", len(busy), failed, max(busy, default=0.0), PLANE_BUSY_RATIO, "ratio", SUSPECT)
