"""The phases of a run so far, from ``phases.jsonl``, and from the manifest when there is one."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from harness.live.snapshot import PhaseSpan
from metrics.rundir import BegunPhase, Phase, Timeline

ANALYSIS: Final = "analysis"

SECOND_NS: Final = 1_000_000_000


class Course(NamedTuple):
    """The phases at an instant: which one runs, if any, and the instants in ns; None = not known."""

    spans: tuple[BegunPhase, ...]
    running: BegunPhase | None
    over: int  # how many of ``spans`` are over

    @property
    def timeline(self) -> Timeline | None:
        """The phases with known ends; None before the peers' start."""
        known = tuple(Phase(each.name, each.start_ns, each.end_ns) for each in self.spans if each.end_ns is not None)
        workload = next((phase for phase in known if phase.name == "workload"), None)
        # The instant of the stop is known before its end is.
        stop = (Phase(each.name, each.start_ns, each.start_ns) for each in self.spans if each.name == "stop")
        others = (phase for phase in known if phase.name != "stop")
        return None if workload is None else Timeline(workload.start_ns, (*others, *stop))

    def describe(self, zero_ns: int | None) -> Iterator[PhaseSpan]:
        """Yield the phases as they are shown; ``zero_ns``: the workload's zero, None = not known yet."""
        for number, each in enumerate(self.spans):
            state: Literal["over", "running", "planned"] = (
                "over" if number < self.over else "running" if each is self.running else "planned"
            )
            begin_s, end_s = (_seconds(at_ns, zero_ns) for at_ns in (each.start_ns, each.end_ns))
            yield PhaseSpan(each.name, begin_s, end_s, state)


def _seconds(at_ns: int | None, zero_ns: int | None) -> float | None:
    return None if at_ns is None or zero_ns is None else (at_ns - zero_ns) / SECOND_NS


def follow_course(begun: Sequence[BegunPhase], now_ns: int) -> Course:
    """Return the phases of a run that goes on.

    A phase without a planned end ends when the next one begins. It also ends the planned phases that a run which was
    cut short did not reach.

    Args:
        begun: the lines of ``phases.jsonl``.
        now_ns: the present instant.
    """
    planned = [number for number, each in enumerate(begun) if each.end_ns is not None]
    later = begun[planned[-1] + 1 :] if planned else ()
    cut_ns = later[0].start_ns if later else None
    ordered = [each for each in begun if each.end_ns is None or cut_ns is None or each.start_ns < cut_ns]
    spans = []
    for each, following in pairwise([*ordered, None]):
        assert each is not None
        end_ns = each.end_ns
        if following is not None:
            end_ns = following.start_ns if end_ns is None else min(end_ns, following.start_ns)
        spans.append(BegunPhase(each.name, each.start_ns, end_ns))
    over = sum(1 for each in spans if each.end_ns is not None and each.end_ns <= now_ns)
    running = spans[over] if over < len(spans) and spans[over].start_ns <= now_ns else None
    return Course(tuple(spans), running, over)


def finished_course(phases: Sequence[Phase], now_ns: int, *, analysing: bool) -> Course:
    """Return the phases of a run with a manifest.

    Args:
        phases: those of the manifest.
        now_ns: the present instant.
        analysing: whether the analysis goes on.
    """
    ordered = sorted(phases, key=lambda each: each.start_ns)
    spans = [BegunPhase(each.name, each.start_ns, each.end_ns) for each in ordered]
    over = len(spans)
    if analysing:
        spans.append(BegunPhase(ANALYSIS, max((each.end_ns for each in ordered), default=now_ns)))
    return Course(tuple(spans), spans[over] if analysing else None, over)
