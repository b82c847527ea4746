"""What the figures of reports, comparisons and studies share: their style, colours, axes and curves."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.resources import files
from textwrap import wrap
from typing import Any, Final, Literal, ParamSpec, TypeVar

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from metrics.measures.distribution import Distribution, kept_ranks
from metrics.report.palette import PALETTE

Given = ParamSpec("Given")
Result = TypeVar("Result")

BLUE, ORANGE, GREEN, RED, GREY, PURPLE, MUSTARD, PALE, BROWN = (
    PALETTE[name][0] for name in ("blue", "orange", "green", "red", "grey", "purple", "mustard", "pale", "brown")
)
PAPER, SHADE, LAND, COAST = (PALETTE[name][0] for name in ("paper", "shade", "land", "coast"))

STYLE = str(files("metrics.report") / "trellis.mplstyle")

WIDTH: Final = 5.6
"""The width of a figure, in inches: its labels can be read on a page that is 400 pixels wide."""

_NEXT_S = 1.5
"""Seconds of a table that are at most this far apart follow each other."""


def styled(draw: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function draw in the report's style, whatever a ``matplotlibrc`` in the working directory contains."""

    @wraps(draw)
    def draw_styled(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with matplotlib.style.context(STYLE, after_reset=True):
            return draw(*args, **kwargs)

    return draw_styled


@contextmanager
def in_readers_font() -> Iterator[None]:
    """Allow letters in text that DejaVu Sans lacks, such as Chinese ones: readers see them in a font of their own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        yield


@styled
def plain_axes(width: float = WIDTH, height: float = 3.1) -> tuple[Canvas, Axes]:
    """Return a figure in the report's style with one pair of axes; sizes are in inches."""
    canvas = Canvas(figsize=(width, height))
    return canvas, canvas.add_subplot()


@styled
def axes_grid(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Canvas, list[Axes]]:  # noqa: ANN401
    """Return a figure in the report's style with several pairs of axes, row by row.

    Args:
        height: the height of the figure, in inches.
        rows: the number of rows of axes.
        columns: the number of columns of axes.
        options: further arguments of matplotlib's ``Figure.subplots``.
    """
    canvas = Canvas(figsize=(WIDTH, height))
    return canvas, list(np.ravel(canvas.subplots(rows, columns, **options)))


def plot_cdf(
    axes: Axes,
    values: npt.ArrayLike | Distribution,
    *,
    of: int | None = None,
    least: float = -np.inf,
    **style: Any,  # noqa: ANN401
) -> None:
    """Draw the cumulative distribution of some values, without those that are NaN.

    With more than 400 values, steps lower than 1/400 are joined.

    Args:
        axes: where to draw.
        values: (n,), or the distribution of that many.
        of: the number of which the shares are, if it is larger than n: the curve then ends below 1.
        least: where smaller values are drawn.
        style: further arguments of matplotlib's ``Axes.step``.
    """
    if isinstance(values, Distribution):
        known, (ordered, upto) = values.count, values.steps
    else:
        every = np.asarray(values, dtype=float)
        every = np.sort(every[~np.isnan(every)])
        known, upto = len(every), np.array(kept_ranks(len(every)), int) + 1
        ordered = every[upto - 1]
    plot_steps(axes, np.maximum(ordered, least), upto / (known if of is None else of), **style)


def plot_steps(axes: Axes, values: npt.ArrayLike, shares: npt.ArrayLike, **style: Any) -> None:  # noqa: ANN401
    """Draw a cumulative distribution from its steps.

    Args:
        axes: where to draw.
        values: (n,) in rising order.
        shares: (n,) the share of all values up to each.
        style: further arguments of matplotlib's ``Axes.step``.
    """
    axes.step(values, shares, where="post", **style)


def whole_numbers(axis: Axis, most: int = 9) -> None:
    """Label an axis of counts at whole numbers only, with at most ``most`` intervals."""
    axis.set_major_locator(MaxNLocator(integer=True, nbins=most, min_n_ticks=1))


def plot_seconds(axes: Axes, seconds: npt.ArrayLike, values: npt.ArrayLike, **style: Any) -> None:  # noqa: ANN401
    """Draw a value per second: joined by a line if the next second has a value, too, and marked if alone.

    Args:
        axes: where to draw.
        seconds: (n,) in order.
        values: (n,), NaN = none.
        style: further arguments of matplotlib's ``Axes.plot``.
    """
    at, shown = np.asarray(seconds, dtype=float), np.asarray(values, dtype=float)
    at, shown = at[~np.isnan(shown)], shown[~np.isnan(shown)]
    gaps = np.flatnonzero(np.diff(at) > _NEXT_S) + 1
    alone = np.diff(np.r_[0, gaps, len(at)]) == 1
    places = np.r_[0, gaps][alone] + np.flatnonzero(alone) if len(at) else np.empty(0, int)
    x, y = (np.insert(each, gaps, np.nan) for each in (at, shown))
    axes.plot(x, y, marker=".", markersize=4, markevery=places.tolist(), linewidth=1.2, **style)


def distinct_points(x: npt.ArrayLike, y: npt.ArrayLike, cells: int = 200) -> npt.NDArray[np.int64]:
    """Choose points that readers can tell apart: one in each cell of a grid.

    Args:
        x: (n,).
        y: (n,).
        cells: the number of cells along each axis, over the range of the points.

    Returns:
        (m,) places of the points chosen, in order; m <= n.
    """
    points = np.stack((np.asarray(x, dtype=float), np.asarray(y, dtype=float)))
    if not points.size:
        return np.empty(0, np.int64)
    low = points.min(axis=1, keepdims=True)
    width = np.maximum(points.max(axis=1, keepdims=True) - low, 1e-9)
    _, kept = np.unique(np.floor((points - low) / width * cells), axis=1, return_index=True)
    return np.sort(kept)


def log_scale(axes: Axes, direction: Literal["x", "y"], decades: int = 7) -> None:
    """Give an axis a logarithmic scale with few labels, written as plain numbers.

    Args:
        axes: the axes.
        direction: the axis.
        decades: the most decades with a label each.
    """
    axes.set(**{f"{direction}scale": "log"})
    axis = axes.xaxis if direction == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(numticks=decades))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_formatter(NullFormatter())


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else np.format_float_positional(value, precision=9, trim="-")


def legend_above(axes: Axes, columns: int = 2, first: Sequence[Any] = (), width: int | None = None) -> None:
    """Explain the curves above the axes, where nothing is drawn.

    Args:
        axes: the axes with the curves.
        columns: the number of columns of the legend.
        first: entries that the legend has first.
        width: the number of characters after which a label continues on a new line; None = never.
    """
    handles, _ = axes.get_legend_handles_labels()
    ordered = [*first, *(each for each in handles if each not in first)]
    labels = [str(each.get_label()) for each in ordered]
    if width is not None:
        labels = ["\n".join(wrap(label, width)) for label in labels]
    axes.legend(
        ordered, labels, loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderaxespad=0.2,
        ncols=columns, columnspacing=1.2,
    )  # fmt: skip
