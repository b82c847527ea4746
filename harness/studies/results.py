"""From the runs' values to means with confidence intervals over the seeds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct

from harness.studies.form import Cell
from harness.studies.measures import MEASURES, OUTAGE, RECOVERY, SEEN, split_reduction
from harness.studies.store import Result
from metrics.intervals import Interval, interval

Where = Mapping[str, Cell]
"""Axis to value."""


class Mean(Struct, frozen=True):
    """A measure at a point over its seeds; ``moment`` and ``by`` as in ``Row``."""

    at: dict[str, Cell]
    measure: str
    moment: float | None
    by: float | None
    over: Interval


def matching(results: Sequence[Result], where: Where) -> list[Result]:
    """Return the results of the points with these values."""
    return [result for result in results if all(result.at[axis] == value for axis, value in where.items())]


def values_along(results: Sequence[Result], axis: str) -> list[Cell]:
    """Return the values of an axis, in the study's order."""
    return list(dict.fromkeys(result.at[axis] for result in results))


def reduce_run(result: Result, shown: str, by: float | None = None, at: float | None = None) -> float | None:
    """Return a number of a run: a measure, or its reduction over snapshots, epochs or windows; None = no value.

    Without a reduction, measures of the overlay are those of the last snapshot, and others those of the whole run.

    Args:
        result: the run.
        shown: a measure's name, perhaps after a reduction.
        by: of a measure that is counted by something, which count.
        at: the epoch, the snapshot's instant or the window's beginning (s) whose value is asked for.
    """
    reduction, name = split_reduction(shown)
    rows = [row for row in result.rows if row.measure == name and row.by == by]
    if at is not None:
        return next((row.value for row in rows if row.moment == at), None)
    if not reduction and name not in SEEN:
        return next((row.value for row in rows if row.moment is None), None)
    moving = sorted((row.moment, row.value) for row in rows if row.moment is not None)
    if reduction in (OUTAGE, RECOVERY):
        return _time_below(moving, lasting=reduction == OUTAGE)
    return _reduce(reduction or "last", [value for _, value in moving]) if moving else None


def _time_below(moving: Sequence[tuple[float, float]], *, lasting: bool) -> float | None:
    """Return the time from the first value below 1 to the next one that is not, or (``lasting``) after the last one."""
    below = [place for place, (_, value) in enumerate(moving) if value < 1]
    if not below:
        return 0.0 if moving else None
    since = below[-1] if lasting else below[0]
    ends = (moment for place, (moment, value) in enumerate(moving) if place > since and value >= 1)
    end = next(ends, None)
    return None if end is None else end - moving[below[0]][0]


def _reduce(reduction: str, series: Sequence[float]) -> float | None:
    if reduction == "change":
        return series[-1] / series[0] - 1 if series[0] else None
    if reduction == "mean":
        return sum(series) / len(series)
    return {"first": series[0], "last": series[-1], "min": min(series), "max": max(series)}[reduction]


def mean_of(results: Sequence[Result], shown: str, by: float | None = None, at: float | None = None) -> Interval | None:
    """Return a measure over all these results' seeds; None if no run has a value. A count that a run lacks is 0.

    An outage or recovery has a value only if it ended in all runs.
    """
    reduction, name = split_reduction(shown)
    if by is not None and MEASURES[name].counts:
        counted = [result for result in results if any(row.measure == name for row in result.rows)]
        values = [reduce_run(result, shown, by, at) or 0.0 for result in counted]
    else:
        values = [value for result in results if (value := reduce_run(result, shown, by, at)) is not None]
        if reduction in (OUTAGE, RECOVERY) and len(values) < len(results):
            return None
    return interval(values) if values else None


def aggregate(results: Sequence[Result]) -> Iterator[Mean]:
    """Return every measure at every point, moment and count, over the seeds that have it.

    A count that a run lacks is 0.
    """
    by_point: dict[tuple[Cell, ...], list[Result]] = {}
    for result in results:
        by_point.setdefault(tuple(result.at.values()), []).append(result)
    for runs in by_point.values():
        groups: dict[tuple[str, float | None, float | None], list[float]] = {}
        for run in runs:
            for row in run.rows:
                groups.setdefault((row.measure, row.moment, row.by), []).append(row.value)
        for (measure, moment, by), values in groups.items():
            missing = len(runs) - len(values) if MEASURES[measure].counts else 0
            yield Mean(runs[0].at, measure, moment, by, interval(values + [0.0] * missing))


def means_table(means: Sequence[Mean], axes: Sequence[str]) -> pa.Table:
    """Return the table ``results.parquet``: one row per mean, one column per axis."""
    columns: dict[str, Any] = {axis: _column([mean.at[axis] for mean in means]) for axis in axes}
    columns["measure"] = [mean.measure for mean in means]
    columns["moment"] = pa.array([mean.moment for mean in means], pa.float64())
    columns["by"] = pa.array([mean.by for mean in means], pa.float64())
    columns["mean"] = pa.array([mean.over.mean for mean in means], pa.float64())
    columns["ci95_half_width"] = pa.array([mean.over.half_width for mean in means], pa.float64())
    columns["n"] = pa.array([mean.over.n for mean in means], pa.int32())
    return pa.table(columns)


def runs_table(results: Sequence[Result], axes: Sequence[str]) -> pa.Table:
    """Return the table ``runs.parquet``: one row per value of a run."""
    rows = [(result, row) for result in results for row in result.rows]
    columns: dict[str, Any] = {axis: _column([result.at[axis] for result, _ in rows]) for axis in axes}
    columns["seed"] = pa.array([result.seed for result, _ in rows], pa.int64())
    columns["measure"] = [row.measure for _, row in rows]
    columns["moment"] = pa.array([row.moment for _, row in rows], pa.float64())
    columns["by"] = pa.array([row.by for _, row in rows], pa.float64())
    columns["value"] = pa.array([float(row.value) for _, row in rows], pa.float64())
    return pa.table(columns)


def _column(cells: Sequence[Cell]) -> pa.Array:
    """Return numbers as numbers, but texts if any value is a text."""
    return pa.array([str(cell) for cell in cells] if any(isinstance(cell, str) for cell in cells) else list(cells))
