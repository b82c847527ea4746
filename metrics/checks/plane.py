"""Was the data plane in time, and was it there?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from metrics.checks.documents import PlaneRecord, VerdictLimits
from metrics.checks.rule import Judgement, Limit, Samples, allowed_beyond, at_most, each_at_most, rule
from metrics.dataplane import Burst, Span, busy_spans, merge_counts, quantile_ns
from metrics.rundata import INVALID, SUSPECT
from metrics.stalls import Bools, Ints, Late, Stalls

PLANE_BUSY = Limit(0.95, "ratio")

STALL = Limit(100.0, "ms")
"""The latest that any frame may be. Crowded machines were seen to hold the plane for 80 ms."""

SILENCE = Limit(2.0, "s")

_OVERSTATED = 2**0.25
"""By which a histogram's largest value may exceed the real one."""

_FRAMES = Samples(
    "frames",
    "a frame",
    "of the frames that were late in one burst, the first one's due instant and the last one's; bursts that the data "
    "plane could not keep (1,024 a line) are not explained",
)


@rule(
    "from the workload's begin to the peers' end, the 99th percentile of the data plane's lateness over all frames "
    "exceeds `verdict.lateness_p99_ms` ([why not by the second](adr/0014-lateness-is-judged-over-the-run.md))",
    INVALID,
    "certificate",
    samples=_FRAMES,
)
def plane_lateness(plane: PlaneRecord, limits: VerdictLimits, stalls: Stalls) -> Judgement:
    """A frame that is written late has a delay that was not asked for."""
    return _judge_frames(
        "the data plane's lateness over {frames:,} frames: p99 {p99_ms:.3g} ms",
        Limit(limits.lateness_p99_ms, "ms"),
        [span.lateness_counts for span in plane.judged],
        sum(span.counts.get("frames_late", 0) for span in plane.judged),
        [burst for span in plane.judged for burst in span.late],
        stalls,
    )


@rule(
    "over the same span, the 99th percentile of the longest that frames may have waited in their hosts' devices before "
    "the data plane read them exceeds `verdict.lateness_p99_ms`. It is [an upper bound](dataplane.md#before-the-read), "
    "counted frame by frame, but for a frame that came while the loop slept: of its wait up to 1.2 ms may be unseen. A "
    "record without counts, or with seconds that have none, fails",
    INVALID,
    "certificate",
    samples=_FRAMES,
)
def plane_intake(plane: PlaneRecord, limits: VerdictLimits, stalls: Stalls) -> Judgement:
    """No other measure of the data plane sees this wait, since every due time counts from the read.

    A delivery suffers from it as from lateness: hence the same limit.
    """
    limit, histograms = Limit(limits.lateness_p99_ms, "ms"), [span.intake_counts for span in plane.judged]
    if all(counts is None for counts in histograms):
        return Judgement(0, 1, 0.0, limit, "the data plane has no counts of frames' waits before they were read")
    return _judge_frames(
        "{frames:,} frames waited to be read by the data plane: p99 at most {p99_ms:.3g} ms, all {largest_ms:.3g} ms",
        limit,
        histograms,
        sum(span.counts.get("frames_waited", 0) for span in plane.judged),
        [burst for span in plane.judged for burst in span.waits],
        stalls,
    )


def _judge_frames(
    detail: str,
    limit: Limit,
    histograms: Sequence[list[tuple[int, int]] | None],
    late: int,
    bursts: Sequence[Burst],
    stalls: Stalls,
) -> Judgement:
    """Judge the 99th percentile over all frames, however late ones are spread over the time (docs/adr/0014).

    Args:
        detail: has ``frames``, ``p99_ms`` and ``largest_ms``.
        limit: of the percentile.
        histograms: of every second; one that was not counted fails the check.
        late: frames beyond the limit.
        bursts: those in which they were late, as many as were kept.
        stalls: those of the run.
    """
    known = [counts for counts in histograms if counts is not None]
    counts = merge_counts(known)
    frames, p99_ms = sum(count for _, count in counts), quantile_ns(counts, 0.99) / 1e6
    largest_ms = max((bound_ns for bound_ns, _ in counts), default=0) / 1e6
    detail = detail.format(frames=frames, p99_ms=p99_ms, largest_ms=largest_ms)
    uncounted = len(histograms) - len(known)
    if uncounted:
        detail += f"; {uncounted} of {len(histograms)} seconds have no counts"
        return Judgement(frames, 1, p99_ms, limit, detail)
    explained = _count_explained(bursts, limit, stalls)
    return at_most(limit, p99_ms, frames, detail, Late(late, explained), allowed_beyond(frames))


