"""Compares the results of a study with the claims of the paper that it reproduces."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from harness.studies.form import Bounds, Cell, ClaimSpec, Shown, as_shown
from harness.studies.growth import fit_exponent
from harness.studies.measures import MEASURES, OUTAGE, RECOVERY, split_reduction
from harness.studies.results import matching, mean_of, reduce_run, values_along
from harness.studies.store import Result
from harness.studies.tables import show_interval, tabulate
from metrics.intervals import LEVEL, Interval, difference_of_pairs, holm, quotient_ends
from metrics.measures.learning import SCORES

MET, PARTLY, UNDECIDED, NOT_MET = "met", "partly met", "undecided", "not met"
IRREPRODUCIBLE, REPORTED, NOT_MEASURED = "irreproducible", "reported", "not measured"
VERDICTS = (MET, PARTLY, UNDECIDED, NOT_MET, IRREPRODUCIBLE, REPORTED, NOT_MEASURED)
HEAD = ("claim", "the paper", "here", "met if", "verdict")

Ends = tuple[float, float]
"""The ends of a 95 % confidence interval."""


class Finding(Struct, frozen=True):
    """What the results say of a claim.

    Attributes:
        claim: the claim.
        values: one per point that has a value.
        means: for each value the mean that it is, or the two means of which it is the quotient.
        missing: the number of points without a value.
        chances: for each value the adjusted p-value of its paired t test, if the claim is ``same_as``.
        ends: for each value the ends of its interval; None for a value of a single seed.
    """

    claim: ClaimSpec
    values: tuple[float, ...]
    means: tuple[tuple[Interval, ...], ...] = ()
    missing: int = 0
    chances: tuple[float, ...] = ()
    ends: tuple[Ends | None, ...] = ()

    @property
    def verdict(self) -> str:
        """Return one of ``VERDICTS``; without a value a claim is not measured.

        It is met if it is at all points. It is partly met if all values are within its wider bounds or, if it has
        none, if it is met at some points. It is undecided if this depends on a point whose interval crosses a bound.
        """
        if not self.values:
            return NOT_MEASURED
        if self.claim.reported:
            return REPORTED
        verdict = self._judge(set(self.verdicts))
        return IRREPRODUCIBLE if verdict == NOT_MET and self.claim.irreproducible else verdict

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Return the verdict of each value: met, partly met, undecided or not met."""
        if self.claim.same_as is not None:
            return tuple(MET if chance >= 1 - LEVEL else NOT_MET for chance in self.chances)
        return tuple(map(self._judge_value, self.values, self.ends))

    def _judge_value(self, value: float, ends: Ends | None) -> str:
        met, partly = self.claim.met, self.claim.partly
        limits = [limit for bounds in (met, partly or met) for limit in (bounds.at_least, bounds.at_most)]
        if ends is not None and any(limit is not None and ends[0] < limit < ends[1] for limit in limits):
            return UNDECIDED
        if _within(value, met):
            return MET
        return PARTLY if partly is not None and _within(value, partly) else NOT_MET

    def _judge(self, found: Collection[str]) -> str:
        """Return the verdict on all points, from those that occur."""
        if found == {MET}:
            return PARTLY if self.missing else MET
        if self.claim.partly is None:
            if {MET, NOT_MET} <= set(found) or (MET in found and self.missing):
                return PARTLY
            return UNDECIDED if UNDECIDED in found else NOT_MET
        if NOT_MET in found:
            return NOT_MET
        return UNDECIDED if UNDECIDED in found else PARTLY


def combine_verdicts(verdicts: Iterable[str]) -> str:
    """Return the verdict on a statement of the paper from those of several claims about it.

    It is met if all are met, and partly met if some are and others are not. It is undecided if this depends on a claim
    that is undecided or not measured. Claims that are only reported do not matter beside judged ones.
    """
    found = set(verdicts)
    judged = found - {REPORTED, NOT_MEASURED}
    if not judged:
        return REPORTED if REPORTED in found else NOT_MEASURED
    if len(judged) == 1 and not (MET in judged and NOT_MEASURED in found):
        return judged.pop()
    if PARTLY in judged or (MET in judged and not judged.isdisjoint({NOT_MET, IRREPRODUCIBLE})):
        return PARTLY
    return UNDECIDED if MET in judged or UNDECIDED in judged else NOT_MET


def judge_statements(findings: Sequence[Finding], reading: str = "") -> list[str]:
    """Return the verdict of each statement that these claims are about; claims with the same ``number`` are about one.

    Args:
        findings: the judged claims.
        reading: the reading of the paper that is chosen. It alone decides on a statement that it is a reading of.
    """
    statements: dict[tuple[str, int], list[Finding]] = {}
    for place, finding in enumerate(findings):
        number = finding.claim.number
        statements.setdefault((number, -1) if number else ("", place), []).append(finding)
    return [
        combine_verdicts(each.verdict for each in _of_reading(claims, reading) or claims)
        for claims in statements.values()
    ]


def _of_reading(findings: Sequence[Finding], reading: str) -> list[Finding]:
    return [each for each in findings if reading and each.claim.reading == reading]


class _Value(Struct, frozen=True):
    """A value of a claim, the means that it is or is the quotient of, its interval, and the p-value of its test."""

    value: float
    means: tuple[Interval, ...]
    ends: Ends | None
    chance: float = 1.0


