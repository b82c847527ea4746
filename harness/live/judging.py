"""The verdict so far: the checks that can be made while a run goes on, by their own rules and limits.

The other checks need what is written at the end: tables, captures and probes. Deliveries are not judged, since the
newest messages are still on their way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from harness.live.snapshot import Limit, Reason, Severity, SoFar
from metrics.checks import RULES
from metrics.checks.evidence import Emulation, PressureLine
from metrics.checks.rule import Absent, CheckRule
from metrics.reasons import describe, describe_end
from metrics.recorded.dataplane import PlaneInterval
from metrics.recorded.stalls import Stalls
from metrics.rundir import INVALID, Check, FinalState, Manifest, Phase, Summary, Timeline

CHECKS: Final = (
    "plane_lateness",
    "plane_intake",
    "plane_drops",
    "plane_stalls",
    "plane_present",
    "plane_busy",
    "throttled",
    "cpu_busy",
    "steal",
)
"""The names of the checks that are made during the run."""

_RULES: Final[tuple[CheckRule, ...]] = tuple(rule for rule in RULES if rule.name in CHECKS)

_OF_LINES: Final = frozenset({"plane_lateness", "plane_intake", "plane_drops", "plane_stalls", "plane_busy"})
"""Those among them that need at least one line of the data plane about the workload."""

_SHOWN: Final = ("plane_drops", "plane_stalls", "plane_busy", "cpu_busy", "steal")
"""Those among them whose limit the code sets, and is of a number that a snapshot has."""


class Recorded(Struct, frozen=True):
    """What an emulated run has recorded so far.

    Attributes:
        hosts: how many there are.
        spans: one for each line of the data plane.
        pressure: the lines about the processors, as objects.
        stalls: so far.
        lateness_p99_ms: ``verdict.lateness_p99_ms``.
        unmeasured: why the data plane says nothing of its lateness; None = it does.
    """

    hosts: int
    spans: tuple[PlaneInterval, ...]
    pressure: Sequence[Mapping[str, Any]]
    stalls: Stalls
    lateness_p99_ms: float
    unmeasured: Absent | None = None


class _SoFar(Struct, frozen=True):
    """The parts of ``metrics.checks.evidence.Evidence`` that exist during the run."""

    emulation: Emulation
    busy: tuple[float, ...] | Absent
    steal: tuple[float, ...] | Absent


def judge_recorded(recorded: Recorded, timeline: Timeline, now_ns: int) -> Iterator[Reason]:
    """Yield the checks that would fail if the peers were told to end now. Before the workload nothing is judged.

    Args:
        recorded: so far.
        timeline: the planned phases.
        now_ns: an instant that is not after the reading of ``recorded``.
    """
    zero_ns, end_ns = timeline.zero_ns, min(now_ns, timeline.judged_ns[1])
    if end_ns <= zero_ns:
        return
    seconds = [line for line in recorded.pressure if zero_ns <= line["at_ns"] < end_ns]
    missing = Absent("no load of the processors was recorded yet")
    emulation = Emulation(
        hosts=recorded.hosts,
        sweeps=None,
        asked_sweeps=(),
        first_packets=None,
        spans=recorded.spans,
        pressure=msgspec.convert(recorded.pressure, tuple[PressureLine, ...]),
        judged_ns=(zero_ns, end_ns),
        workload=Phase("workload", zero_ns, min(end_ns, timeline.published_ns)),
        stalls=recorded.stalls,
        lateness_p99_ms=recorded.lateness_p99_ms,
        unmeasured=recorded.unmeasured,
    )
    busy, steal = (_column(seconds, name) or missing for name in ("cpu_busy_ratio", "steal_ratio"))
    evidence = _SoFar(emulation, busy, steal)
    has_lines = any(zero_ns < span.at_ns <= end_ns for span in recorded.spans)
    for rule in _RULES:
        if rule.name in _OF_LINES and not has_lines:
            continue
        check = rule.check(evidence)
        if check.failed:
            yield _reason(check)


def _column(lines: Iterable[Mapping[str, Any]], name: str) -> tuple[float, ...]:
    return tuple(line[name] for line in lines if line.get(name) is not None)


def judge_ends(
    ends: Iterable[FinalState], timeline: Timeline, problems: Iterable[tuple[str, str]] = ()
) -> Iterator[Reason]:
    """Yield the processes that ended otherwise than expected.

    Args:
        ends: of the processes that have ended.
        timeline: the planned phases.
        problems: the running stage's own (``metrics.reasons.describe_end``).
    """
    known = tuple(problems)
    for state in ends:
        if (text := describe_end(state, timeline, known)) is not None:
            yield Reason("", _sentence(text), "invalid")


def judge_manifest(manifest: Manifest) -> Iterator[Reason]:
    """Yield what the running stage has found, when it has ended."""
    for severity, text in manifest.problems:
        yield Reason("", _sentence(text), _severity(severity))
    yield from judge_ends(manifest.final_states, manifest.timeline, manifest.problems)


def judge_summary(summary: Summary, manifest: Manifest) -> Iterator[Reason]:
    """Yield the reasons of the final verdict, with the checks that some of them are about."""
    known = {reason.text: reason for reason in judge_manifest(manifest)}
    known |= {reason.text: reason for check in summary.checks if check.failed for reason in (_reason(check),)}
    for text in summary.reasons:
        yield known.get(text, Reason("", text, "suspect"))


def _reason(check: Check) -> Reason:
    return Reason(check.name, _sentence(describe(check)), _severity(check.severity))


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _severity(text: str) -> Severity:
    return "invalid" if text == INVALID else "suspect"


def sort_reasons(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return reasons without repetitions, the gravest first."""
    return tuple(sorted(dict.fromkeys(reasons), key=lambda reason: reason.severity != "invalid"))


def find_verdict(reasons: Iterable[Reason]) -> SoFar:
    """Return the verdict that reasons make."""
    found = {reason.severity for reason in reasons}
    return "invalid" if "invalid" in found else "suspect" if found else "valid so far"


def list_limits(verdict: Mapping[str, Any]) -> Iterator[Limit]:
    """Yield the limits of the checks that are made during a run, and of the delivery ratio, if it has one.

    Args:
        verdict: the experiment's section.
    """
    rules = {rule.name: rule for rule in _RULES}
    for name in ("plane_lateness", "plane_intake"):
        yield Limit(name, float(verdict["lateness_p99_ms"]), "ms", _severity(rules[name].severity))
    for name in _SHOWN:
        [limit, *_] = rules[name].limits
        yield Limit(name, limit.value, limit.unit, _severity(rules[name].severity))
    if least := float(verdict.get("delivery_ratio_min", 0)):
        yield Limit("delivery_ratio", least, "ratio", "suspect", at_least=True)
