"""The clock of a run. Everything above the wire uses virtual time: CLOCK_MONOTONIC divided by the dilation.

All code that reads the time, waits, or writes timestamps during a run uses a ``Clock``: peers, agent, running stage and
data plane. So delays, timers and schedules stretch together, and all reports are in virtual time without a conversion.
ADR 0012 has the reasons.
"""

import time
from collections.abc import Callable

_SAMPLES = 200

LAST_S = 1.0
"""The last part of a long wait, for which a timer is set again (s). A timer of many seconds, set while hundreds of
peers started, fired up to 100 ms late under uvloop. Set again shortly before it was due, it was at most 5 ms late."""


class Clock:
    """Virtual time: instants in ns, durations in the unit of their names.

    All clocks of a machine with the same dilation agree to the nanosecond, in any process. The division is the same
    everywhere and keeps the order of instants, so the timestamp of a cause is never after that of its effect.

    Attributes:
        dilation: real seconds per virtual second, at least 1.
        now_ns: returns the present instant (ns); with dilation 1 it is the kernel's clock, without further cost.
    """

    __slots__ = ("dilation", "now_ns")

    def __init__(self, dilation: float = 1.0) -> None:
        if dilation < 1:
            raise ValueError(f"a dilation is at least 1, got {dilation}")
        self.dilation = dilation
        self.now_ns: Callable[[], int] = time.monotonic_ns if dilation == 1 else self._slow_now_ns

    def virtual_ns(self, monotonic_ns: int) -> int:
        """Convert a real instant to virtual time (ns)."""
        return monotonic_ns if self.dilation == 1 else int(monotonic_ns / self.dilation)

    def monotonic_ns(self, virtual_ns: int) -> int:
        """Convert a virtual instant to real time (ns)."""
        return virtual_ns if self.dilation == 1 else round(virtual_ns * self.dilation)

    def real_s(self, virtual_s: float) -> float:
        """Convert a virtual duration to real time (s)."""
        return virtual_s * self.dilation

    def left_s(self, instant_ns: int) -> float:
        """Return the real time until a virtual instant (s); negative if it has passed."""
        return (instant_ns - self.now_ns()) * self.dilation / 1e9

    def wait_s(self, instant_ns: int) -> float:
        """Return how long to wait now for a virtual instant (real s): ``LAST_S`` less than is left if it is far away.

        Whoever waits asks again after the wait; negative if the instant has passed.
        """
        left_s = self.left_s(instant_ns)
        return left_s if left_s <= LAST_S else left_s - LAST_S

    def _slow_now_ns(self) -> int:
        return int(time.monotonic_ns() / self.dilation)


UNDILATED = Clock()
"""Real time, which every run uses unless its experiment sets a dilation."""


def epoch_offset_ns() -> int:
    """Return CLOCK_REALTIME - CLOCK_MONOTONIC: the sample between the two closest readings of the latter."""
    samples = []
    for _ in range(_SAMPLES):
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        samples.append((after - before, now - (before + after) // 2))
    return min(samples)[1]
