"""Conditions on differences, such as ``propagation_delay_ms_p99 > +5%``. A comparison fails if one is met."""

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct

from metrics.comparison.differences import ERROR_RATE, Comparison, Row, describe_p
from metrics.comparison.power import MOST_ADVISED, more_needed
from metrics.comparison.samples import Sample, contrast
from metrics.intervals import Contrast, holm, t_quantile
from metrics.measures.registry import HEADLINE

_FORM = re.compile(r"\s*(\w+)\s*([<>])\s*([+-])\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*")

_EXAMPLE = "write, for example, 'propagation_delay_ms_p99 > +5%' or 'delivery_ratio < -0.01'"


class ConditionError(ValueError):
    """A condition is malformed or names no measure; the message shows what to write."""


class Condition(Struct, frozen=True):
    """The condition that a measure is above (or below) the baseline by more than a bound."""

    measure: str
    above: bool  # whether it is met above the bound; otherwise it is met below
    bound: float  # of the size of the difference, >= 0: in the measure's unit, or in percent of the baseline
    in_percent: bool

    def __str__(self) -> str:
        sign, percent = (">", "+") if self.above else ("<", "-"), "%" if self.in_percent else ""
        return f"{self.measure} {sign[0]} {sign[1]}{self.bound:.15g}{percent}"

    def describe(self, *, met: bool) -> str:
        """Return a clause about the measure if the condition is met, or is not met, such as ``is not below ...``."""
        where = f"{'above' if self.above else 'below'} the baseline"
        if self.bound:
            bound = f"more than {self.bound:.15g}"
            where = f"{bound} % {where}" if self.in_percent else f"{where} by {bound}"
        return f"is {'' if met else 'not '}{where}"

    def limit(self, baseline: float) -> Callable[[float], float]:
        """Return the function from a value of the baseline to the value that must not be passed.

        Args:
            baseline: the mean of the baseline's values: percents are of its size.
        """
        size = self.bound if self.above else -self.bound
        if self.in_percent:
            factor = 1 + (size if baseline >= 0 else -size) / 100
            return lambda value: value * factor
        return lambda value: value + size


State = Literal["met", "not met", "undecided"]


class Outcome(Struct, frozen=True):
    """A condition in one group, and a sentence that says why.

    Attributes:
        more_runs: if it is undecided, about how many more runs of each group decide it; None if that is not known.
    """

    condition: Condition
    group: str
    state: State
    words: str
    more_runs: int | None = None


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        ConditionError: it has another form, or names no measure.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConditionError(
            f"'{text}' is not a condition; {_EXAMPLE}: the sign says that the bound is of a difference"
        )
    name, operator, sign, bound, percent = found.groups()
    check_measure(name)
    if (operator == ">") != (sign == "+"):
        raise ConditionError(f"'{text}': '>' needs a bound with '+', and '<' one with '-'; {_EXAMPLE}")
    return Condition(name, operator == ">", float(bound), bool(percent))


def check_measure(name: str) -> None:
    """Check that a headline number has this name.

    Raises:
        ConditionError: no number has it; the message names similar names.
    """
    if name in HEADLINE:
        return
    similar = get_close_matches(name, HEADLINE, n=3)
    hint = f"; similar: {', '.join(similar)}" if similar else "; `trellis compare RUN` prints all names"
    raise ConditionError(f"no measure is called '{name}'{hint}")


class _Candidate(Struct, frozen=True):
    """A condition in a group before the outcomes are known.

    Attributes:
        excess: by how much the value passes the limit, above 0 if it does; None if a value is missing.
        shown: the difference for people; empty if a value is missing.
        unit: what more of would decide, such as "pairs of runs"; None if that is not known.
    """

    condition: Condition
    group: str
    excess: Contrast | None
    shown: str
    unit: str | None


def judge(conditions: Sequence[Condition], comparison: Comparison) -> list[Outcome]:
    """Judge every condition in every group but the baseline.

    A condition is met if the runs show that the true difference is beyond the bound, not met if they show that it is
    within, and undecided otherwise. Both are one-sided t tests at 5 % of the difference from the bound (two one-sided
    tests: D. J. Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987). A bound in percent is a factor
    on the baseline's values, so that the baseline's own variation counts (D. Hauschke et al., Statistics in Medicine
    18, 1999).

    The p-values of "met" are adjusted for the number of conditions and groups (Holm's method). Those of "not met" are
    not: a comparison passes only if no condition is met or undecided (R. L. Berger, Technometrics 24, 1982).

    Args:
        conditions: at least one.
        comparison: compares at least two groups, with a row for each measure of the conditions that has a value.
    """
    rows = {row.name: row for row in comparison.rows}
    found = [
        _candidate(condition, comparison, place, rows.get(condition.measure))
        for condition in conditions
        for place in range(len(comparison.groups))
        if place != comparison.baseline
    ]
    tested = [p for each in found if each.excess is not None and (p := each.excess.p_above) is not None]
    adjusted = iter(holm(tested))
    return [_decide(each, adjusted) for each in found]


