"""Conditions on differences, such as ``propagation_delay_ms_p99 > +5%``, by which a comparison fails."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct

from metrics.comparison.differences import Comparison, Row, adjust
from metrics.measures.registry import HEADLINE

_FORM = re.compile(r"\s*(\w+)\s*([<>])\s*([+-])\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*")

_EXAMPLE = "write, for example, 'propagation_delay_ms_p99 > +5%' or 'delivery_ratio < -0.01'"


class ConditionError(ValueError):
    """A condition is malformed or names no measure; the message says what to write."""


class Condition(Struct, frozen=True):
    """A measure that must not be above (or below) the baseline by more than a bound."""

    measure: str
    above: bool  # it fails above the bound; otherwise below
    bound: float  # of the size of the difference, >= 0: in the measure's unit, or in percent of the baseline
    in_percent: bool

    def __str__(self) -> str:
        sign, percent = (">", "+") if self.above else ("<", "-"), "%" if self.in_percent else ""
        return f"{self.measure} {sign[0]} {sign[1]}{self.bound:.15g}{percent}"

    def is_exceeded(self, difference: float, baseline: float) -> bool:
        """Whether a difference to a baseline's value is beyond the bound."""
        bound = abs(baseline) * self.bound / 100 if self.in_percent else self.bound
        return difference > bound if self.above else difference < -bound


class Outcome(Struct, frozen=True):
    """A condition in one group; ``unknown``: it could not be judged, ``words`` say why."""

    condition: Condition
    group: str
    state: Literal["failed", "passed", "unknown"]
    words: str


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
        ConditionError: none has; the message names similar ones.
    """
    if name in HEADLINE:
        return
    similar = get_close_matches(name, HEADLINE, n=3)
    hint = f"; similar: {', '.join(similar)}" if similar else "; `trellis compare RUN` prints all names"
    raise ConditionError(f"no measure is called '{name}'{hint}")


def judge(conditions: Sequence[Condition], comparison: Comparison) -> list[Outcome]:
    """Judge every condition in every group but the baseline.

    A condition fails if the difference is beyond its bound and more than noise. The error rate holds for all conditions
    together (Holm's method over their measures and groups), whatever else the comparison shows.

    Args:
        conditions: at least one.
        comparison: of at least two groups, with a row for each measure of the conditions that has a value.
    """
    wanted = {condition.measure for condition in conditions}
    rows = {row.name: row for row in adjust([row for row in comparison.rows if row.name in wanted])}
    return [
        _outcome(condition, comparison, place, rows.get(condition.measure))
        for condition in conditions
        for place in range(len(comparison.groups))
        if place != comparison.baseline
    ]


def _outcome(condition: Condition, comparison: Comparison, place: int, row: Row | None) -> Outcome:
    group = comparison.groups[place].label
    cell, base = (None, None) if row is None else (row.cells[place], row.cells[comparison.baseline].estimate)
    if cell is None or cell.difference is None or base is None:
        return Outcome(condition, group, "unknown", "the group or the baseline has no value")
    change = cell.difference.value
    size = f"{change:+.4g}" + (f" ({change / abs(base.value):+.2%})" if base.value else "")
    if not condition.is_exceeded(change, base.value):
        return Outcome(condition, group, "passed", f"difference {size}")
    if cell.p_adjusted is None:
        words = f"difference {size}, whose noise is unknown: it needs at least two runs in the group or the baseline"
        return Outcome(condition, group, "unknown", words)
    if cell.is_real:
        return Outcome(condition, group, "failed", f"difference {size}, more than noise (p = {cell.p_adjusted:.2g})")
    return Outcome(condition, group, "passed", f"difference {size}, which could be noise (p = {cell.p_adjusted:.2g})")
