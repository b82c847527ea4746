"""The page of a comparison: groups of runs side by side, with their distributions and headline numbers."""

import base64
import io
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure as Canvas

from metrics.comparison.conditions import Outcome
from metrics.comparison.differences import Cell, Comparison
from metrics.comparison.groups import Group
from metrics.report.canvas import plain_axes
from metrics.report.page import format_number, template
from metrics.report.run import Run


def setting_rows(comparison: Comparison) -> list[tuple[str, list[Any]]]:
    """What the groups are: verdicts and seeds of their runs, and the settings in which they differ."""
    verdicts = [Counter(run.summary.verdict for run in group.runs) for group in comparison.groups]
    rows: list[tuple[str, list[Any]]] = [
        ("runs", [", ".join(f"{count} {verdict}" for verdict, count in each.items()) for each in verdicts]),
        ("seeds", [_enumerate([run.plan.seed for run in group.runs]) for group in comparison.groups]),
    ]
    paths = dict.fromkeys(path for group in comparison.groups for path in group.settings)
    return rows + [(path, [_setting(group, path) for group in comparison.groups]) for path in paths]


def _setting(group: Group, path: str) -> Any:  # noqa: ANN401 - any JSON value
    value = group.settings.get(path)
    return "-" if value is None else value


def _enumerate(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(seeds)[:8])) + (", ..." if len(seeds) > 8 else "")


def describe_cell(cell: Cell, base: float | None) -> tuple[str, str, str]:
    """A measure in a group for people.

    Args:
        cell: the measure in the group.
        base: its value in the baseline.

    Returns:
        The value with its interval; the difference with its own, and whether it could be noise (both empty in the
        baseline).
    """
    if cell.estimate is None:
        return "-", "", ""
    value, change = _with_interval(cell.estimate.value, cell.estimate.half_width), cell.difference
    value += f" (n={cell.estimate.n:,})"
    if change is None or base is None:
        return value, "", ""
    ratio = f" ({change.value / abs(base):+.1%})" if base else ""
    sign = "+" if change.value >= 0 else ""
    noise = {None: "noise unknown", True: "more than noise", False: "could be noise"}[cell.is_real]
    if change.p is not None and cell.p_adjusted is not None:
        noise += f" (p={change.p:.2g}, of all {cell.p_adjusted:.2g})"
    return value, f"{sign}{_with_interval(change.value, change.half_width)}{ratio}", noise


def _with_interval(value: float, half_width: float | None) -> str:
    return format_number(value) + ("" if half_width is None else f" ± {half_width:.3g}")


def delay_figure(groups: Sequence[Group]) -> Canvas:
    """The propagation delays of every group; undelivered pairs keep a curve below 1."""
    canvas, axes = plain_axes()
    for group in groups:
        tables = [table for run in group.runs if (table := Run(run.path).honest("deliveries")) is not None]
        latency = _pool([table["latency_ms"].dropna() for table in tables])
        if len(latency):
            share = np.arange(1, len(latency) + 1) / sum(map(len, tables))
            axes.step(latency, share, where="post", label=group.label)
    axes.set(xlabel="delay from publication (ms)", ylabel="share of expected deliveries", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    return canvas


def degree_figure(groups: Sequence[Group]) -> Canvas:
    """The physical degrees of every group's nodes at the end of the workload."""
    canvas, axes = plain_axes()
    for group in groups:
        tables = [table for run in group.runs if (table := Run(run.path).last("overlay_degrees")) is not None]
        degrees = _pool([table["degree"].dropna() for table in tables])
        if len(degrees):
            axes.step(degrees, np.arange(1, len(degrees) + 1) / len(degrees), where="post", label=group.label)
    axes.set(xlabel="physical neighbours", ylabel="share of nodes", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    return canvas


def _pool(columns: Sequence[npt.ArrayLike]) -> npt.NDArray[np.float64]:
    return np.sort(np.concatenate([np.empty(0), *map(np.asarray, columns)]).astype(float))


_FIGURES: tuple[tuple[str, Callable[[Sequence[Group]], Canvas], str], ...] = (
    (
        "Propagation delay",
        delay_figure,
        "From publication to first delivery, all runs of a group together; undelivered pairs keep a curve below 1. "
        "Further left is faster.",
    ),
    (
        "Overlay: physical degree",
        degree_figure,
        "Neighbours per node at the end of the workload, all runs of a group together. Further left needs fewer "
        "connections; a steep curve shares them evenly.",
    ),
)


def render_comparison(comparison: Comparison, outcomes: Sequence[Outcome] = ()) -> str:
    """Return the comparison as one HTML page that opens without a network.

    Args:
        comparison: of analysed runs.
        outcomes: of the conditions, if there were any.
    """
    labels = ", ".join(group.label for group in comparison.groups)
    figures = [
        {"title": title, "png": _png(draw(comparison.groups)), "caption": caption, "alt": f"{title}, CDF of: {labels}"}
        for title, draw, caption in _FIGURES
    ]
    rows = []
    for row in comparison.rows:
        base = row.cells[comparison.baseline].estimate
        cells = [(*describe_cell(cell, None if base is None else base.value), cell.is_real) for cell in row.cells]
        rows.append((row.name, cells))
    return template("comparison.html.j2").render(
        groups=comparison.groups,
        baseline=comparison.baseline,
        notes=comparison.notes,
        settings=setting_rows(comparison),
        outcomes=outcomes,
        figures=figures,
        rows=rows,
    )


def _png(canvas: Canvas) -> str:
    axes = canvas.axes[0]
    if axes.lines:
        axes.legend(loc="lower right", fontsize="small")
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center")
    image = io.BytesIO()
    canvas.savefig(image, dpi=144, format="png")
    return base64.b64encode(image.getvalue()).decode()
