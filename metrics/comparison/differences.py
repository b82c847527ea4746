"""Every group against the baseline, measure by measure."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from metrics.comparison.groups import Group
from metrics.comparison.resampling import estimate_run
from metrics.intervals import Difference, Estimate, difference, difference_of_one, estimate, holm
from metrics.measures.registry import HEADLINE, find_measure

ERROR_RATE = 0.05
"""In what share of comparisons of equal groups at least one difference is called real."""

_ENOUGH_RUNS = 5

MESSAGES_NOTE = (
    "The interval of a group with one run covers only the variation between the messages of that run: another seed or "
    "repeat may differ by more."
)


class Cell(Struct, frozen=True):
    """A measure in a group."""

    estimate: Estimate | None  # None if no run of the group has a value
    over: str  # what the interval covers: "runs", or "messages" of one run
    difference: Difference | None = None  # to the baseline; None in the baseline, and where one of them has no value
    p_adjusted: float | None = None  # by Holm's method over all differences shown

    @property
    def is_real(self) -> bool | None:
        """Whether the difference is more than noise; None if that cannot be judged."""
        return None if self.p_adjusted is None else self.p_adjusted < ERROR_RATE


class Row(Struct, frozen=True):
    """A measure: a cell per group, in the groups' order."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def unit(self) -> str:
        measure = find_measure(self.name)
        return "" if measure is None else measure.unit


class Comparison(Struct, frozen=True):
    """Groups, the place of the baseline among them, and the rows of their measures."""

    groups: tuple[Group, ...]
    baseline: int
    rows: tuple[Row, ...]

    @property
    def real(self) -> list[tuple[Group, list[str]]]:
        """The measures in which each group but the baseline differs by more than noise, in the rows' order."""
        places = [place for place in range(len(self.groups)) if place != self.baseline]
        return [(self.groups[place], [row.name for row in self.rows if row.cells[place].is_real]) for place in places]

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the numbers: how noise is judged, and what the intervals cover."""
        tested = sum(cell.p_adjusted is not None for row in self.rows for cell in row.cells)
        sizes = {len(group.runs) == 1 for group in self.groups}
        notes = []
        if len(self.groups) > 1:
            notes.append(
                f"Noise: if no group differs from the baseline, at least one of the {tested} judged differences is "
                f"called real in {'about' if sizes == {True} else 'at most'} {100 * ERROR_RATE:g} % of the comparisons "
                "(Holm's method over all of them). Intervals are of 95 % and p-values of each measure by itself; "
                "adjusted p-values take the number of differences into account, which --measure reduces. A measure "
                "that is constant within both groups has the p-value of a permutation test: 0.33 for two runs in each, "
                "0.1 for three, 0.008 for five."
            )
        if any(cell.over == "messages" for row in self.rows for cell in row.cells):
            notes.append(MESSAGES_NOTE)
        if 2 <= min(len(group.runs) for group in self.groups) < _ENOUGH_RUNS and len(self.groups) > 1:
            notes.append(
                f"Groups of fewer than {_ENOUGH_RUNS} runs differ by more than noise only if they differ a lot. More "
                "seeds tell smaller differences from noise, and so does --measure."
            )
        if sizes == {True, False}:
            notes.append(
                "A group with one run and one with several are compared by the variation between the latter's runs."
            )
        for group in self.groups:
            if group.repeats_simulation:
                notes.append(
                    f"{group.label}: the same seed was simulated more than once. These runs are copies and not "
                    "samples, so its intervals are too narrow."
                )
        return notes


def compare(groups: Sequence[Group], baseline: int = 0, names: Sequence[str] | None = None) -> Comparison:
    """Compare every group with the baseline.

    Args:
        groups: at least one, of analysed runs.
        baseline: the place of the baseline.
        names: the measures; None = every headline number that some run has.
    """
    sampled = [_estimates(group) for group in groups]
    known = dict.fromkeys([*HEADLINE, *(name for each in sampled for name in each)])
    shown = [name for name in (known if names is None else names) if any(name in each for each in sampled)]
    rows = [_row(name, [each.get(name) for each in sampled], groups, baseline) for name in shown]
    return Comparison(tuple(groups), baseline, adjust(rows))


def adjust(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Adjust the p-values of some rows for being looked at together."""
    found = [cell.difference.p for row in rows for cell in row.cells if cell.difference is not None]
    adjusted = iter(holm([p for p in found if p is not None]))

    def judged(cell: Cell) -> Cell:
        untested = cell.difference is None or cell.difference.p is None
        return replace(cell, p_adjusted=None if untested else next(adjusted))

    return tuple(Row(row.name, tuple(judged(cell) for cell in row.cells)) for row in rows)


def _estimates(group: Group) -> dict[str, Estimate]:
    if len(group.runs) == 1:
        found = _numbers(group.runs[0].summary.headline)
        return {name: estimate([value]) for name, value in found.items()} | estimate_run(group.runs[0])
    headlines = [_numbers(run.summary.headline) for run in group.runs]
    names = dict.fromkeys(name for each in headlines for name in each)
    return {name: estimate([each[name] for each in headlines if name in each]) for name in names}


def _numbers(headline: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in headline.items() if isinstance(value, int | float)}


def _row(name: str, estimates: list[Estimate | None], groups: Sequence[Group], baseline: int) -> Row:
    base = estimates[baseline]
    cells = []
    for place, (each, group) in enumerate(zip(estimates, groups, strict=True)):
        over = "messages" if len(group.runs) == 1 and each is not None and each.error is not None else "runs"
        change = None
        if place != baseline and each is not None and base is not None:
            change = _difference(each, len(group.runs) > 1, base, len(groups[baseline].runs) > 1)
        cells.append(Cell(each, over, change))
    return Row(name, tuple(cells))


def _difference(one: Estimate, one_has_runs: bool, base: Estimate, base_has_runs: bool) -> Difference:
    """Errors between messages and errors between runs are not of one kind: a lone run is judged by the other's runs."""
    if one_has_runs == base_has_runs:
        return difference(one, base)
    if base_has_runs:
        return difference_of_one(one.value, base)
    found = difference_of_one(base.value, one)
    return found._replace(value=-found.value)
