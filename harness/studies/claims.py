"""Compares the results of a study with the claims of the paper that it reproduces."""

from collections.abc import Iterator, Sequence
from itertools import product

from msgspec import Struct

from harness.studies.form import Bounds, Cell, ClaimSpec, as_shown
from harness.studies.results import matching, mean_of, values_along
from harness.studies.store import Result
from harness.studies.tables import tabulate

MET, PARTLY, NOT_MET = "met", "partly met", "not met"
HEAD = ("claim", "the paper", "here", "met if", "")


class Finding(Struct, frozen=True):
    """What the results say of a claim.

    Attributes:
        claim: the claim.
        values: one per point that has a value.
        compared: the two numbers of which each of the values is the quotient, if it is one.
        missing: the number of points without a value.
    """

    claim: ClaimSpec
    values: tuple[float, ...]
    compared: tuple[tuple[float, float], ...] = ()
    missing: int = 0

    @property
    def verdict(self) -> str:
        """Return whether the claim is met, or nothing without a value.

        It is met if it is at all points. It is partly met if all values are within its wider bounds or, if it has
        none, if it is met at some points.
        """
        if not self.values:
            return ""
        within = [_within(value, self.claim.met) for value in self.values]
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


def judge(claim: ClaimSpec, results: Sequence[Result]) -> Finding:
    """Judge a claim by these results."""
    shown = as_shown(claim.of)
    chosen = matching(results, claim.where)
    axes = list(chosen[0].at) if chosen else []
    values, compared, missing = [], [], 0
    for cells in product(*(values_along(chosen, axis) for axis in axes)):
        at = dict(zip(axes, cells, strict=True))
        here = matching(results, at)
        own = mean_of(here, shown.of, shown.by, shown.at)
        other_at = shown.at if claim.over_at is None else claim.over_at
        other = mean_of(matching(results, {**at, **claim.over}), shown.of, shown.by, other_at)
        if own is None or other is None or (claim.compares and not other.mean):
            missing += bool(here)
        elif claim.compares:
            values.append(own.mean / other.mean)
            compared.append((own.mean, other.mean))
        else:
            values.append(own.mean)
    return Finding(claim, tuple(values), tuple(compared), missing)


def show_finding(finding: Finding) -> tuple[str, str, str, str, str]:
    """Return the cells of ``HEAD``."""
    claim = finding.claim
    return claim.text, claim.paper, _show_values(finding), _show_bounds(claim), finding.verdict or "-"


def write_findings(findings: Sequence[Finding]) -> str:
    """Return the findings as a Markdown table."""
    return tabulate(HEAD, [show_finding(finding) for finding in findings])


def _within(value: float, bounds: Bounds) -> bool:
    low, high = bounds.at_least, bounds.at_most
    return (low is None or value >= low) and (high is None or value <= high)


def _show_values(finding: Finding) -> str:
    digits = finding.claim.digits
    if not finding.values:
        return "-"
    without = f", {finding.missing} without a value" if finding.missing else ""
    if len(finding.values) > 1:
        low, high = min(finding.values), max(finding.values)
        return f"{low:.{digits}f} to {high:.{digits}f} ({len(finding.values)} points{without})"
    text = f"{finding.values[0]:.{digits}f}"
    return text + "".join(f" = {own:.3g} / {other:.3g}" for own, other in finding.compared) + without


def _show_bounds(claim: ClaimSpec) -> str:
    met = " and ".join(_conditions(claim.met))
    return met if claim.partly is None else f"{met}; partly: {' and '.join(_conditions(claim.partly))}"


def _conditions(bounds: Bounds) -> Iterator[str]:
    for sign, limit in (("≥", bounds.at_least), ("≤", bounds.at_most)):
        if limit is not None:
            yield f"{sign} {_show_cell(limit)}"


def _show_cell(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell:g}"
