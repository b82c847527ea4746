"""What the figures of reports, comparisons and studies have in common: their style, colours, axes and curves."""

from importlib.resources import files
from typing import Any

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

BLUE, ORANGE, GREEN, RED, GREY, PURPLE = "#2266aa", "#dd7722", "#2a8a57", "#c0392b", "#8a929a", "#7a4fa3"

STYLE = str(files("metrics.report") / "trellis.mplstyle")


def plain_axes(width: float = 6.4, height: float = 3.4) -> tuple[Canvas, Axes]:
    """A figure in the report's style with one pair of axes; inches."""
    with matplotlib.style.context(STYLE):
        canvas = Canvas(figsize=(width, height))
        return canvas, canvas.add_subplot()


def axes_grid(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Canvas, list[Axes]]:  # noqa: ANN401
    """A figure in the report's style with several pairs of axes, row by row.

    Args:
        height: of the figure, in inches.
        rows: of axes.
        columns: of axes.
        options: further ones of matplotlib's ``Figure.subplots``.
    """
    with matplotlib.style.context(STYLE):
        canvas = Canvas(figsize=(6.4, height))
        return canvas, list(np.ravel(canvas.subplots(rows, columns, **options)))


def plot_cdf(axes: Axes, values: npt.ArrayLike, **style: Any) -> None:  # noqa: ANN401 - matplotlib's own
    """Draw the cumulative distribution of some values."""
    ordered = np.sort(np.asarray(values, dtype=float))
    axes.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", **style)
