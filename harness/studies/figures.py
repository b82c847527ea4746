"""Draws a study's figures: means with their intervals over an axis, or distributions of nodes."""

from collections.abc import Iterator, Sequence
from itertools import cycle, product

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from msgspec import Struct

from harness.studies.form import Cell, FigureSpec, Shown, as_shown
from harness.studies.loader import AT_S, EPOCH
from harness.studies.measures import MEASURES, SEEN, split_reduction
from harness.studies.results import aggregate, matching, mean_of, values_along
from harness.studies.store import Result
from metrics.intervals import Interval, interval
from metrics.report.canvas import STYLE, plain_axes

MOMENTS = (AT_S, EPOCH)
LINES = ("line", "log-log", "log-y")
MANY_CURVES = 4
"""With more curves, the legend is beside the axes."""

TOP_MARGIN = 0.05
"""Space above the highest curve, as a share of the axis: it keeps markers whole."""


class Curve(Struct, frozen=True):
    """A labelled series of means over x."""

    label: str
    points: tuple[tuple[Cell, Interval], ...]


def draw_figure(spec: FigureSpec, results: Sequence[Result]) -> Canvas:
    """Draw the figure of these results."""
    with matplotlib.style.context(STYLE, after_reset=True):
        return _draw(spec, results)


def _draw(spec: FigureSpec, results: Sequence[Result]) -> Canvas:
    curves = list(make_curves(spec, results))
    shown = len(curves) + len(spec.paper)
    canvas, axes = plain_axes(8.4 if shown > MANY_CURVES else 6.4, 3.8)
    for place, (curve, marker) in enumerate(zip(curves, cycle("os^Dv<>P"))):
        if spec.kind in LINES:
            _draw_line(axes, curve, marker)
        elif spec.kind == "bars":
            _draw_bars(axes, curve, place, len(curves))
        else:
            _draw_counts(axes, curve, spec.kind)
    for paper in spec.paper:
        x, y = zip(*paper.points, strict=True)
        axes.plot(x, y, label=paper.label, color="#1d2429", marker="x", linestyle="none", zorder=5)
    _finish(axes, spec, curves)
    return canvas


def describe_figure(spec: FigureSpec, results: Sequence[Result]) -> str:
    """Return what the figure shows in words, such as ``delay (ms) by epoch: topiary; random``: axes, then curves."""
    xlabel, ylabel = _axis_labels(spec)
    curves = [curve.label for curve in make_curves(spec, results)] + [paper.label for paper in spec.paper]
    axes = f"{ylabel} by {xlabel}" if ylabel else f"by {xlabel}"
    return f"{axes}: {'; '.join(curves)}" if len(curves) > 1 else axes


def make_curves(spec: FigureSpec, results: Sequence[Result]) -> Iterator[Curve]:
    """Yield the curves of a figure: one per measure and combination of the series' axes with a point."""
    chosen = matching(results, spec.where)
    for shown in map(as_shown, spec.y):
        for values in product(*(values_along(chosen, axis) for axis in spec.series)):
            runs = matching(chosen, dict(zip(spec.series, values, strict=True)))
            points = tuple(_points(spec, runs, shown))
            if points:
                yield Curve(_label(spec, shown, values), points)


def _label(spec: FigureSpec, shown: Shown, values: tuple[Cell, ...]) -> str:
    words = [
        value if isinstance(value, str) else f"{axis} = {value}"
        for axis, value in zip(spec.series, values, strict=True)
    ]
    if len(spec.y) > 1 or not words:
        words.insert(0, shown.title)
    return ", ".join(words)


def _points(spec: FigureSpec, runs: Sequence[Result], shown: Shown) -> Iterator[tuple[Cell, Interval]]:
    measure, by, at = shown.of, shown.by, shown.at
    if spec.x in MOMENTS:
        rows = [mean for mean in aggregate(runs) if mean.measure == measure and mean.by == by]
        moments = [(mean.moment, mean.over) for mean in rows if mean.moment is not None]
        begin, unit = (spec.begin_s, spec.unit_s) if spec.x == AT_S else (0, 1)
        yield from (((moment - begin) / unit, of) for moment, of in sorted(moments, key=lambda pair: pair[0]))
    elif MEASURES[split_reduction(measure)[1]].by == spec.x:
        yield from _counts(runs, measure, at)
    else:
        for value in values_along(runs, spec.x):
            over = mean_of(matching(runs, {spec.x: value}), measure, by, at)
            if over is not None:
                yield value, over


