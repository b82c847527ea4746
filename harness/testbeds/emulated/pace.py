"""The rate of probes of an idle network: as fast as the data plane can carry with a margin."""

from harness.planes.plane import Plane

FIRST_PER_S = 8000.0
SLOWEST_PER_S, FASTEST_PER_S = 500.0, 12_000.0
BUSY_RATIO = 0.8
"""Share of a processor that the probes may take, estimated from the cost at the rate so far. At 0.8 the data plane is
busy for half of the time, since at higher rates it sleeps and wakes less often."""


class Pace:
    """The rate of echo requests, from what the requests since the last call cost the data plane."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._before: tuple[float, int] | None = None

    def __call__(self) -> float:
        """Return the next rate in requests per second. A request and its reply are two frames."""
        now = (self._plane.cpu_s(), self._plane.counters().frames_in)
        before, self._before = self._before, now
        if before is None or now[1] - before[1] < 2 * SLOWEST_PER_S or now[0] <= before[0]:
            return FIRST_PER_S  # too few frames for an estimate
        frame_s = (now[0] - before[0]) / (now[1] - before[1])
        return min(max(BUSY_RATIO / (2 * frame_s), SLOWEST_PER_S), FASTEST_PER_S)
