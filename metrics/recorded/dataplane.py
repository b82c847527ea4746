"""The data plane's own record, ``dataplane.jsonl``: what it did between each line and the next.

The data plane writes a line about once a second, but not one for each second: after a pause of the machine, several
lines may follow each other within milliseconds. Add up such lines, and leave none out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

_SECOND_NS = 1_000_000_000
_COUNTERS = ("frames_in", "frames_out", "bytes_in", "bytes_out", "frames_late", "frames_waited")
_TAKEN = ("lateness_ns", "lateness_counts", "busy_ratio", "intake_ns", "intake_counts", "late", "waits")
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_BUSY_SPAN_NS = _SECOND_NS // 2

Burst = tuple[int, int, int]
"""Frames that were late together: the earliest instant at which one was due, the latest at which one came, the
count."""


class PlaneInterval(Struct, frozen=True):
    """What one line says about the time since the line before. None: the line has no such value."""

    at_ns: int  # when the line's numbers were taken, the end of that time
    passed_ns: int  # the length of that time; 0 if the numbers are the previous line's. The first line's is a second
    counts: dict[str, int]  # frames and bytes read and written; a counter that the line does not have is missing
    drops: dict[str, int]  # frames dropped, by cause
    lateness_ns: dict[str, int] = {}  # p50, p90, p99 and max of the frames written; empty if the line has none
    lateness_counts: list[tuple[int, int]] | None = None  # their histogram: a bucket's upper bound in ns, and its count
    busy_ratio: float | None = None  # the data plane's share of its core
    intake_ns: dict[str, int] = {}  # likewise, of the longest that frames may have waited before they were read
    intake_counts: list[tuple[int, int]] | None = None  # their histogram
    late: list[Burst] = []  # frames written later than the experiment's limit, in bursts; as many as were kept
    waits: list[Burst] = []  # frames that may have waited longer than that before they were read, likewise


def spans(lines: Iterable[Mapping[str, Any]]) -> list[PlaneInterval]:
    """Return one span per line, in order; lines from before the data plane had hosts (``at_ns`` 0) are left out.

    Args:
        lines: the objects of ``dataplane.jsonl``, whose counters count from the beginning.
    """
    found = []
    counts: dict[str, int] = {}
    drops: dict[str, int] = {}
    last_ns = None
    for line in lines:
        if not line["at_ns"]:
            continue
        counted = {name: line[name] for name in _COUNTERS if name in line}
        dropped = line.get("drops", {})
        passed_ns = _SECOND_NS if last_ns is None else line["at_ns"] - last_ns
        rest = {name: line[name] for name in _TAKEN if name in line}
        found.append(
            PlaneInterval(line["at_ns"], passed_ns, _difference(counted, counts), _difference(dropped, drops), **rest)
        )
        counts, drops, last_ns = counts | counted, drops | dropped, line["at_ns"]
    return found


def _difference(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in now.items()}


def last_counters(lines: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the data plane's total counts: the last value of every counter, and ``dropped``, the sum over all causes.

    The sums of the columns of ``second_values`` over the seconds are equal to these.
    """
    counts: dict[str, int] = {}
    drops: dict[str, int] = {}
    for line in lines:
        counts |= {name: line[name] for name in _COUNTERS if name in line}
        drops |= line.get("drops", {})
    return counts | {"dropped": sum(drops.values())}


def second_values(found: Sequence[PlaneInterval], zero_ns: int) -> dict[int, dict[str, Any]]:
    """Return the data plane's columns of ``fidelity`` by second from ``zero_ns``, of all lines written in each."""
    seconds: dict[int, list[PlaneInterval]] = {}
    for span in found:
        seconds.setdefault((span.at_ns - zero_ns) // _SECOND_NS, []).append(span)
    return {second: _merge(those) for second, those in seconds.items()}


def _merge(those: Sequence[PlaneInterval]) -> dict[str, Any]:
    drops = _sums(span.drops for span in those)
    values: dict[str, Any] = dict(_sums(span.counts for span in those))
    late = _quantiles([(span.lateness_ns, span.lateness_counts) for span in those])
    waits = _quantiles([(span.intake_ns, span.intake_counts) for span in those])
    values |= {f"lateness_{name}_ns": value for name, value in late.items()}
    values |= {f"intake_{name}_ns": value for name, value in waits.items()}
    return values | {"busy_ratio": _busy(those), "dropped": sum(drops.values()), "drops": json.dumps(drops)}


def _sums(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total


def _quantiles(parts: Sequence[tuple[dict[str, int], list[tuple[int, int]] | None]]) -> dict[str, int]:
    """Return quantiles over the frames of all lines; without their histograms only the largest value is known.

    Args:
        parts: for each line p50, p90, p99 and max, and the histogram.
    """
    if len(parts) == 1:
        return parts[0][0]
    largest = [known["max"] for known, _ in parts if "max" in known]
    known = {"max": max(largest)} if largest else {}
    histograms = [counts for _, counts in parts if counts is not None]
    if len(histograms) < len(parts):
        return known
    counts = merge_counts(histograms)
    return known | {name: quantile_ns(counts, share) for name, share in _QUANTILES.items()}


def _busy(those: Sequence[PlaneInterval]) -> float | None:
    """Return the mean of the busy ratios, weighted by time; if no time passed in the spans, the largest."""
    known = [(span.busy_ratio, span.passed_ns) for span in those if span.busy_ratio is not None]
    passed_ns = sum(weight for _, weight in known)
    if not passed_ns:
        return max((ratio for ratio, _ in known), default=None)
    return sum(ratio * weight for ratio, weight in known) / passed_ns


def merge_counts(histograms: Iterable[Iterable[Sequence[int]]]) -> list[tuple[int, int]]:
    """Add up histograms of lateness: pairs of a bucket's upper bound in ns and its count, the least lateness first."""
    total: dict[int, int] = {}
    for histogram in histograms:
        for bound_ns, count in histogram:
            total[bound_ns] = total.get(bound_ns, 0) + count
    return sorted(total.items())


def quantile_ns(counts: Sequence[tuple[int, int]], share: float) -> int:
    """Return the upper bound of the bucket that holds a quantile; 0 if nothing was counted."""
    if not counts:
        return 0
    bounds_ns, frames = zip(*counts, strict=True)
    reached = np.cumsum(frames)
    return int(bounds_ns[int(np.searchsorted(reached, share * reached[-1]))])


def busy_spans(found: Iterable[PlaneInterval]) -> Iterator[tuple[int, float]]:
    """Yield the data plane's share of its core over spans of half a second or more: their ends in ns, and the shares.

    A busy ratio over a few milliseconds says nothing, so the line is judged together with the lines after it.
    """
    busy_ns, passed_ns = 0.0, 0
    for span in found:
        if span.busy_ratio is None:
            continue
        busy_ns += span.busy_ratio * span.passed_ns
        passed_ns += span.passed_ns
        if passed_ns >= _BUSY_SPAN_NS:
            yield span.at_ns, busy_ns / passed_ns
            busy_ns, passed_ns = 0.0, 0
