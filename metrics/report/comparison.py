"""The page of a comparison: groups of runs side by side, with their distributions and headline numbers."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure as Canvas
from msgspec import structs

from metrics.comparison.conditions import Outcome
from metrics.comparison.differences import Cell, Comparison, describe_p
from metrics.comparison.groups import Group, own_settings
from metrics.measures.distribution import pool
from metrics.report.canvas import WIDTH, legend_above, plain_axes, plot_cdf, plot_steps, styled, whole_numbers
from metrics.report.figures.chapter import Drawing, number, spread
from metrics.report.figures.world import draw_world
from metrics.report.page import template
from metrics.report.palette import palette_css
from metrics.report.run import Run
from metrics.report.svg import to_element, to_svg
from metrics.report.values import format_number
from metrics.rundir import JUDGED, Scope

_LINES: Final = ("-", "--", "-.", ":")
"""Line styles with which curves that coincide can all be seen."""

_LEGEND_CHARACTERS: Final = 60
"""The width of the labels that stand beside each other above a figure."""

_LINE_INCHES: Final = 0.17
"""The height of a line of labels."""


_MOST_MAPS: Final = 6

Rows = list[tuple[str, list[Any]]]


def setting_rows(comparison: Comparison) -> Rows:
    """Return rows about the groups: verdicts and seeds of their runs, and the settings in which they differ.

    Settings that only one protocol has (``own_setting_rows``) are counted in a last row.
    """
    verdicts = [Counter(run.summary.verdict for run in group.runs) for group in comparison.groups]
    rows: Rows = [
        ("runs", [", ".join(f"{count} {verdict}" for verdict, count in each.items()) for each in verdicts]),
        ("judged", [", ".join(judged_parts(group)) or "nothing" for group in comparison.groups]),
        ("seeds", [_enumerate([run.plan.seed for run in group.runs]) for group in comparison.groups]),
    ]
    own = Counter(own_settings(comparison.groups).values())
    rows += _rows_of(comparison, (path for path in _paths(comparison) if path not in own_settings(comparison.groups)))
    return [*rows, ("own settings", [own[group.protocol] for group in comparison.groups])] if own else rows


def judged_parts(group: Group) -> list[str]:
    """Return the parts of the verdict's scope that were judged in all runs of a group; none for old versions."""
    scopes = [structs.asdict(run.summary.scope) if run.summary.scope else {} for run in group.runs]
    return [part for part in Scope.__struct_fields__ if all(scope.get(part) == JUDGED for scope in scopes)]


def own_setting_rows(comparison: Comparison) -> Rows:
    """Return the settings that only one protocol has, with the same value in all its groups."""
    return _rows_of(comparison, own_settings(comparison.groups))


def _paths(comparison: Comparison) -> dict[str, None]:
    return dict.fromkeys(path for group in comparison.groups for path in group.settings)


def _rows_of(comparison: Comparison, paths: Iterable[str]) -> Rows:
    return [(path, [_setting(group, path) for group in comparison.groups]) for path in paths]


def _setting(group: Group, path: str) -> Any:  # noqa: ANN401 - any JSON value
    value = group.settings.get(path)
    return "-" if value is None else value


def _enumerate(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(seeds)[:8])) + (", ..." if len(seeds) > 8 else "")


def describe_cell(cell: Cell, base: float | None) -> tuple[str, str, str]:
    """Describe a measure in a group for people.

    Args:
        cell: the measure in the group.
        base: its value in the baseline.

    Returns:
        The value with its interval; the difference with its interval, and whether it could be noise (both empty in the
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
        noise += f" (two-sided p {describe_p(change.p)}, adjusted {describe_p(cell.p_adjusted)})"
    return value, f"{sign}{_with_interval(change.value, change.half_width)}{ratio}", noise


def _with_interval(value: float, half_width: float | None) -> str:
    return format_number(value) + ("" if half_width is None else f" ± {half_width:.3g}")


def to_markdown(comparison: Comparison, outcomes: Sequence[Outcome] = ()) -> str:
    """Return the outcomes of conditions, the groups and the measures with a value, in Markdown for a comment."""
    lines = [f"- **{each.state}**: `{each.condition}`: {_plain(each.group)}: {_plain(each.words)}" for each in outcomes]
    head = ["", *(group.label for group in comparison.groups)]
    table = [head, ["---", *["---:"] * len(comparison.groups)]]
    table += [[name, *map(format_number, values)] for name, values in setting_rows(comparison)]
    for row in comparison.rows:
        base = row.cells[comparison.baseline].estimate
        cells = [describe_cell(cell, None if base is None else base.value) for cell in row.cells]
        table.append([row.name, *("<br>".join(line for line in cell if line) for cell in cells)])
    rows = [f"| {' | '.join(map(_plain, cells))} |" for cells in table]
    notes = [_plain(note) for note in comparison.notes]
    return "\n".join([*lines, *[""] * bool(lines), *rows, *(f"\n{note}" for note in notes), ""])


def _plain(text: str) -> str:
    """Return a text that stays in its cell of a table, and in its line."""
    return " ".join(text.split()).replace("|", "\\|")


@styled
def delay_figure(groups: Sequence[Group]) -> Drawing:
    """Draw the propagation delays of every group; undelivered pairs keep a curve below 1."""
    canvas, axes = plain_axes()
    seen = []
    for group, line in zip(groups, cycle(_LINES), strict=False):
        totals = [Run(run.path).totals.messages for run in group.runs]
        made = [each.latency_ms for each in totals if len(each.latency_ms)]
        if made:
            values, upto = pool(made)
            expected = sum(each.deliveries.expected for each in totals)
            plot_steps(axes, values, upto / expected, label=group.label, linestyle=line)
            median, high, _ = np.mean([spread(each) for each in made], axis=0).tolist()
            of_runs = f" (means of {len(made)} runs)" if len(made) > 1 else ""
            seen.append(f"{group.label}: median {number(median)} ms, 99th percentile {number(high)} ms{of_runs}")
    axes.set(xlabel="delay from publication (ms)", ylabel="share of expected deliveries", ylim=(0, 1.02))
    return _explained(canvas, seen)


@styled
def degree_figure(groups: Sequence[Group]) -> Drawing:
    """Draw the physical degrees of every group's nodes at the end of the workload."""
    canvas, axes = plain_axes()
    seen = []
    for group, line in zip(groups, cycle(_LINES), strict=False):
        tables = [table for run in group.runs if (table := Run(run.path).last("overlay_degrees")) is not None]
        degrees = _pool([table["degree"].dropna() for table in tables])
        if len(degrees):
            plot_cdf(axes, degrees, label=group.label, linestyle=line)
            seen.append(f"{group.label}: mean {number(degrees.mean())}, largest {number(degrees.max())}")
    axes.set(xlabel="physical neighbours", ylabel="share of nodes", ylim=(0, 1.02))
    whole_numbers(axes.xaxis)
    return _explained(canvas, seen)


