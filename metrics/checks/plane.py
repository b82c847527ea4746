"""Was the data plane in time, and was it there?"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from msgspec import structs

from metrics.checks.evidence import Changes, Emulation
from metrics.checks.rule import Absent, Judgement, Limit, Rules, few_late, share_at_most
from metrics.recorded.dataplane import Burst, PlaneInterval, busy_spans, merge_counts, quantile_ns
from metrics.recorded.stalls import Bools, Ints, Late, Stalls
from metrics.rundir import INVALID, SUSPECT

RULES = Rules()

PLANE_BUSY = Limit(0.95, "ratio")

PLANE_DROPS = Limit(0.0001, "ratio")
"""The share of all frames that may be dropped without being asked for. Ten times as much makes the run invalid."""

ASKED_DROPS = ("loss", "queue", "cut", "cut_in_flight")
"""Causes of drops for which an experiment can ask: the loss of a pair, the full queue of a link, and cuts."""

STALL = Limit(100.0, "ms")
"""The largest lateness that a frame may have. Crowded machines were seen to hold the plane up for 80 ms."""

SILENCE = Limit(2.0, "s")

CHANGE_LATE = Limit(5.0, "ms")

_OVERSTATED = 2**0.25
"""The factor by which a histogram's largest value may exceed the real one."""

_Frames: TypeAlias = tuple[list[tuple[int, int]] | None, int | None, list[Burst]]
"""A line of the data plane: the histogram of the frames, the number of late frames (None: the line does not say), and
the bursts with the late frames."""


def if_measured(judge: Callable[[Emulation], Judgement]) -> Callable[[Emulation], Judgement | Absent]:
    """Let a rule judge only data planes that record how late they are."""

    @wraps(judge)
    def judge_measured(emulation: Emulation) -> Judgement | Absent:
        return judge(emulation) if emulation.unmeasured is None else emulation.unmeasured

    return judge_measured


@RULES.add("certificate", INVALID, things="frames")
@if_measured
def plane_lateness(emulation: Emulation) -> Judgement:
    """Fails if, from the begin of the workload to the end of the peers, more than 1 % of all frames left the data plane
    later than ``verdict.lateness_p99_ms`` ([why not by the second](adr/0014-lateness-is-judged-over-the-run.md)).
    ``worst`` is the 99th percentile, or the upper bound of its bucket. In the line that spans the end, only the late
    frames that were due before the end count.

    A frame that is written late has a delay that was not asked for.

    Late: a frame; of the frames that were late in one burst, the due instant of the first and the due instant of the
    last. Bursts that the data plane could not keep (more than 1,024 per line) are not explained.
    """
    lines = [(span.lateness_counts, span.counts.get("frames_late"), span.late) for span in _judged(emulation)]
    detail = "the data plane's lateness over {frames:,} frames: p99 {p99_ms:.3g} ms"
    return _judge_frames(emulation, lines, detail)


@RULES.add("certificate", INVALID, things="frames")
@if_measured
def plane_intake(emulation: Emulation) -> Judgement:
    """Fails if, over the same span, more than 1 % of all frames may have waited longer than ``verdict.lateness_p99_ms``
    in the devices of their hosts before the data plane read them. The wait of each frame is [an upper
    bound](dataplane.md#before-the-read). Only for frames that came while the loop slept, up to 1.2 ms of the wait may
    be missing in it. A record without counts, or with seconds without counts, fails.

    No other measure of the data plane includes this wait, since every due time counts from the read. The wait delays
    deliveries as lateness does, so the limit is the same.

    Late: a frame; as for ``plane_lateness``.
    """
    lines = [(span.intake_counts, span.counts.get("frames_waited"), span.waits) for span in _judged(emulation)]
    if all(counts is None for counts, _, _ in lines):
        detail = "the data plane has no counts of frames' waits before they were read"
        return Judgement(0, 1, 0.0, Limit(emulation.lateness_p99_ms, "ms"), detail)
    detail = "{frames:,} frames waited to be read by the data plane: p99 at most {p99_ms:.3g} ms, all {max_ms:.3g} ms"
    return _judge_frames(emulation, lines, detail)


def _judged(emulation: Emulation) -> list[PlaneInterval]:
    """Return the lines about the judged span. The line that spans its end has only what was due before the end."""
    end_ns = emulation.judged_ns[1]
    spanning = (span for span in emulation.spans if span.at_ns - span.passed_ns < end_ns < span.at_ns)
    return [
        *(span for span in emulation.spans if _is_judged(emulation, span.at_ns)),
        *(_cut(span, end_ns) for span in spanning),
    ]


