"""Records the load of the processors per virtual second in ``pressure.jsonl``.

Pressure (PSI) is the share of time in which a process waited for a CPU; kernels without it only have the share of busy
time. Steal is time that the hypervisor took, which no other measurement inside the machine shows. Throttling is the
effect of a cgroup's quota, for example of a container. Processes at low priority (nice) make no other process wait, so
they do not count as busy.
"""

import threading
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from metrics.processors import Throttling, find_groups, read_throttling
from peer.runtime.clock import Clock

_PRESSURE = Path("/proc/pressure/cpu")
_STAT = Path("/proc/stat")
_NEVER = Throttling()


class PressureReading(Struct, frozen=True, omit_defaults=True):
    """A line of ``pressure.jsonl``: shares of the time since the previous line.

    ``cpu_some_ratio`` is None if the kernel does not have it, or if processors are kept awake (``awake``), since the
    keep-awake processes always wait. ``throttled_periods`` and ``throttled_us`` (summed over processors) are of this
    run's cgroups; left out if 0.
    """

    at_ns: int
    cpu_busy_ratio: float
    steal_ratio: float
    cpu_some_ratio: float | None = None
    throttled_periods: int = 0
    throttled_us: int = 0


class _Totals(Struct, frozen=True):
    """Counters since the machine's start: pressure in us, the others in clock ticks of all CPUs together.

    ``at_ns`` is real time, as the counters are.
    """

    at_ns: int
    some_us: int | None
    busy: int
    steal: int
    ticks: int
    throttling: Throttling = _NEVER


class PressureLog:
    """A thread that appends a ``PressureReading`` per virtual second, from ``start`` to ``stop``.

    Args:
        path: of ``pressure.jsonl``.
        clock: the run's.
        psi: whether to record pressure.
    """

    def __init__(self, path: Path, clock: Clock, *, psi: bool = True) -> None:
        self._path = path
        self._clock = clock
        self._psi = psi
        self._groups = find_groups()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pressure", daemon=True)
        self._fault = ""

    def start(self) -> None:
        self._thread.start()

    def lost(self) -> dict[str, str]:
        """Return the log and the reason, if its thread failed."""
        return {"the pressure log": self._fault} if self._fault else {}

    def stop(self) -> None:
        """Write the last, shorter interval and end the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:
            self._fault = str(error) or type(error).__name__
            if not isinstance(error, OSError):
                raise  # a bug

    def _write(self) -> None:
        before = self._read()
        with self._path.open("wb") as lines:
            stopped = False
            while not stopped:
                stopped = self._stopped.wait(self._clock.real_s(1.0))
                now = self._read()
                if now.ticks > before.ticks:
                    lines.write(msgspec.json.encode(_between(before, now, self._clock)) + b"\n")
                    lines.flush()
                    before = now

    def _read(self) -> _Totals:
        return count(
            _STAT.read_text(encoding="ascii"), _some_us() if self._psi else None, read_throttling(self._groups)
        )


def count(stat: str, some_us: int | None, throttling: Throttling = _NEVER) -> _Totals:
    """Return the counters in the text of /proc/stat."""
    words = stat.split("\n", 1)[0].split()[1:]
    user, nice, system, idle, iowait, irq, softirq, steal, *_ = map(int, words)
    busy = user + system + irq + softirq
    return _Totals(time.monotonic_ns(), some_us, busy, steal, busy + nice + idle + iowait + steal, throttling)


def _some_us() -> int | None:
    try:
        some = _PRESSURE.read_text(encoding="ascii").split("\n", 1)[0]
    except OSError:
        return None  # a kernel without CONFIG_PSI, or booted with psi=0
    return int(some.rpartition("total=")[2])


def _between(before: _Totals, now: _Totals, clock: Clock) -> PressureReading:
    ticks = now.ticks - before.ticks
    some = None
    if now.some_us is not None and before.some_us is not None:
        some = min((now.some_us - before.some_us) * 1000 / (now.at_ns - before.at_ns), 1.0)
    throttling = now.throttling.since(before.throttling)
    return PressureReading(
        clock.virtual_ns(now.at_ns),
        (now.busy - before.busy) / ticks,
        (now.steal - before.steal) / ticks,
        some,
        throttling.periods,
        round(throttling.time_us / clock.dilation),
    )