def _count_explained(bursts: Sequence[Burst], limit: Limit, stalls: Stalls) -> int:
    """How many of the frames that were late in bursts stalls of the host explain.

    A burst is explained as a whole: if so much of it is covered by stalls that the rest is within the limit, then the
    same is true of every frame in it. The others are not counted, nor frames of bursts that were not kept.
    """
    due_ns, came_ns, frames = _columns(bursts)
    return int(frames[stalls.excuse(due_ns, came_ns, limit.ns)].sum())


def _columns(bursts: Iterable[Burst]) -> tuple[Ints, Ints, Ints]:
    due_ns, came_ns, frames = np.array(list(bursts), np.int64).reshape(-1, 3).T
    return due_ns, came_ns, frames


@rule(
    "by some line of `dataplane.jsonl` a frame left the data plane more than {0} late",
    SUSPECT,
    "certificate",
    limits=(STALL,),
    samples=Samples("seconds", "a line", "as above, all frames of the line that were later than the limit"),
)
def plane_stalls(plane: PlaneRecord, stalls: Stalls) -> Judgement:
    """It stood still. Few frames are late then, so that the percentile may not show it."""
    spans = [span for span in plane.judged if "max" in span.lateness_ns]
    late_ms = [span.lateness_ns["max"] / 1e6 for span in spans]
    worst_ms, at_ns = max(zip(late_ms, (span.at_ns for span in spans), strict=True), default=(0.0, plane.zero_ns))
    second = (at_ns - plane.zero_ns) / 1e9
    detail = f"the data plane's latest frame was {worst_ms:.3g} ms late, at {second:.0f} s"
    late = [span for span, lateness_ms in zip(spans, late_ms, strict=True) if lateness_ms > STALL.value]
    explained = sum(_stall_is_explained(span, stalls) for span in late)
    return each_at_most(STALL, late_ms, detail, Late(len(late), explained))


def _stall_is_explained(span: Span, stalls: Stalls) -> bool:
    """Whether stalls of the host explain all frames of a line that were later than ``STALL``."""
    due_ns, came_ns, _ = _columns(span.late)
    late_ns: Ints = came_ns - due_ns
    if late_ns.max(initial=0) < span.lateness_ns["max"] / _OVERSTATED - 1:
        return False  # the burst of the latest was not kept
    unexplained: Bools = (late_ns > STALL.ns) & ~stalls.excuse(due_ns, came_ns, STALL.ns)
    return not unexplained.any()


@rule(
    "the data plane was silent for over {0} of the workload",
    INVALID,
    "certificate",
    limits=(SILENCE,),
    samples=Samples("lines", "two lines", "their instants"),
)
def plane_present(plane: PlaneRecord, stalls: Stalls) -> Judgement | None:
    """It writes a line a second: a longer gap means that it did not run."""
    workload = plane.workload
    if workload is None:
        return None
    inside = [span.at_ns for span in plane.spans if workload.start_ns < span.at_ns < workload.end_ns]
    gaps_ns = np.array(list(pairwise([workload.start_ns, *inside, workload.end_ns])), np.int64)
    gap_s = float(np.diff(gaps_ns).max()) / 1e9
    detail = f"longest time without a line of the data plane: {gap_s:.1f} s"
    return at_most(SILENCE, gap_s, len(inside), detail, stalls.tally(gaps_ns[:, 0], gaps_ns[:, 1], SILENCE.ns))


@rule(
    "the data plane uses more than {0} of a core over any line of `dataplane.jsonl`; lines that cover less than half a "
    "second are judged together with the next",
    SUSPECT,
    "overload",
    limits=(PLANE_BUSY,),
)
def plane_busy(plane: PlaneRecord) -> Judgement:
    """The data plane is one process: near saturation its lateness grows without bound.

    No stall of the host explains this: at nearly full load the kernel itself holds real-time processes back.
    """
    return each_at_most(PLANE_BUSY, [ratio for at_ns, ratio in busy_spans(plane.spans) if plane.is_judged(at_ns)])
