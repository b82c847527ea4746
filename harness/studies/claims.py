"""Compares the results of a study with the claims of the paper that it reproduces."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from harness.studies.form import Bounds, Cell, ClaimSpec, Shown, as_shown
from harness.studies.growth import fit_exponent
from harness.studies.results import matching, mean_of, reduce_run, values_along
from harness.studies.store import Result
from harness.studies.tables import show_interval, tabulate
from metrics.intervals import LEVEL, Interval, difference_of_pairs, holm

MET, PARTLY, NOT_MET, NOT_MEASURED = "met", "partly met", "not met", "not measured"
VERDICTS = (MET, PARTLY, NOT_MET, NOT_MEASURED)
HEAD = ("claim", "the paper", "here", "met if", "verdict")


class Finding(Struct, frozen=True):
    """What the results say of a claim.

    Attributes:
        claim: the claim.
        values: one per point that has a value.
        means: for each value the mean that it is, or the two means of which it is the quotient.
        missing: the number of points without a value.
        chances: for each value the adjusted p-value of its paired t test, if the claim needs one.
    """

    claim: ClaimSpec
    values: tuple[float, ...]
    means: tuple[tuple[Interval, ...], ...] = ()
    missing: int = 0
    chances: tuple[float, ...] = ()

    @property
    def verdict(self) -> str:
        """Return one of ``VERDICTS``; without a value a claim is not measured.

        It is met if it is at all points. It is partly met if all values are within its wider bounds or, if it has
        none, if it is met at some points.
        """
        if not self.values:
            return NOT_MEASURED
        within = [_within(value, self.claim.met) for value in self.values]
        if self.claim.same_as is not None:
            within = [chance >= 1 - LEVEL for chance in self.chances]
        elif self.claim.beyond_chance:
            within = [fits and chance < 1 - LEVEL for fits, chance in zip(within, self.chances, strict=True)]
        partly = self.claim.partly
        if all(within) and not self.missing:
            return MET
        if partly is None:
            return PARTLY if any(within) else NOT_MET
        return (
            PARTLY
            if all(_within(value, self.claim.met) or _within(value, partly) for value in self.values)
            else NOT_MET
        )


class _Value(Struct, frozen=True):
    """A value of a claim, the means that it is or is the quotient of, and the p-value of its test."""

    value: float
    means: tuple[Interval, ...]
    chance: float = 1.0


def judge(claim: ClaimSpec, results: Sequence[Result]) -> Finding:
    """Judge a claim by these results."""
    chosen = matching(results, claim.where)
    fitted = None if claim.growth is None else claim.growth.along
    axes = [axis for axis in chosen[0].at if axis != fitted] if chosen else []
    found: list[_Value] = []
    missing = 0
    for cells in product(*(values_along(chosen, axis) for axis in axes)):
        at = dict(zip(axes, cells, strict=True))
        here = matching(results, at)
        value = _grow(claim, here) if claim.growth else _measure(claim, here, matching(results, {**at, **claim.over}))
        if value is None:
            missing += bool(here)
        else:
            found.append(value)
    chances = tuple(holm([each.chance for each in found])) if claim.is_tested else ()
    return Finding(claim, tuple(each.value for each in found), tuple(each.means for each in found), missing, chances)


def _grow(claim: ClaimSpec, here: Sequence[Result]) -> _Value | None:
    assert claim.growth is not None
    along, over = claim.growth.along, claim.growth.over
    exponent = fit_exponent(here, along, over or along, as_shown(claim.of))
    return None if exponent is None else _Value(exponent.mean, (exponent,))


def _measure(claim: ClaimSpec, here: Sequence[Result], there: Sequence[Result]) -> _Value | None:
    """Return the value at a point; ``there``: the results to divide by."""
    shown, divisor = as_shown(claim.of), claim.divisor
    own = mean_of(here, shown.of, shown.by, shown.at)
    if own is None or not claim.compares:
        return None if own is None else _Value(own.mean, (own,))
    other = mean_of(there, divisor.of, divisor.by, divisor.at)
    if other is None or not other.mean:
        return None
    quotient = _Value(own.mean / other.mean, (own, other))
    if not claim.is_tested:
        return quotient
    ones, twos = _by_seed(here, shown), _by_seed(there, divisor)
    chance = difference_of_pairs([ones[seed] - twos[seed] for seed in ones if seed in twos]).p
    return None if chance is None else replace(quotient, chance=chance)


def _by_seed(runs: Sequence[Result], shown: Shown) -> dict[int, float]:
    values = {run.seed: reduce_run(run, shown.of, shown.by, shown.at) for run in runs}
    return {seed: value for seed, value in values.items() if value is not None}


def show_finding(finding: Finding) -> tuple[str, str, str, str, str]:
    """Return the cells of ``HEAD``."""
    claim = finding.claim
    return claim.text, claim.paper, show_values(finding), _show_bounds(claim), finding.verdict


def write_findings(findings: Sequence[Finding]) -> str:
    """Return the findings as a Markdown table."""
    return tabulate(HEAD, [show_finding(finding) for finding in findings])


def _within(value: float, bounds: Bounds) -> bool:
    low, high = bounds.at_least, bounds.at_most
    return (low is None or value >= low) and (high is None or value <= high)


def show_values(finding: Finding) -> str:
    """Return the value with its interval, a quotient with its two numbers, or the range of several values."""
    digits = finding.claim.digits
    if not finding.values:
        return "-"
    without = f", {finding.missing} without a value" if finding.missing else ""
    if finding.chances:
        name, shown = ("smallest p", min) if finding.claim.same_as is not None else ("largest p", max)
        without += f", {name if len(finding.values) > 1 else 'p'} {shown(finding.chances):.2g}"
    if len(finding.values) > 1:
        ends = dict.fromkeys(f"{end:.{digits}f}" for end in (min(finding.values), max(finding.values)))
        return f"{' to '.join(ends)} ({len(finding.values)} points{without})"
    means = finding.means[0]
    if len(means) == 1:
        return show_interval(means[0], f".{digits}f") + without
    return f"{finding.values[0]:.{digits}f} = {' / '.join(map(_show_mean, means))}{without}"


def _show_mean(over: Interval) -> str:
    """Return a mean with three digits. With an interval, both have the decimals that show one digit of the interval."""
    if over.half_width is None or not over.mean:
        return show_interval(over, ".3g")
    decimals = max(0, 2 - _magnitude(over.mean), -_magnitude(over.half_width) if over.half_width else 0)
    return show_interval(over, f".{decimals}f")


def _magnitude(value: float) -> int:
    """Return the power of ten of a number's first digit."""
    return math.floor(math.log10(abs(value)))


def _show_bounds(claim: ClaimSpec) -> str:
    if claim.same_as is not None:
        return "no difference (paired t tests)"
    met = " and ".join(_conditions(claim.met)) + (" and a difference (paired t tests)" if claim.beyond_chance else "")
    return met if claim.partly is None else f"{met}; partly: {' and '.join(_conditions(claim.partly))}"


def _conditions(bounds: Bounds) -> Iterator[str]:
    for sign, limit in (("≥", bounds.at_least), ("≤", bounds.at_most)):
        if limit is not None:
            yield f"{sign} {_show_cell(limit)}"


def _show_cell(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell:g}"
