"""The phases of a run and their instants, planned or recorded."""

from collections.abc import Mapping
from typing import Self

from msgspec import Struct

from metrics.rundir.bounds import LONGEST_NS, Instant

SECOND_NS = 1_000_000_000

PHASES = ("before", "during", "after")
"""When pairs of hosts are probed: before, during and after the workload."""

IDLE_PHASES = ("before", "after")
"""The phases in which every pair is probed, in a sweep of the idle network."""


class Phase(Struct, frozen=True):
    """A phase of the running stage, in ns of virtual time.

    Names: boot, deploy, probe_before, warmup, workload, cooldown, stop, settle, probe_after, collect.
    """

    name: str
    start_ns: Instant
    end_ns: Instant


class Timeline(Struct, frozen=True):
    """The instants of a run, in ns of virtual time.

    Peers start with ``warmup`` and publish during ``workload``, which begins at ``zero_ns``. When ``cooldown`` is over,
    the peers get the command to end. A run that was cut short lacks the phases that it did not reach.
    """

    zero_ns: int
    phases: tuple[Phase, ...]

    @classmethod
    def plan(cls, start_ns: int, spans_s: Mapping[str, float]) -> Self:
        """Lay phases one after the other.

        Args:
            start_ns: the start of the first phase.
            spans_s: the length of each phase in seconds, with ``workload`` among them.
        """
        phases = []
        for name, span_s in spans_s.items():
            phases.append(Phase(name, start_ns, start_ns + round(span_s * SECOND_NS)))
            start_ns = phases[-1].end_ns
        return cls(next(phase.start_ns for phase in phases if phase.name == "workload"), tuple(phases))

    def require_bounded(self) -> None:
        """Check that phases end after they start, and that all instants are of one run.

        Raises:
            ValueError: this is not true.
        """
        if any(phase.end_ns < phase.start_ns for phase in self.phases):
            raise ValueError("expected phases that end after they start")
        instants = [self.zero_ns, *(at_ns for phase in self.phases for at_ns in (phase.start_ns, phase.end_ns))]
        if max(instants) - min(instants) > LONGEST_NS:
            raise ValueError(f"expected phases and zero_ns within {LONGEST_NS // 86_400_000_000_000} days")

    def phase(self, name: str) -> Phase | None:
        """Return a phase, None if the run did not reach it."""
        return next((phase for phase in self.phases if phase.name == name), None)

    def phase_at(self, at_ns: int) -> str | None:
        """Return the name of the phase that an instant is in, None between two phases."""
        return next((phase.name for phase in self.phases if phase.start_ns <= at_ns < phase.end_ns), None)

    @property
    def start_ns(self) -> int:
        return min((phase.start_ns for phase in self._active), default=self.zero_ns)

    @property
    def published_ns(self) -> int:
        """The end of the publishing window; ``zero_ns`` if the run was cut short before it began."""
        workload = self.phase("workload")
        return workload.end_ns if workload is not None else self.zero_ns

    @property
    def stop_ns(self) -> int:
        """The instant at which the peers get the command to end."""
        stop = self.phase("stop")
        return stop.start_ns if stop is not None else self.end_ns

    @property
    def end_ns(self) -> int:
        return max((phase.end_ns for phase in self.phases), default=self.zero_ns)

    @property
    def judged_ns(self) -> tuple[int, int]:
        """The span in which checks judge hosts: from ``zero_ns`` until the peers get the command to end.

        Before it, all links are opened at once, and after it all are closed at once: bursts without any delivery.
        """
        return self.zero_ns, self.stop_ns

    @property
    def grid(self) -> tuple[int, int, int]:
        """``zero_ns``, and the first and last full second from it in which peers are up, before the command to end."""
        last_ns = max((phase.end_ns for phase in self._active), default=self.zero_ns)
        first = -((self.zero_ns - self.start_ns) // SECOND_NS)
        return self.zero_ns, first, (last_ns - self.zero_ns) // SECOND_NS

    @property
    def _active(self) -> list[Phase]:
        """The phases in which peers may open links."""
        return [phase for phase in self.phases if phase.name in ("warmup", "workload", "cooldown")]
