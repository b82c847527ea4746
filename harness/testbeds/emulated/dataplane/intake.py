"""How long frames may have waited in their sources' devices before they were read, which nobody stamps.

A device's queue is known to be empty when a read finds nothing, when a complete answer of the poll does not list the
device, and while the loop sleeps. A frame that is read has come after the latest such instant of its device, so it has
waited at most since then.

The bound is too low only for a frame that should have ended a sleep, where the loop went on later than that but in time
for what else it slept for: by less than ``LOOK_NS + PROMPT_NS``, since it never sleeps longer than ``LOOK_NS``.
"""

from __future__ import annotations

from harness.testbeds.emulated.dataplane.lateness import BUCKETS
from harness.testbeds.emulated.dataplane.links import AccessLink

LOOK_NS = 1_000_000
"""The longest that the loop sleeps, in ns of virtual time."""

PROMPT_NS = 200_000
"""A sleep is overslept if it ends so much later than it should have, in ns of virtual time."""

AT_ONCE_NS = 50_000
"""A sleep that ends sooner may have found a frame that had come before it: then no device was seen empty."""

Burst = tuple[int, int, int]
"""Frames that were late together: the earliest instant at which one was due, the latest at which one came, how many."""


class Intake:
    """The bounds of all frames, and what is needed to find the next one.

    Attributes:
        histogram: of the bounds, see ``lateness``.
        waited_max_ns: the largest bound.
        frames_waited: frames whose bound is above the limit.
        bursts: those of them that were read since somebody emptied this list.
        looked_ns: the instant before the last poll.
        empty_ns: when all devices were last seen empty, but for those that were read from since: before the last poll
            with a complete answer, or at the end of a sleep.
    """

    def __init__(self, late_ns: int) -> None:
        """Begin. ``late_ns``: the limit."""
        self.histogram = [0] * BUCKETS
        self.waited_max_ns = self.frames_waited = 0
        self.bursts: list[Burst] = []
        self.looked_ns = self.empty_ns = 0
        self._late_ns = late_ns

    def wake(self, slept_ns: int, until_ns: int, now_ns: int, *, by_frame: bool) -> None:
        """Note a sleep, which began when every device that the last poll listed had been read empty.

        Args:
            slept_ns: when it began.
            until_ns: when it was to end.
            now_ns: when it ended.
            by_frame: whether something had come by then.
        """
        if not by_frame or slept_ns + AT_ONCE_NS < now_ns <= until_ns + PROMPT_NS:
            self.empty_ns = now_ns

    def count(self, link: AccessLink, frames: int, read_ns: int, drained: bool) -> None:
        """Count frames that were read from a device after the last look.

        Args:
            link: whose device it is.
            frames: how many.
            read_ns: when the last of them was read.
            drained: nothing was left.
        """
        empty_ns = self.empty_ns
        if empty_ns <= link.looked_ns:
            empty_ns = link.empty_ns
        link.looked_ns = self.looked_ns
        link.empty_ns = read_ns if drained else empty_ns
        waited_ns = read_ns - empty_ns
        square = waited_ns * waited_ns
        self.histogram[(square * square).bit_length()] += frames
        if waited_ns > self.waited_max_ns:
            self.waited_max_ns = waited_ns
        if waited_ns > self._late_ns:
            self.frames_waited += frames
            self.bursts.append((empty_ns, read_ns, frames))
