"""What a check is: when it fails, what a failure makes of the run, and the function that judges the evidence."""

import inspect
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from metrics.rundir import INVALID, Check
from metrics.stalls import Late

GRAVE_FACTOR = 10
"""A value above this many times its limit makes the run invalid if the check's rule says ``grave``."""

_NS = {"ms": 1e6, "s": 1e9}


class Limit(Struct, frozen=True):
    """The largest value that passes, in ``unit``. As text it has its unit, and a ratio is a percentage."""

    value: float
    unit: str

    def __str__(self) -> str:
        """Return the value with its unit."""
        return f"{100 * self.value:g} %" if self.unit == "ratio" else f"{self.value:g} {self.unit}".rstrip()

    @property
    def ns(self) -> int:
        """A limit in ms or s in nanoseconds."""
        return round(self.value * _NS[self.unit])


class Judgement(Struct, frozen=True):
    """What a rule finds in a run."""

    tested: int  # how many things were tested; 0 if nothing could be
    failed: int  # how many failed; the check fails if not 0
    worst: float  # the worst value, in the unit of ``limit``
    limit: Limit  # of the value
    detail: str = ""  # for people
    late: Late | None = None  # samples beyond the limit; None = stalls of the host explain nothing here
    allowed: int = 0  # how many samples may be late before the check fails


def none_of(tested: int, failed: int, unit: str, detail: str = "", worst: float | None = None) -> Judgement:
    """Judge that nothing may fail.

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
    """Judge that one value, usually a percentile, must not exceed its limit.

    Args:
        limit: of the value.
        value: in the limit's unit.
        tested: how many samples the value is over.
        detail: for people.
        late: see ``Judgement``.
        allowed: see ``Judgement``.
    """
    return Judgement(tested, int(value > limit.value), value, limit, detail, late, allowed)


def share_at_most(limit: Limit, values: Sequence[float], share: float, detail: str = "") -> Judgement:
    """Judge that no more than a share of the values may exceed the limit.

    Args:
        limit: of each value.
        values: in the limit's unit.
        share: of the values that may exceed the limit.
        detail: for people; ``{above}`` stands for the number of values above the limit.
    """
    above = sum(1 for value in values if value > limit.value)
    failed = above if above > share * len(values) else 0
    return Judgement(len(values), failed, max(values, default=0.0), limit, detail.format(above=above))


class CheckRule(Struct, frozen=True):
    """A check.

    The paragraphs of the judge's docstring are the check's texts in docs/verdict.md: when it fails, why that matters
    and, if stalls of the host can explain a failure, what a late sample is. ``{0}``, ``{1}`` ... stand for the limits.
    """

    name: str  # of the check, unique
    section: str  # the table of docs/verdict.md that has it
    severity: str  # what a failure makes of the run, ``invalid`` or ``suspect``
    judge: Callable[..., Judgement | None]  # of the parts of the evidence that its parameters without default name
    limits: tuple[Limit, ...] = ()  # those that the code sets; an experiment file's are in the evidence
    grave: bool = False  # whether a value above ``GRAVE_FACTOR`` times the limit makes the run invalid
    things: str = ""  # what late samples are called in the check's detail

    @property
    def needs(self) -> tuple[str, ...]:
        """The parts of the evidence without which the check is not made."""
        parameters = inspect.signature(self.judge).parameters.values()
        return tuple(each.name for each in parameters if each.default is each.empty)

    @property
    def texts(self) -> tuple[str, ...]:
        """The check's texts in docs/verdict.md (``judge``)."""
        text = (self.judge.__doc__ or "").format(*self.limits).replace("``", "`")
        return tuple(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))

    def check(self, evidence: object) -> Check | None:
        """Return the row of the ``checks`` table; None if the run lacks a part that the check needs."""
        parts = [getattr(evidence, name) for name in self.needs]
        found = None if any(part is None for part in parts) else self.judge(*parts)
        if found is None:
            return None
        is_grave = self.grave and found.failed and found.worst > GRAVE_FACTOR * found.limit.value
        late, explained = found.late or (None, None)
        stalled = f"stalls of the host explain {explained:,} of {late:,} late {self.things}" if late else ""
        detail = "; ".join(part for part in (found.detail, stalled) if part)
        severity, allowed = INVALID if is_grave else self.severity, None if found.late is None else found.allowed
        figures = found.tested, found.failed, float(found.worst), float(found.limit.value), found.limit.unit
        return Check(self.name, *figures, severity, detail, late, explained, allowed)


_Judge = TypeVar("_Judge", bound=Callable[..., Judgement | None])


class Rules(list[CheckRule]):
    """The rules of a module, in the order of the ``checks`` table."""

    def add(
        self, section: str, severity: str, *limits: Limit, name: str = "", grave: bool = False, things: str = ""
    ) -> Callable[[_Judge], _Judge]:
        """Make a rule of the function that judges; its name is the check's if none is given (see ``CheckRule``)."""

        def enter(judge: _Judge) -> _Judge:
            self.append(CheckRule(name or judge.__name__, section, severity, judge, limits, grave, things))
            return judge

        return enter