def _counts(runs: Sequence[Result], shown: str, at: float | None) -> Iterator[tuple[Cell, Interval]]:
    """Yield what a measure counts at ``at`` or at the first or last moment, otherwise as ``reduce_run`` does."""
    reduction, name = split_reduction(shown)
    whole = not reduction and name not in SEEN
    counts = []
    for run in runs:
        rows = [row for row in run.rows if row.measure == name and row.by is not None]
        moments = sorted({row.moment for row in rows if row.moment is not None})
        moment = at if at is not None or whole or not moments else moments[0 if reduction == "first" else -1]
        counts.append({row.by: row.value for row in rows if row.moment == moment})
    for by in sorted({key for count in counts for key in count if key is not None}):
        yield by, interval([count.get(by, 0.0) for count in counts if by in count or MEASURES[name].counts])


def _draw_line(axes: Axes, curve: Curve, marker: str) -> None:
    x = [point[0] for point in curve.points]
    means = np.array([over.mean for _, over in curve.points])
    half = np.array([over.half_width or 0.0 for _, over in curve.points])
    many = len(x) > 30
    [line] = axes.plot(x, means, label=curve.label, marker="" if many else marker, markersize=4)
    if many:
        axes.fill_between(x, means - half, means + half, color=line.get_color(), alpha=0.2, linewidth=0)
    else:
        if half.any():
            axes.errorbar(x, means, half, fmt="none", color=line.get_color(), capsize=2)


def _draw_bars(axes: Axes, curve: Curve, place: int, curves: int) -> None:
    """Draw the curve's bars beside those of the other curves."""
    x = np.array([point[0] for point in curve.points], float)
    counts = np.array([over.mean for _, over in curve.points])
    width = 0.8 / curves
    axes.bar(x + (place - (curves - 1) / 2) * width, counts / counts.sum(), width, label=curve.label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_counts(axes: Axes, curve: Curve, kind: str) -> None:
    x = np.array([point[0] for point in curve.points], float)
    counts = np.array([over.mean for _, over in curve.points])
    if kind == "rank":
        axes.loglog(x, counts, label=curve.label)
    elif kind == "cdf":
        axes.step(x, np.cumsum(counts) / counts.sum(), where="post", label=curve.label)
    else:
        axes.step(x, counts / counts.sum(), where="mid", label=curve.label)


def _finish(axes: Axes, spec: FigureSpec, curves: Sequence[Curve]) -> None:
    xlabel, ylabel = _axis_labels(spec)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if spec.x == EPOCH:
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=(1, 2, 5, 10), integer=True))
    if spec.kind == "log-log":
        axes.set(xscale="log", yscale="log")
    if spec.kind in ("log-log", "rank"):
        _label_decades(axes.xaxis)
        _label_decades(axes.yaxis)
    elif spec.kind == "log-y":
        axes.set(yscale="log")
        _label_decades(axes.yaxis)
    else:
        _limit(axes, spec, curves)
    shown = len(curves) + len(spec.paper)
    if shown > MANY_CURVES:
        axes.figure.legend(loc="outside right upper", fontsize=8)
    elif shown > 1:
        axes.legend(fontsize=8)


def _limit(axes: Axes, spec: FigureSpec, curves: Sequence[Curve]) -> None:
    """Set the ends of the y axis. Intervals of curves do not move ``ymax``: a share ends at 1."""
    low, high = axes.dataLim.intervaly
    bottom = min(spec.ymin, low)
    if spec.ymax is None:
        axes.set_ylim(bottom, high + TOP_MARGIN * (high - bottom))
        return
    if spec.kind == "line":
        high = max((over.mean for curve in curves for _, over in curve.points), default=high)
    axes.set_ylim(bottom, max(spec.ymax, high))


def _label_decades(axis: Axis) -> None:
    """Label the powers of ten of a logarithmic axis, and 2 and 5 times these where it is short; plain numbers."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def _axis_labels(spec: FigureSpec) -> tuple[str, str]:
    """Return the labels of the x and y axes; that of y is empty if there are several measures without a common name."""
    shares = {"cdf": "share of nodes, cumulated", "histogram": "share of nodes", "bars": "share"}
    first = _axis_label(spec.y[0]) if len(spec.y) == 1 else ""
    return spec.xlabel or spec.x, spec.ylabel or shares.get(spec.kind, first)


def _axis_label(shown: str | Shown) -> str:
    """Return the label that the study gives, otherwise the measure's meaning and unit, after the reduction."""
    shown = as_shown(shown)
    if shown.label:
        return shown.label
    reduction, name = split_reduction(shown.of)
    return f"{reduction}: {MEASURES[name].label}" if reduction else MEASURES[name].label
