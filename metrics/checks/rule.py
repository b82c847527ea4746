"""What a check is: when it fails, what a failure makes of the run, and the function that judges the evidence.

Three rules hold for every check:

* **A check cannot be empty.** It says how much of its material it tested. Below its floor it is not judged, and a run
  with such a check is at most ``suspect``. A check that has no material by the run's design is not applicable, and says
  why.
* **The count of late samples decides** if a check judges a 99th percentile: it fails if more samples are beyond the
  limit than the percentile allows. The percentile itself may be the bound of a histogram's bucket. If a check judges a
  median, the median decides.
* **Stalls of the host excuse nothing**, but a check says how many of its late samples they explain, so that a run, or
  a probe of the idle network, can be repeated.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from metrics.recorded.stalls import Late
from metrics.rundir import FAILED, INVALID, NOT_APPLICABLE, NOT_JUDGED, PASSED, Check

GRAVE_FACTOR = 10
"""If the check's rule says ``grave``, a value above this many times its limit makes the run invalid."""

FLOOR = 0.5
"""A check that tests a smaller part of its material is not judged, unless its rule sets another floor."""

SCOPES = {"certificate": "network", "measured": "network", "overload": "machine", "consistency": "frames"}
"""The part of the verdict's scope that the checks of each section belong to, unless their rule names another one."""

_NS = {"ms": 1e6, "s": 1e9}


class Absent(Struct, frozen=True):
    """Evidence that a run does not have, or a check that cannot be made."""

    reason: str  # for people, without a full stop
    due: bool = False  # whether the run should have it; False = by the run's design there is none


class Limit(Struct, frozen=True):
    """The largest value that passes, in ``unit``. As text it has its unit, and a ratio is a percentage."""

    value: float
    unit: str

    def __str__(self) -> str:
        """Return the value with its unit."""
        return f"{100 * self.value:g} %" if self.unit == "ratio" else f"{self.value:g} {self.unit}".rstrip()

    @property
    def ns(self) -> int:
        """The limit in nanoseconds, if its unit is ms or s."""
        return round(self.value * _NS[self.unit])


class Judgement(Struct, frozen=True):
    """What a rule finds in a run."""

    tested: int  # how many things were tested
    failed: int  # how many failed; the check fails if not 0
    worst: float  # the worst value, in the unit of ``limit``
    limit: Limit  # the largest value that passes
    detail: str = ""  # a text for people
    late: Late | None = None  # samples beyond the limit; None = stalls of the host explain nothing here
    allowed: int = 0  # how many samples may be late before the check fails
    material: int | None = None  # how many things there were to test; None = as many as were tested


def none_of(
    tested: int, failed: int, unit: str, detail: str = "", worst: float | None = None, material: int | None = None
) -> Judgement:
    """Judge that nothing may fail.

    Args:
        tested: how many things were tested.
        failed: how many failed.
        unit: the unit of ``worst``.
        detail: a text for people.
        worst: by how much the worst one failed; None = ``failed`` itself.
        material: see ``Judgement``.
    """
    return Judgement(tested, failed, failed if worst is None else worst, Limit(0, unit), detail, material=material)


def at_most(limit: Limit, value: float, tested: int, detail: str, material: int | None = None) -> Judgement:
    """Judge that one value must not exceed its limit.

    Args:
        limit: the largest value that passes.
        value: in the limit's unit.
        tested: how many samples the value is over.
        detail: a text for people.
        material: see ``Judgement``.
    """
    return Judgement(tested, int(value > limit.value), value, limit, detail, material=material)


def few_late(
    limit: Limit, value: float, tested: int, detail: str, late: Late, allowed: int, material: int | None = None
) -> Judgement:
    """Judge that no more samples may be beyond a limit than their percentile allows.

    Args:
        limit: the largest sample that passes.
        value: the percentile, in the limit's unit.
        tested: how many samples there are.
        detail: a text for people.
        late: the samples beyond the limit.
        allowed: how many there may be: of a 99th percentile, a hundredth of the samples.
        material: see ``Judgement``.
    """
    return Judgement(tested, int(late.samples > allowed), value, limit, detail, late, allowed, material)