def _candidate(condition: Condition, comparison: Comparison, place: int, row: Row | None) -> _Candidate:
    group, base_group = comparison.groups[place], comparison.groups[comparison.baseline]
    one, base = (None, None) if row is None else (row.cells[place].sample, row.cells[comparison.baseline].sample)
    if one is None or base is None:
        return _Candidate(condition, group.label, None, "", None)
    paired = group.is_paired_with(base_group)
    excess = excess_of(condition, one, base, paired=paired)
    change = contrast(one, base, paired=paired).value
    percent = f" ({change / abs(base.estimate.value):+.2%})".replace("%", " %") if base.estimate.value else ""
    shown = f"difference {change:+.4g}{percent}"
    unit = None if one.alone or base.alone else "pairs of runs" if len(excess.sizes) == 1 else "runs in each group"
    return _Candidate(condition, group.label, excess, shown, unit)


def excess_of(condition: Condition, one: Sample, baseline: Sample, *, paired: bool) -> Contrast:
    """Estimate by how much a sample passes a condition's limit; below 0 if it keeps it.

    Args:
        condition: the condition on the sample's measure.
        one: the sample of the group.
        baseline: the sample of the baseline.
        paired: whether the groups have the same seeds, each once.
    """
    found = contrast(one, baseline.map(condition.limit(baseline.estimate.value)), paired=paired)
    return found if condition.above else found._replace(value=-found.value)


def decide(excess: Contrast, p_above: float) -> State:
    """Judge an excess whose error is known. ``p_above``: adjusted for all conditions that are judged together."""
    if p_above < ERROR_RATE:
        return "met"
    if excess.error == 0:
        return "not met" if excess.value <= 0 else "undecided"
    assert excess.p_above is not None, "the error is known"
    return "not met" if 1 - excess.p_above < ERROR_RATE else "undecided"


def _decide(candidate: _Candidate, adjusted: Iterator[float]) -> Outcome:
    """Judge one condition. ``adjusted``: the p-values of "met" that are left, in the candidates' order."""
    condition, excess = candidate.condition, candidate.excess
    p = 1.0
    state: State = "undecided"
    if excess is None:
        words = "the group or the baseline has no value"
    elif excess.p_above is None:
        words = f"{candidate.shown}, whose noise is unknown: it needs at least two runs in the group or the baseline"
    else:
        p = next(adjusted)
        state = decide(excess, p)
        words = f"{candidate.shown}, {_describe_margin(excess, p)}"
    more: int | None = None
    if state == "undecided":
        known = excess is not None and excess.p_above is not None
        more = more_needed(excess, ERROR_RATE) if excess is not None and known and candidate.unit is not None else None
        advice = f"; {_advise(more, candidate.unit)}" if known else ""
        words = f"the runs do not show whether it {condition.describe(met=True)}: {words}{advice}"
    else:
        words = f"the runs show that it {condition.describe(met=state == 'met')}: {words}"
    return Outcome(condition, candidate.group, state, words, more)


def _describe_margin(excess: Contrast, adjusted: float) -> str:
    """Return how far the difference is from the bound, with the interval that belongs to the two one-sided tests."""
    side = "beyond" if excess.value > 0 else "within"
    assert excess.p_above is not None and excess.error is not None and excess.degrees is not None, "the error is known"
    p = f"p {describe_p(excess.p_above if excess.value > 0 else 1 - excess.p_above)}"
    if excess.value > 0 and adjusted != excess.p_above:
        p += f", adjusted {describe_p(adjusted)}"
    if excess.error == 0:
        return f"{side} the bound in every run" + (f" (permutation test: {p})" if excess.value > 0 else "")
    half_width = t_quantile(1 - 2 * ERROR_RATE, excess.degrees) * excess.error
    margin = f"{abs(excess.value):.3g} ± {half_width:.2g}"
    return f"{side} the bound by {margin} ({1 - 2 * ERROR_RATE:.0%} interval; one-sided {p})".replace("%", " %")


def _advise(more: int | None, unit: str | None) -> str:
    """Return how many more runs are likely to decide a condition."""
    if unit is None:
        return "the variation between the runs of a group is unknown: run several seeds of both"
    return f"{'more than ' if more is None else 'about '}{MOST_ADVISED if more is None else more} more {unit} decide it"