def _explained(canvas: Canvas, seen: Sequence[str]) -> Drawing:
    """Return a figure of the groups with its legend, which may be long, and what it shows."""
    (axes,) = canvas.axes
    axes.set_xlim(left=0)
    if not seen:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center")
        return Drawing(canvas, "No data.")
    _, labels = axes.get_legend_handles_labels()
    columns = max(1, min(3, _LEGEND_CHARACTERS // (max(map(len, labels)) + 6)))
    lines = -(-sum(1 + len(label) // _LEGEND_CHARACTERS for label in labels) // columns)
    canvas.set_figheight(canvas.get_figheight() + _LINE_INCHES * lines)
    legend_above(axes, columns, width=_LEGEND_CHARACTERS)
    return Drawing(canvas, f"{'; '.join(seen)}.")


def _pool(columns: Sequence[npt.ArrayLike]) -> npt.NDArray[np.float64]:
    return np.sort(np.concatenate([np.empty(0), *map(np.asarray, columns)]).astype(float))


_FIGURES: tuple[tuple[str, str, Callable[[Sequence[Group]], Drawing], str], ...] = (
    (
        "delay",
        "Propagation delay",
        delay_figure,
        "From publication to first delivery, all runs of a group together; undelivered pairs keep a curve below 1. "
        "Further left is faster.",
    ),
    (
        "degree",
        "Overlay: physical degree",
        degree_figure,
        "Neighbours per node at the end of the workload, all runs of a group together. Further left needs fewer "
        "connections; a steep curve shares them evenly.",
    ),
)


@styled
def _draw_maps(groups: Sequence[Group]) -> list[dict[str, str]]:
    """Draw the first run of each group on the map of the world; none if a run has no places."""
    found = []
    for place, group in enumerate(groups[:_MOST_MAPS]):
        drawing = draw_world(Run(group.runs[0].path), WIDTH)
        if drawing is None:
            return []
        element = to_element(to_svg(drawing.canvas), f"map-{place}", f"Map of {group.label}. {drawing.seen}")
        found.append({"title": f"{group.label}, seed {group.runs[0].plan.seed}", "svg": element, "seen": drawing.seen})
    return found


def render_comparison(comparison: Comparison, outcomes: Sequence[Outcome] = ()) -> str:
    """Return the comparison as one HTML page that opens without a network.

    Args:
        comparison: the comparison of analysed runs.
        outcomes: the outcomes of the conditions, if there were any.
    """
    figures = []
    for name, title, draw, caption in _FIGURES:
        drawing = draw(comparison.groups)
        element = to_element(to_svg(drawing.canvas), name, f"{title}, distribution. {drawing.seen}")
        figures.append({"title": title, "svg": element, "seen": drawing.seen, "caption": caption})
    rows = []
    for row in comparison.rows:
        base = row.cells[comparison.baseline].estimate
        cells = [(*describe_cell(cell, None if base is None else base.value), cell.is_real) for cell in row.cells]
        rows.append((row.name, cells))
    maps = _draw_maps(comparison.groups)
    return template("comparison.html.j2").render(
        groups=comparison.groups,
        baseline=comparison.baseline,
        notes=comparison.notes,
        settings=setting_rows(comparison),
        own_settings=own_setting_rows(comparison),
        real=comparison.real,
        maps=maps,
        without_map=len(comparison.groups) - _MOST_MAPS if maps else 0,
        outcomes=outcomes,
        figures=figures,
        palette=palette_css(),
        rows=rows,
    )
