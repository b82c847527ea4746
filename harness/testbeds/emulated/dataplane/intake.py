"""How long frames may have waited in their sources' devices before they were read, which nobody stamps.

A device's queue is known to be empty when a read finds nothing, when a complete answer of the poll does not list the
device, and while the loop sleeps, which it does only right after a poll that found nothing. A frame that is read has
come after the latest such instant of its device, so it has waited at most since then.

The bound is too low only for a frame that should have ended a sleep, where the loop went on later than that but in time
for what else it slept for: by less than ``LOOK_NS + PROMPT_NS``, since it never sleeps longer than ``LOOK_NS``.
"""

from __future__ import annotations

from harness.testbeds.emulated.dataplane.lateness import BUCKETS, bucket
from harness.testbeds.emulated.dataplane.links import AccessLink

LOOK_NS = 1_000_000
"""The longest that the loop sleeps, in ns of virtual time."""

PROMPT_NS = 200_000
"""A sleep is overslept if it ends so much later than it should have, in ns of virtual time."""

Burst = tuple[int, int, int]
"""Frames that were late together: the earliest instant at which one was due, the latest at which one came, how many."""


class Intake:
    """The bounds of all frames, and what is needed to find the next one.

    Attributes:
        histogram: of the bounds, see ``lateness``.
        waited_max_ns: the largest bound.
        frames_waited: frames whose bound is above the limit.
        bursts: those of them that were read since somebody took this list.
    """

    def __init__(self, late_ns: int) -> None:
        """Begin. ``late_ns``: the limit."""
        self.histogram = [0] * BUCKETS
        self.waited_max_ns = self.frames_waited = 0
        self.bursts: list[Burst] = []
        self._late_ns = late_ns
        self._looked_ns = self._empty_ns = 0

    def look(self, now_ns: int) -> None:
        """Note the instant before the devices are polled."""
        self._looked_ns = now_ns

    def see_all(self) -> None:
        """Note that the last poll listed every device that had frames."""
        self._empty_ns = self._looked_ns

    def wake(self, slept_ns: int, until_ns: int, now_ns: int, *, by_frame: bool) -> None:
        """Note a sleep.

        Args:
            slept_ns: when it began: all devices were empty then.
            until_ns: when it was to end.
            now_ns: when it ended.
            by_frame: whether something had come by then.
        """
        self._empty_ns = slept_ns if by_frame and now_ns > until_ns + PROMPT_NS else now_ns

    def count(self, link: AccessLink, frames: int, read_ns: int, *, drained: bool) -> None:
        """Count frames that were read from a device after the last look.

        Args:
            link: whose device it is.
            frames: how many.
            read_ns: when the last of them was read.
            drained: nothing was left.
        """
        empty_ns = self._empty_ns if self._empty_ns > link.looked_ns else link.empty_ns
        link.looked_ns = self._looked_ns
        link.empty_ns = read_ns if drained else empty_ns
        waited_ns = read_ns - empty_ns
        self.histogram[bucket(waited_ns)] += frames
        if waited_ns > self.waited_max_ns:
            self.waited_max_ns = waited_ns
        if waited_ns > self._late_ns:
            self.frames_waited += frames
            self.bursts.append((empty_ns, read_ns, frames))