def share_at_most(limit: Limit, values: Sequence[float], share: float, detail: str = "") -> Judgement:
    """Judge that no more than a share of the values may exceed the limit.

    Args:
        limit: the largest value that passes.
        values: in the limit's unit.
        share: the share of the values that may exceed the limit.
        detail: a text for people; ``{above}`` stands for the number of values above the limit.
    """
    above = sum(1 for value in values if value > limit.value)
    failed = above if above > share * len(values) else 0
    return Judgement(len(values), failed, max(values, default=0.0), limit, detail.format(above=above))


class CheckRule(Struct, frozen=True):
    """A check.

    The paragraphs of the judge's docstring are the check's texts in docs/verdict.md: when it fails, why that matters
    and, if stalls of the host can explain a failure, what a late sample is. ``{0}``, ``{1}`` ... stand for the limits.
    """

    name: str  # the name of the check, unique
    section: str  # the table of docs/verdict.md that has it
    severity: str  # what a failure makes of the run, ``invalid`` or ``suspect``
    judge: Callable[..., Judgement | Absent]  # its parameters without default name parts of the evidence
    limits: tuple[Limit, ...] = ()  # limits that the code sets; an experiment file's are in the evidence
    grave: bool = False  # whether a value above ``GRAVE_FACTOR`` times the limit makes the run invalid
    things: str = ""  # what late samples are called in the check's detail
    scope: str = "network"  # the part of the verdict's scope
    floor: float = FLOOR  # the least share of its material that the check must test

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

    def check(self, evidence: object) -> Check:
        """Return the row of the ``checks`` table."""
        parts = [getattr(evidence, name) for name in self.needs]
        absent = [part for part in parts if isinstance(part, Absent)]
        found = min(absent, key=lambda part: part.due) if absent else self.judge(*parts)
        if isinstance(found, Absent):
            outcome = NOT_JUDGED if found.due else NOT_APPLICABLE
            return Check(self.name, 0, 0, 0.0, 0.0, "", self.severity, found.reason, outcome=outcome, scope=self.scope)
        is_grave = self.grave and found.failed and found.worst > GRAVE_FACTOR * found.limit.value
        late, explained = found.late or (None, None)
        stalled = f"stalls of the host explain {explained:,} of {late:,} late {self.things}" if late else ""
        detail = "; ".join(part for part in (found.detail, stalled) if part)
        severity, allowed = INVALID if is_grave else self.severity, None if found.late is None else found.allowed
        figures = found.tested, found.failed, float(found.worst), float(found.limit.value), found.limit.unit
        material = found.tested if found.material is None else found.material
        outcome = FAILED if found.failed else PASSED
        if outcome == PASSED and found.tested < max(1, self.floor * material):
            outcome, tested = NOT_JUDGED, f"{found.tested:,} of {material:,} could be tested"
            detail = "; ".join(part for part in (tested, detail) if part)
        said = outcome, self.scope, material
        return Check(self.name, *figures, severity, detail, late, explained, allowed, *said)


_Judge = TypeVar("_Judge", bound=Callable[..., Judgement | Absent])


class Rules(list[CheckRule]):
    """The rules of a module, in the order of the ``checks`` table."""

    def add(
        self,
        section: str,
        severity: str,
        *limits: Limit,
        name: str = "",
        grave: bool = False,
        things: str = "",
        scope: str = "",
        floor: float = FLOOR,
    ) -> Callable[[_Judge], _Judge]:
        """Make a rule of the function that judges; its name is the check's if none is given (see ``CheckRule``)."""

        def enter(judge: _Judge) -> _Judge:
            own = scope or SCOPES[section]
            rule = CheckRule(name or judge.__name__, section, severity, judge, limits, grave, things, own, floor)
            self.append(rule)
            return judge

        return enter
