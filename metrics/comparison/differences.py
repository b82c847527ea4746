"""Compare every group with the baseline, measure by measure."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from metrics.comparison.groups import Group
from metrics.comparison.resampling import numbers_of, sample_run
from metrics.comparison.samples import Over, Sample, contrast
from metrics.intervals import Difference, Estimate, holm
from metrics.measures.registry import HEADLINE, find_measure

ERROR_RATE = 0.05
"""The share of comparisons of equal groups in which at least one difference is called real."""

_LEAST_P = 0.001
"""The smallest p-value that is written out."""

_ENOUGH_RUNS = 5

_SEEDS_NAMED = 8
_SETTINGS_NAMED = 3

MESSAGES_NOTE = (
    "The interval of a group with one run covers only the variation between the messages of that run: another seed or "
    "repeat may differ by more."
)


def describe_p(p: float) -> str:
    """Return a p-value with its sign, such as ``= 0.02``."""
    return f"= {p:.2g}" if p == 0 or p >= _LEAST_P else f"< {_LEAST_P}"


class Cell(Struct, frozen=True):
    """A measure in a group."""

    sample: Sample | None  # None if no run of the group has a value
    difference: Difference | None = None  # to the baseline; None in the baseline, and if one of them has no value
    p_adjusted: float | None = None  # by Holm's method over all differences shown

    @property
    def estimate(self) -> Estimate | None:
        return None if self.sample is None else self.sample.estimate

    @property
    def over(self) -> Over:
        return "runs" if self.sample is None else self.sample.over

    @property
    def is_real(self) -> bool | None:
        """Whether the difference is more than noise; None if that cannot be judged."""
        return None if self.p_adjusted is None else self.p_adjusted < ERROR_RATE


class Row(Struct, frozen=True):
    """A measure, with one cell per group in the groups' order."""

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
        """What a reader must know about the numbers: how noise is judged, and what the intervals cover."""
        tested = sum(cell.p_adjusted is not None for row in self.rows for cell in row.cells)
        sizes = {len(group.runs) == 1 for group in self.groups}
        notes = []
        if len(self.groups) > 1:
            notes.append(
                f"Noise: if no group differs from the baseline, at least one of the {tested} judged differences is "
                f"called real in {'about' if sizes == {True} else 'at most'} {100 * ERROR_RATE:g} % of the comparisons "
                "(Holm's method over all of them). Intervals are of 95 %. A two-sided p-value belongs to "
                "the hypothesis that a measure by itself does not differ from the baseline; "
                "adjusted p-values take the number of differences into account, which --measure reduces. A measure "
                "that is constant within both groups has the p-value of a permutation test: 0.33 for two runs in each, "
                "0.1 for three, 0.008 for five."
            )
            notes += self._notes_on_pairs()
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
            if mixed := group.mixed:
                named = ", ".join(mixed[:_SETTINGS_NAMED]) + (", ..." if len(mixed) > _SETTINGS_NAMED else "")
                notes.append(
                    f"{group.label}: its runs differ in {named}. They are not samples of one experiment, so its "
                    "numbers are means over different experiments."
                )
            notes += [f"{group.label}: {remark}." for remark in group.degeneracies]
            if group.repeats_simulation:
                notes.append(
                    f"{group.label}: the same seed was simulated more than once. These runs are copies and not "
                    "samples, so its intervals are too narrow."
                )
        return notes

    def _notes_on_pairs(self) -> list[str]:
        """Return which groups are compared with the baseline in pairs, and why others are not."""
        base = self.groups[self.baseline]
        others = [group for place, group in enumerate(self.groups) if place != self.baseline]
        paired = [group.label for group in others if group.is_paired_with(base)]
        notes = []
        if paired:
            notes.append(f"Compared with the baseline in pairs of runs of one seed: {'; '.join(paired)}.")
        for group in others:
            if group.label not in paired:
                lone = sorted(set(group.seeds) ^ set(base.seeds))
                why = f"only one of them has the seeds {_name_seeds(lone)}" if lone else "a seed ran more than once"
                notes.append(f"Not in pairs: {group.label} and the baseline, because {why}. Pairs need fewer seeds.")
        return notes


def _name_seeds(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds[:_SEEDS_NAMED])) + (", ..." if len(seeds) > _SEEDS_NAMED else "")


def compare(groups: Sequence[Group], baseline: int = 0, names: Sequence[str] | None = None) -> Comparison:
    """Compare every group with the baseline.

    Args:
        groups: at least one, of analysed runs.
        baseline: the place of the baseline.
        names: the measures; None = every headline number that some run has.
    """
    sampled = [_sample(group, names) for group in groups]
    known = dict.fromkeys([*HEADLINE, *(name for each in sampled for name in each)])
    shown = [name for name in (known if names is None else names) if any(name in each for each in sampled)]
    rows = [_row(name, [each.get(name) for each in sampled], groups, baseline) for name in shown]
    return Comparison(tuple(groups), baseline, adjust(rows))


def adjust(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Adjust the p-values of some rows that are read together."""
    found = [cell.difference.p for row in rows for cell in row.cells if cell.difference is not None]
    adjusted = iter(holm([p for p in found if p is not None]))

    def judged(cell: Cell) -> Cell:
        untested = cell.difference is None or cell.difference.p is None
        return replace(cell, p_adjusted=None if untested else next(adjusted))

    return tuple(Row(row.name, tuple(judged(cell) for cell in row.cells)) for row in rows)


def _sample(group: Group, names: Sequence[str] | None) -> dict[str, Sample]:
    if len(group.runs) == 1:
        return sample_run(group.runs[0], names)
    found = [(run.plan.seed, numbers_of(run)) for run in group.runs]
    known = dict.fromkeys(name for _, numbers in found for name in numbers)
    having = {name: [(seed, numbers[name]) for seed, numbers in found if name in numbers] for name in known}
    return {
        name: Sample(tuple(seed for seed, _ in each), tuple(value for _, value in each), False)
        for name, each in having.items()
    }


def _row(name: str, samples: Sequence[Sample | None], groups: Sequence[Group], baseline: int) -> Row:
    base = samples[baseline]
    cells = []
    for place, (each, group) in enumerate(zip(samples, groups, strict=True)):
        change = None
        if place != baseline and each is not None and base is not None:
            change = contrast(each, base, paired=group.is_paired_with(groups[baseline])).judged
        cells.append(Cell(each, change))
    return Row(name, tuple(cells))
