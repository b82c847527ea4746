"""What a record keeps of a run: single numbers, and the numbers over time and distributions that its study shows."""

from collections.abc import Sequence

from msgspec import Struct

from harness.studies.form import Cell, Shown, Study, as_shown
from harness.studies.loader import AT_S, EPOCH
from harness.studies.measures import MEASURES, SEEN, split_reduction
from harness.studies.point_run import Row
from harness.studies.store import Result

BEGINNING, END = -1.0, 0.0
"""The moments of the first and last snapshot, for measures whose other moments are not in the file."""

ALL_RANKS = 20
RANKS = 1.05
"""Of a measure that is counted by rank, the file has the first ``ALL_RANKS`` and then ranks at about this quotient."""

Column = tuple[str, float | None]
"""A measure's name and, if it is counted by something, which count."""


class Columns(Struct, frozen=True):
    """The numbers of a run in a record.

    Attributes:
        cost: processor time (s) and memory (MiB).
        values: single numbers; of measures of snapshots the last.
        moments: numbers by moment.
        counts: numbers by what they are counted by.
    """

    cost: tuple[float, int]
    values: dict[str, float]
    moments: dict[str, dict[float, float]]
    counts: dict[str, dict[float, float]]


class Kept:
    """What a record keeps of a study's runs: the single numbers, those over time, and the distributions."""

    def __init__(self, study: Study) -> None:
        self.values = {_title(column): column for column in _single(study)}
        self.moments = {_title(column): column for column in _moving(study)}
        self.counts = {_distribution_title(shown): shown for shown in _distributions(study)}

    def columns(self, result: Result) -> Columns:
        """Return the numbers of a run."""
        last: dict[Column, float] = {}
        over_time: dict[Column, dict[float, float]] = {}
        by_measure: dict[str, list[Row]] = {}
        for row in result.rows:
            column = row.measure, row.by
            by_measure.setdefault(row.measure, []).append(row)
            if row.moment is None:
                last[column] = six_digits(row.value)
            else:
                over_time.setdefault(column, {})[row.moment] = six_digits(row.value)
        last |= {column: values[max(values)] for column, values in over_time.items() if column[0] in SEEN}
        return Columns(
            (round(result.cpu_s, 1), result.peak_mib),
            {title: last[column] for title, column in self.values.items() if column in last},
            {title: over_time[column] for title, column in self.moments.items() if column in over_time},
            {
                title: counts
                for title, shown in self.counts.items()
                if (counts := _counts(by_measure.get(split_reduction(shown.of)[1], ()), shown))
            },
        )

    def restore(self, at: dict[str, Cell], seed: int, found: Columns) -> Result:
        """Return the run with these numbers."""
        rows: dict[tuple[str, float | None, float | None], float] = {}
        for title, value in found.values.items():
            name, by = self.values[title]
            if not (name in SEEN and title in self.moments):
                rows[name, END if name in SEEN else None, by] = value
        for title, values in found.moments.items():
            name, by = self.moments[title]
            rows |= {(name, moment, by): value for moment, value in values.items()}
        for title, counts in found.counts.items():
            shown = self.counts[title]
            name = split_reduction(shown.of)[1]
            rows |= {(name, _moment(shown), by): value for by, value in counts.items()}
        return Result("", at, seed, "", *found.cost, tuple(Row(*place, value) for place, value in rows.items()))


def _counts(rows: Sequence[Row], shown: Shown) -> dict[float, float]:
    """Return what a figure shows of a measure that is counted by something."""
    reduction, name = split_reduction(shown.of)
    moment = shown.at
    if moment is None and (reduction or name in SEEN):
        moments = [row.moment for row in rows if row.moment is not None and row.by is not None]
        moment = (min if reduction == "first" else max)(moments, default=None)
    found = {row.by: six_digits(row.value) for row in rows if row.moment == moment and row.by is not None}
    if MEASURES[name].by != "rank" or not found:
        return found
    ranks = _ranks(max(found))
    return {rank: value for rank, value in found.items() if rank in ranks}


def _ranks(last: float) -> set[float]:
    """Return the ranks that a record keeps of so many; they are shown on a logarithmic axis."""
    ranks = {float(last)}
    rank = 1.0
    while rank <= last:
        ranks.add(float(int(rank)))
        rank = rank + 1 if rank < ALL_RANKS else rank * RANKS
    return ranks


def _moment(shown: Shown) -> float | None:
    reduction, name = split_reduction(shown.of)
    if shown.at is not None:
        return shown.at
    if reduction == "first":
        return BEGINNING
    return END if reduction or name in SEEN else None


def _shown(study: Study) -> list[Shown]:
    """Return the entries of the tables, figures and claims."""
    entries = [each for table in study.table for each in table.measures]
    entries += [each for figure in study.figure for each in figure.y]
    entries += [each for claim in study.claim for each in (claim.of, claim.divisor)]
    return list(map(as_shown, entries))


def _single(study: Study) -> list[Column]:
    """Return the measures with one number per run, and the counts that are shown."""
    single: dict[Column, None] = {}
    counted = [(split_reduction(shown.of)[1], shown.by) for shown in _shown(study) if shown.by is not None]
    for name in study.measures:
        if not MEASURES[name].by:
            single[name, None] = None
        single |= {pair: None for pair in counted if pair[0] == name}
    return list(single)


def _moving(study: Study) -> list[Column]:
    """Return the numbers of which the study shows more than one moment or a reduction."""
    moving: dict[Column, None] = {}
    for shown in _shown(study):
        reduction, name = split_reduction(shown.of)
        if reduction or shown.at is not None:
            moving[name, shown.by] = None
    for figure in study.figure:
        if figure.x in (AT_S, EPOCH):
            moving |= {(split_reduction(each.of)[1], each.by): None for each in map(as_shown, figure.y)}
    return [(name, by) for name, by in moving if by is not None or not MEASURES[name].by]


def _distributions(study: Study) -> list[Shown]:
    """Return the entries of figures over what their measures are counted by."""
    entries = {
        _distribution_title(shown): shown
        for figure in study.figure
        for shown in map(as_shown, figure.y)
        if MEASURES[split_reduction(shown.of)[1]].by == figure.x
    }
    return list(entries.values())


def _distribution_title(shown: Shown) -> str:
    return shown.of if shown.at is None else f"{shown.of} at {six_digits(shown.at):g}"


def _title(column: Column) -> str:
    name, by = column
    return name if by is None else f"{name} {six_digits(by):g}"


def six_digits(value: float) -> float:
    """Return a number with six significant digits, or a whole one exactly."""
    return int(value) if value == int(value) else float(f"{value:.6g}")
