"""The clock of a run: everything above the wire goes by virtual time, which is CLOCK_MONOTONIC divided by the dilation.

Whoever reads the time, waits, or stamps what is written during a run does it through one of these: peers, agent,
running stage and data plane alike. Then delays, timers and schedules stretch together, and what is reported is virtual
time by itself: nothing has to be divided back. ADR 0012 has the reasons.
"""

import time
from collections.abc import Callable


class Clock:
    """Virtual time: instants in ns, durations in the unit that a name tells.

    All clocks of a machine with the same dilation agree to the nanosecond, in whichever process they are: the division
    is the same everywhere and keeps the order of instants, so a cause is never stamped after its effect.

    Attributes:
        dilation: real seconds in a virtual one, at least 1.
        now_ns: the present instant; with dilation 1 the kernel's own reading, at no further cost.
    """

    __slots__ = ("dilation", "now_ns")

    def __init__(self, dilation: float = 1.0) -> None:
        if dilation < 1:
            raise ValueError(f"a dilation is at least 1, got {dilation}")
        self.dilation = dilation
        self.now_ns: Callable[[], int] = time.monotonic_ns if dilation == 1 else self._slow_now_ns

    def virtual_ns(self, monotonic_ns: int) -> int:
        """The virtual instant of a real one."""
        return monotonic_ns if self.dilation == 1 else int(monotonic_ns / self.dilation)

    def monotonic_ns(self, virtual_ns: int) -> int:
        """The real instant of a virtual one."""
        return virtual_ns if self.dilation == 1 else round(virtual_ns * self.dilation)

    def real_s(self, virtual_s: float) -> float:
        """How long a virtual duration takes."""
        return virtual_s * self.dilation

    def left_s(self, instant_ns: int) -> float:
        """Real seconds until a virtual instant; negative when it has passed."""
        return (instant_ns - self.now_ns()) * self.dilation / 1e9

    def _slow_now_ns(self) -> int:
        return int(time.monotonic_ns() / self.dilation)


UNDILATED = Clock()
"""Real time: what every run goes by unless its experiment asks for something else."""