def judge(claim: ClaimSpec, results: Sequence[Result], points: Iterable[Mapping[str, Cell]] = ()) -> Finding:
    """Judge a claim by these results.

    Args:
        claim: the claim.
        results: the results.
        points: the points of the study. Those without results are points without a value, if the claim has any value.
    """
    chosen = matching(results, claim.where)
    if not chosen:
        return Finding(claim, ())
    fitted = None if claim.growth is None else claim.growth.along
    axes = [axis for axis in chosen[0].at if axis != fitted]
    asked = {
        tuple(at[axis] for axis in axes)
        for at in points
        if all(at[axis] == value for axis, value in claim.where.items())
    }
    found: list[_Value] = []
    missing = 0
    for cells in dict.fromkeys((*product(*(values_along(chosen, axis) for axis in axes)), *asked)):
        at = dict(zip(axes, cells, strict=True))
        here = matching(results, at)
        value = _grow(claim, here) if claim.growth else _measure(claim, here, matching(results, {**at, **claim.over}))
        if value is None:
            missing += bool(here) or cells in asked
        else:
            found.append(value)
    chances = tuple(holm([each.chance for each in found])) if claim.same_as is not None else ()
    return Finding(
        claim,
        tuple(each.value for each in found),
        tuple(each.means for each in found),
        missing,
        chances,
        tuple(each.ends for each in found),
    )


def _grow(claim: ClaimSpec, here: Sequence[Result]) -> _Value | None:
    assert claim.growth is not None
    along, over = claim.growth.along, claim.growth.over
    exponent = fit_exponent(here, along, over or along, as_shown(claim.of))
    return None if exponent is None else _Value(exponent.mean, (exponent,), _ends(exponent, -math.inf, math.inf))


def _measure(claim: ClaimSpec, here: Sequence[Result], there: Sequence[Result]) -> _Value | None:
    """Return the value at a point; ``there``: the results to divide by."""
    shown, divisor = as_shown(claim.of), claim.divisor
    own = mean_of(here, shown.of, shown.by, shown.at)
    if own is None or not claim.compares:
        return None if own is None else _Value(own.mean, (own,), _ends(own, *_possible(shown)))
    other = mean_of(there, divisor.of, divisor.by, divisor.at)
    if other is None or not other.mean:
        return None
    one_by_seed, other_by_seed = _by_seed(here, shown), _by_seed(there, divisor)
    pairs = [(one, other_by_seed[seed]) for seed, one in one_by_seed.items() if seed in other_by_seed]
    ends = quotient_ends([one for one, _ in pairs], [two for _, two in pairs])
    quotient = _Value(own.mean / other.mean, (own, other), ends)
    if claim.same_as is None:
        return quotient
    chance = difference_of_pairs([one - two for one, two in pairs]).p if pairs else None
    return None if chance is None else replace(quotient, chance=chance)


def _ends(over: Interval, low: float, high: float) -> Ends | None:
    """Return the ends of a mean's interval, within the values that are possible at all."""
    if over.half_width is None:
        return None
    return max(low, over.mean - over.half_width), min(high, over.mean + over.half_width)


def _possible(shown: Shown) -> Ends:
    """Return the least and the greatest value that a measure or its reduction can have.

    A hit ratio cannot exceed 1, so one run in which a message is lost refutes "all messages arrive", and no interval
    makes it undecided. Of all measures, only scores may be negative.
    """
    reduction, name = split_reduction(shown.of)
    if name in SCORES.names and reduction not in (OUTAGE, RECOVERY):
        return -math.inf, math.inf
    if reduction == "change":
        return -1.0, math.inf
    is_share = MEASURES[name].unit == "ratio" and reduction not in (OUTAGE, RECOVERY)
    return 0.0, 1.0 if is_share else math.inf


def _by_seed(runs: Sequence[Result], shown: Shown) -> dict[int, float]:
    values = {run.seed: reduce_run(run, shown.of, shown.by, shown.at) for run in runs}
    return {seed: value for seed, value in values.items() if value is not None}


def show_finding(finding: Finding) -> tuple[str, str, str, str, str]:
    """Return the cells of ``HEAD``."""
    claim = finding.claim
    return claim.text, claim.paper, show_values(finding), _show_bounds(claim), finding.verdict


def by_source(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """Return the findings about the paper's statements and those about ours, with titles; no part that has none."""
    parts = [
        ("Claims of the paper", [each for each in findings if not each.claim.ours]),
        ("Beyond the paper", [each for each in findings if each.claim.ours]),
    ]
    return [(title, found) for title, found in parts if found]


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
        without += f", {'smallest p' if len(finding.values) > 1 else 'p'} {min(finding.chances):.2g}"
    if len(finding.values) > 1:
        ends = dict.fromkeys(f"{end:.{digits}f}" for end in (min(finding.values), max(finding.values)))
        return f"{' to '.join(ends)} ({len(finding.values)} points{without})"
    means = finding.means[0]
    if len(means) == 1:
        return show_interval(means[0], f".{digits}f") + without
    quotient = f"{finding.values[0]:.{digits}f}{_show_ends(finding.ends[0], digits)}"
    return f"{quotient} = {' / '.join(map(_show_mean, means))}{without}"


def _show_ends(ends: Ends | None, digits: int) -> str:
    return "" if ends is None else f" ({ends[0]:.{digits}f} to {ends[1]:.{digits}f})"


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
    if claim.reported:
        return "not judged"
    if claim.same_as is not None:
        return "no difference (paired t tests)"
    met = " and ".join(_conditions(claim.met))
    return met if claim.partly is None else f"{met}; partly: {' and '.join(_conditions(claim.partly))}"


def _conditions(bounds: Bounds) -> Iterator[str]:
    for sign, limit in (("≥", bounds.at_least), ("≤", bounds.at_most)):
        if limit is not None:
            yield f"{sign} {_show_cell(limit)}"


def _show_cell(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell:g}"
