"""Upper bounds of the time that frames waited in their source's device before they were read; it has no timestamp.

A device's queue is known to be empty when a read finds nothing, when a complete answer of the poll does not list the
device, and while the loop sleeps. A frame that is read came after the latest such instant of its device, so it has
waited at most since then.

The bound is too low only for a frame that should have ended a sleep if the loop woke later, but in time for the end of
its sleep: by less than ``LOOK_NS + PROMPT_NS``, since it never sleeps longer than ``LOOK_NS``.
"""

from harness.planes.userspace.lateness import BUCKETS
from harness.planes.userspace.links import AccessLink

LOOK_NS = 1_000_000
"""The longest sleep of the loop, in ns of virtual time."""

PROMPT_NS = 200_000
"""A sleep that ends later than it should by more than this, in ns of virtual time, is overslept."""

AT_ONCE_NS = 50_000
"""A sleep that ends sooner may have found a frame that came before it: then no device was seen empty."""

Burst = tuple[int, int, int]
"""Frames that were late together: the earliest due instant, the latest actual instant, the number of frames."""


class Intake:
    """The bounds of all frames, and the state that gives the next one.

    Attributes:
        histogram: histogram of the bounds, see ``lateness``.
        waited_max_ns: the largest bound.
        frames_waited: frames with a bound above the limit.
        bursts: bursts of such frames since the caller emptied this list.
        looked_ns: the instant before the last poll.
        empty_ns: when all devices were last seen empty, except those read since then: before the last poll with a
            complete answer, or at the end of a sleep.
    """

    def __init__(self, late_ns: int) -> None:
        """Start without frames. ``late_ns``: the limit."""
        self.histogram = [0] * BUCKETS
        self.waited_max_ns = self.frames_waited = 0
        self.bursts: list[Burst] = []
        self.looked_ns = self.empty_ns = 0
        self._late_ns = late_ns

    def wake(self, slept_ns: int, until_ns: int, now_ns: int, *, by_frame: bool) -> None:
        """Record a sleep, which began when every device that the last poll listed had been read until it was empty.

        Args:
            slept_ns: when it began.
            until_ns: when it should have ended.
            now_ns: when it ended.
            by_frame: whether a frame had come by then.
        """
        if not by_frame or slept_ns + AT_ONCE_NS < now_ns <= until_ns + PROMPT_NS:
            self.empty_ns = now_ns

    def count(self, link: AccessLink, frames: int, read_ns: int, drained: bool) -> None:
        """Count frames that were read from a device after the last poll.

        Args:
            link: the link of the device.
            frames: the number of frames.
            read_ns: when the last of them was read.
            drained: whether the device was empty afterwards.
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
