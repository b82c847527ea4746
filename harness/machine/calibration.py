"""How fast and how quiet this machine is now, for predictions: measured within three seconds, kept for ten minutes.

Machines change: on virtual machines the same work takes twice as long on another day, and less changes within minutes.
So a kept calibration is measured again after ``KEPT_S``, after a restart, under another kernel and with another quota.
"""

import os
import subprocess
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from harness.cache import keep, read_kept
from harness.interpreter import python_command
from metrics.processors import usable_processors

KEPT_S: Final = 600.0
"""How long a calibration is used (s)."""

CALIBRATE_VARIABLE: Final = "TRELLIS_CALIBRATE"
"""The environment variable that leaves the machine uncalibrated if it is 0: for plans and runs beside other work, which
would be measured with it."""

MOST_S: Final = 30.0
"""How long the process that measures may take before it is given up, if the machine gives it no time (s)."""

_FILE = "calibration.json"
"""What is kept in the user's cache folder."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Calibration(Struct, frozen=True):
    """What was measured.

    Attributes:
        work_us: processor time of a fixed piece of work that resembles a frame's, in us: the median of short rounds.
        late_ms: how late a process that sleeps for a millisecond wakes, the 99th percentile in ms.
        realtime: whether the sleeping process had real-time priority.
        processors: how many processors this process may use.
    """

    work_us: float
    late_ms: float
    realtime: bool
    processors: float


class Kept(Struct, frozen=True):
    """The file of a calibration.

    Attributes:
        calibration: what was measured.
        boot_id: the kernel's identity of the machine's last start.
        kernel: its release.
        at_s: when it was measured, in seconds since the epoch.
    """

    calibration: Calibration
    boot_id: str
    kernel: str
    at_s: float

    def holds(self, boot_id: str, kernel: str, processors: float, now_s: float) -> bool:
        """Return whether it is of this start of this machine, of as many processors, and at most ``KEPT_S`` old."""
        same = (self.boot_id, self.kernel, self.calibration.processors) == (boot_id, kernel, processors)
        return same and 0 <= now_s - self.at_s <= KEPT_S


def calibrate() -> Calibration | None:
    """Return how fast and quiet this machine is: what was kept of the last minutes, or what is measured now.

    Returns:
        None if ``CALIBRATE_VARIABLE`` is 0 in the environment, or if the measurement failed.
    """
    if os.environ.get(CALIBRATE_VARIABLE) == "0":
        return None
    boot_id, kernel = _BOOT.read_text(encoding="ascii").strip(), os.uname().release
    kept = read_kept(_FILE, Kept)
    if kept is not None and kept.holds(boot_id, kernel, usable_processors(), time.time()):
        return kept.calibration
    found = measure()
    if found is not None:
        keep(_FILE, Kept(found, boot_id, kernel, time.time()))
    return found


def measure() -> Calibration | None:
    """Measure in a process of its own, whose memory and priority are the same whoever asks; None = it failed."""
    command = python_command("-m", "harness.machine.measuring")
    root = Path(__file__).parents[2]
    try:
        done = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, timeout=MOST_S, check=True
        )
        return msgspec.json.decode(done.stdout, type=Calibration)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return None
