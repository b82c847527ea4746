"""What a check is: its limits, its severity, its texts, and the function that judges the evidence."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from metrics.checks.evidence import Evidence
from metrics.rundata import INVALID, Check
from metrics.stalls import Late, blame

GRAVE_FACTOR = 10
"""A value over so many times its limit makes the run invalid, where the check's rule says ``grave``."""

_NS = {"ms": 1e6, "s": 1e9}

Section: TypeAlias = Literal["consistency", "certificate", "overload"]
"""The tables of docs/verdict.md."""


class Limit(Struct, frozen=True):
    """The largest value that passes. As text it has its unit, and a ratio is a percentage.

    Attributes:
        value: in ``unit``.
        unit: empty where the value has none.
    """

    value: float
    unit: str

    def __str__(self) -> str:
        """With its unit."""
        return f"{100 * self.value:g} %" if self.unit == "ratio" else f"{self.value:g} {self.unit}".rstrip()

    @property
    def ns(self) -> int:
        """A limit in ms or s in nanoseconds."""
        return round(self.value * _NS[self.unit])


class Samples(Struct, frozen=True):
    """What is late where stalls of the host may explain a failure.

    Attributes:
        things: several of them, in the check's detail.
        sample: one of them, in docs/verdict.md.
        interval: from the instant at which a sample was due to the one at which it came.
    """

    things: str
    sample: str
    interval: str


class Judgement(Struct, frozen=True):
    """What a rule finds in a run.

    Attributes:
        tested: how many things were tested; 0 where nothing could be.
        failed: how many failed; the check fails if not 0.
        worst: the worst value, in the unit of ``limit``.
        limit: of the value.
        detail: for people.
        late: samples beyond the limit; None where stalls of the host explain nothing.
        allowed: how many samples may be late before the check fails.
    """

    tested: int
    failed: int
    worst: float
    limit: Limit
    detail: str = ""
    late: Late | None = None
    allowed: int = 0


def none_of(tested: int, failed: int, unit: str, detail: str = "", worst: float | None = None) -> Judgement:
    """Nothing may fail.

    Args:
        tested: how many things were tested.
        failed: how many failed.
        unit: of ``worst``.
        detail: for people.
        worst: by how much the worst one failed; None = ``failed`` itself.
    """
    return Judgement(tested, failed, failed if worst is None else worst, Limit(0, unit), detail)


def at_most(
    limit: Limit, value: float, tested: int, detail: str, late: Late | None = None, allowed: int = 0
) -> Judgement:
    """One value, a percentile as a rule, must not exceed its limit.

    Args:
        limit: of the value.
        value: in the limit's unit.
        tested: how many samples the value is over.
        detail: for people.
        late: samples beyond the limit; None where stalls of the host explain nothing.
        allowed: how many samples may be late before the value exceeds the limit.
    """
    return Judgement(tested, int(value > limit.value), value, limit, detail, late, allowed)


def each_at_most(
    limit: Limit, values: Sequence[float], detail: str = "", late: Late | None = None, share: float = 0
) -> Judgement:
    """No value may exceed the limit, or no more than a share of them.

    Args:
        limit: of each value.
        values: in the limit's unit.
        detail: for people.
        late: values beyond the limit; None where stalls of the host explain nothing.
        share: of the values that may exceed the limit.
    """
    above = count_above(limit, values)
    failed = above if above > share * len(values) else 0
    return Judgement(len(values), failed, max(values, default=0.0), limit, detail, late)


def count_above(limit: Limit, values: Sequence[float]) -> int:
    """How many values exceed the limit."""
    return sum(1 for value in values if value > limit.value)


def allowed_beyond(samples: int, quantile: float = 0.99) -> int:
    """How many of the samples may exceed a limit before their quantile does."""
    return int((1 - quantile) * samples)


Judge: TypeAlias = Callable[..., Judgement | None]
"""Its parameters are the parts of the evidence that it needs, by name; None = there is nothing to check."""


class CheckRule(Struct, frozen=True):
    """A check. Made with ``rule``.

    Attributes:
        name: of the check, unique.
        section: the table of docs/verdict.md that has it.
        row: its name in that table, which several checks may share.
        condition: when it fails; ``{0}``, ``{1}`` ... stand for ``limits``.
        severity: what a failure makes of the run, ``invalid`` or ``suspect``.
        judge: its docstring says why the check is made.
        limits: those that the code sets; an experiment file's are in ``Evidence.limits``.
        grave: whether a value over ``GRAVE_FACTOR`` times the first limit makes the run invalid.
        samples: what stalls of the host may explain; None = nothing.
    """

    name: str
    section: Section
    row: str
    condition: str
    severity: str
    judge: Judge
    limits: tuple[Limit, ...] = ()
    grave: bool = False
    samples: Samples | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The parts of the evidence without which the check is not made."""
        return tuple(inspect.signature(self.judge).parameters)

    @property
    def fails_if(self) -> str:
        """When the check fails, with its limits."""
        return self.condition.format(*self.limits)

    @property
    def why(self) -> str:
        """Why the check is made, and how its result is to be read."""
        return " ".join((self.judge.__doc__ or "").split()).replace("``", "`")

    def check(self, evidence: Evidence) -> Check | None:
        """The check's row of the ``checks`` table; None where the run has nothing of what it needs."""
        parts = {name: getattr(evidence, name) for name in self.needs}
        found = None if any(part is None for part in parts.values()) else self.judge(**parts)
        if found is None:
            return None
        is_grave = self.grave and found.failed and found.worst > GRAVE_FACTOR * found.limit.value
        check = Check(
            name=self.name,
            tested=found.tested,
            failed=found.failed,
            worst=float(found.worst),
            tolerance=float(found.limit.value),
            unit=found.limit.unit,
            severity=INVALID if is_grave else self.severity,
            detail=found.detail,
        )
        if found.late is None:
            return check
        assert self.samples is not None, f"{self.name} does not say what its late samples are"
        return blame(check, *found.late, found.allowed, self.samples.things)


def rule(
    condition: str,
    severity: str,
    section: Section,
    *,
    limits: tuple[Limit, ...] = (),
    grave: bool = False,
    samples: Samples | None = None,
    name: str | None = None,
    row: str | None = None,
) -> Callable[[Judge], CheckRule]:
    """Make a rule of the function that judges.

    Args:
        condition: see ``CheckRule``.
        severity: likewise, as are ``section``, ``limits``, ``grave`` and ``samples``.
        section: of docs/verdict.md.
        limits: that the condition names.
        grave: whether far larger values are graver.
        samples: what stalls of the host may explain.
        name: of the check; None = the function's.
        row: in docs/verdict.md; None = the check's name.
    """

    def make(judge: Judge) -> CheckRule:
        own = name or judge.__name__
        return CheckRule(own, section, row or own, condition, severity, judge, limits, grave, samples)

    return make