def _is_judged(emulation: Emulation, at_ns: int) -> bool:
    """Return whether a line that the data plane wrote at ``at_ns`` is about the judged span alone."""
    start_ns, end_ns = emulation.judged_ns
    return start_ns < at_ns <= end_ns


def _cut(span: PlaneInterval, end_ns: int) -> PlaneInterval:
    """Return a line with only the late frames that were due before an instant, by its bursts.

    It is not known when the other frames were due, so the line loses its histograms. It keeps its drops.
    """
    late, waits = ([burst for burst in bursts if burst[0] < end_ns] for bursts in (span.late, span.waits))
    longest_ns = max((came_ns - due_ns for due_ns, came_ns, _ in late), default=0)
    return structs.replace(
        span,
        counts=span.counts | {"frames_late": _sum_frames(late), "frames_waited": _sum_frames(waits)},
        lateness_ns={name: min(value, longest_ns) for name, value in span.lateness_ns.items()},
        lateness_counts=None if span.lateness_counts is None else [],
        intake_counts=None if span.intake_counts is None else [],
        late=late,
        waits=waits,
    )


def _sum_frames(bursts: Iterable[Burst]) -> int:
    return sum(frames for _, _, frames in bursts)


def _judge_frames(emulation: Emulation, lines: Sequence[_Frames], detail: str) -> Judgement:
    """Judge the 99th percentile over all frames, no matter when the late ones came (docs/adr/0014).

    A burst is explained as a whole: if stalls cover so much of it that the rest is within the limit, the same is true
    of every frame in it. Other bursts do not count as explained, nor do frames of bursts that were not kept.

    Args:
        emulation: has the limit and the stalls.
        lines: the lines of the data plane; a line without a histogram fails the check.
        detail: the text, with places for ``frames``, ``p99_ms`` and ``max_ms``.
    """
    limit, known = Limit(emulation.lateness_p99_ms, "ms"), [counts for counts, _, _ in lines if counts is not None]
    counts = merge_counts(known)
    frames, p99_ms = sum(count for _, count in counts), quantile_ns(counts, 0.99) / 1e6
    max_ms = max((bound_ns for bound_ns, _ in counts), default=0) / 1e6
    detail = detail.format(frames=frames, p99_ms=p99_ms, max_ms=max_ms)
    if len(known) < len(lines):
        detail += f"; {len(lines) - len(known)} of {len(lines)} seconds have no counts"
        return Judgement(frames, 1, p99_ms, limit, detail)
    due_ns, came_ns, sizes = _columns(burst for _, _, bursts in lines for burst in bursts)
    explained = int(sizes[emulation.stalls.excuse(due_ns, came_ns, limit.ns)].sum())
    late = Late(_count_late(lines, counts, limit.ns), explained)
    return few_late(limit, p99_ms, frames, detail, late, frames // 100)


@RULES.add("certificate", SUSPECT, PLANE_DROPS, grave=True)
def plane_drops(emulation: Emulation) -> Judgement:
    """Fails if, over the same span, the data plane dropped a frame for a cause for which no experiment can ask:
    ``overload`` (too many frames held), ``device_full`` (the destination took none), ``unknown_destination`` or
    ``not_ip``.

    The experiment did not ask for such a loss. ``worst`` is its share of the frames that were read. A share of {0} or
    less changes no percentile. The line that spans the end counts as a whole, since it does not say when frames were
    dropped.
    """
    spans = _judged(emulation)
    frames = sum(span.counts.get("frames_in", 0) for span in spans)
    dropped = {cause: sum(span.drops.get(cause, 0) for span in spans) for span in spans for cause in span.drops}
    unasked = {cause: count for cause, count in dropped.items() if count and cause not in ASKED_DROPS}
    total = sum(unasked.values())
    detail = ", ".join(f"{count:,} of {frames:,} frames were dropped as {cause}" for cause, count in unasked.items())
    return Judgement(frames, total, total / max(frames, 1), PLANE_DROPS, detail)


def _count_late(lines: Sequence[_Frames], counts: Iterable[tuple[int, int]], limit_ns: int) -> int:
    """Count the late frames: as many as the lines count, but no fewer than the histograms prove.

    If a line has no count, a frame counts if any frame of its bucket may be late.
    """
    counted = [late for _, late, _ in lines if late is not None]
    least = 1.0 if len(counted) < len(lines) else 1 / _OVERSTATED
    return max(sum(counted), sum(frames for bound_ns, frames in counts if bound_ns * least > limit_ns))


def _columns(bursts: Iterable[Burst]) -> tuple[Ints, Ints, Ints]:
    due_ns, came_ns, frames = np.array(list(bursts), np.int64).reshape(-1, 3).T
    return due_ns, came_ns, frames


@RULES.add("certificate", SUSPECT, STALL, things="seconds")
@if_measured
def plane_stalls(emulation: Emulation) -> Judgement:
    """Fails if, by some line of ``dataplane.jsonl``, a frame left the data plane more than {0} late.

    The data plane stalled. A percentile over the whole run may hide this.

    Late: a line; as for ``plane_lateness``, all frames of the line that were over {0} late.
    """
    spans = [span for span in _judged(emulation) if "max" in span.lateness_ns]
    zero_ns = emulation.judged_ns[0]
    worst_ns, at_ns = max(((span.lateness_ns["max"], span.at_ns) for span in spans), default=(0, zero_ns))
    detail = f"the data plane's latest frame was {worst_ns / 1e6:.3g} ms late, at {(at_ns - zero_ns) / 1e9:.0f} s"
    late = [span for span in spans if span.lateness_ns["max"] > STALL.ns]
    explained = sum(_is_explained(span, emulation.stalls) for span in late)
    return Judgement(len(spans), len(late), worst_ns / 1e6, STALL, detail, Late(len(late), explained))


def _is_explained(span: PlaneInterval, stalls: Stalls) -> bool:
    """Return whether stalls of the host explain all frames of a line that were later than ``STALL``."""
    due_ns, came_ns, _ = _columns(span.late)
    late_ns: Ints = came_ns - due_ns
    if late_ns.max(initial=0) < span.lateness_ns["max"] / _OVERSTATED - 1:
        return False  # the burst with the latest frame was not kept
    unexplained: Bools = (late_ns > STALL.ns) & ~stalls.excuse(due_ns, came_ns, STALL.ns)
    return not unexplained.any()


@RULES.add("certificate", INVALID, SILENCE, things="lines")
def plane_present(emulation: Emulation) -> Judgement | Absent:
    """Fails if the data plane was silent for over {0} of the workload.

    It writes one line per second.

    Late: two lines; their instants.
    """
    workload = emulation.workload
    if workload is None:
        return Absent("the run had no workload", due=True)
    inside = [span.at_ns for span in emulation.spans if workload.start_ns < span.at_ns < workload.end_ns]
    gaps_ns = np.array(list(pairwise([workload.start_ns, *inside, workload.end_ns])), np.int64)
    gap_s = float(np.diff(gaps_ns).max()) / 1e9
    detail = f"longest time without a line of the data plane: {gap_s:.1f} s"
    late = emulation.stalls.tally(gaps_ns[:, 0], gaps_ns[:, 1], SILENCE.ns)
    return few_late(SILENCE, gap_s, len(gaps_ns), detail, late, 0)


@RULES.add("certificate", SUSPECT, CHANGE_LATE, grave=True, things="instants")
def changes_applied(changes: Changes) -> Judgement:
    """Fails if, before the command to the peers to end, the testbed changed the network or paused peers for a fault
    more than {0} later than asked, or does not say when. If machines have clocks of their own, lateness within the
    error of the clocks does not count.

    A fault that begins or ends late is not the fault that was asked for.

    Late: an instant at which something was to change; this instant, and the instant at which it had changed.
    """
    asked_ns = np.array([each.asked_ns for each in changes.applied], np.int64)
    late_ns = np.array([each.applied_ns for each in changes.applied], np.int64) - asked_ns
    late_ns = np.sign(late_ns) * np.maximum(np.abs(late_ns) - changes.error_ns, 0)
    unknown = changes.asked - len(late_ns)
    worst_ms = float(np.abs(late_ns).max(initial=0)) / 1e6
    early = int((late_ns < 0).sum())
    late = changes.stalls.tally(asked_ns, asked_ns + late_ns, CHANGE_LATE.ns)
    detail = f"faults were applied at {len(late_ns)} of {changes.asked} instants"
    if unknown or early:
        return Judgement(changes.asked, unknown + early, worst_ms, CHANGE_LATE, detail)
    return few_late(CHANGE_LATE, worst_ms, len(late_ns), detail, late, 0)


@RULES.add("overload", SUSPECT, PLANE_BUSY)
@if_measured
def plane_busy(emulation: Emulation) -> Judgement:
    """Fails if the data plane uses more than {0} of a core over any line of ``dataplane.jsonl`` of the same span. Lines
    shorter than half a second are merged with the next line. The line that spans the end does not count.

    The data plane is one process: near saturation its lateness grows without bound.
    """
    # No stall of the host explains this: at nearly full load the kernel itself holds real-time processes back.
    ratios = [ratio for at_ns, ratio in busy_spans(emulation.spans) if _is_judged(emulation, at_ns)]
    return share_at_most(PLANE_BUSY, ratios, 0)
