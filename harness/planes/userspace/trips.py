"""Paths with bottlenecks: a frame passes one part of the delay of its pair after the other, and a queue between two.

A part leads to the queue of a bottleneck, or, the last one, to the access link of the destination. The forwarder holds
a frame until it has passed a part, so that the frames of all pairs reach a queue in the order of their arrival. If a
fault doubles or reorders the frames of a pair, its path has parts even without a bottleneck: one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topologies.bottlenecks import Bottleneck, Stop, jittered_ns, split_ns

if TYPE_CHECKING:
    from harness.planes.userspace.links import Draws, Pair

MS_NS = 1_000_000


class Queue:
    """The drop-tail queue of a bottleneck: first come, first served.

    Attributes:
        byte_ns: time to send a byte.
        longest_ns: longest time that a frame may wait.
        free_ns: when it has sent what it holds.
        frames, frame_bytes: what it has taken so far.
        drops: frames that found it full.
    """

    __slots__ = ("byte_ns", "drops", "frame_bytes", "frames", "free_ns", "longest_ns")

    def __init__(self, bottleneck: Bottleneck) -> None:
        self.byte_ns = 8000 / bottleneck.rate_mbit
        self.longest_ns = int(bottleneck.queue_ms * MS_NS)
        self.free_ns = self.frames = self.frame_bytes = self.drops = 0

    def send(self, arrival_ns: int, size: int) -> int | None:
        """Return when a frame has been sent as a whole; None = it is dropped.

        Args:
            arrival_ns: when it arrives; not before that of an earlier call.
            size: its length in bytes.
        """
        wait_ns = self.free_ns - arrival_ns
        if wait_ns > self.longest_ns:
            self.drops += 1
            return None
        self.frames += 1
        self.frame_bytes += size
        self.free_ns = arrival_ns + int(size * self.byte_ns) + (wait_ns if wait_ns > 0 else 0)
        return self.free_ns


class Part:
    """A part of the path of a pair, as it was made: a frame on the path meets no later change of its pair.

    Attributes:
        source, destination: the access links of the pair.
        ahead: the queue to which it leads, and the part behind that; None = it is the last part.
    """

    __slots__ = (
        "_delay_ns",
        "_jitter",
        "_loss_ratio",
        "_number",
        "_pair",
        "_pair_delay_ns",
        "_reorder_ns",
        "ahead",
        "destination",
        "source",
    )

    def __init__(
        self, pair: Pair, number: int, delay_ns: int, ahead: tuple[Queue, Part] | None, reorder_ns: int
    ) -> None:
        """Make a part, with the jitter and the loss that the pair has now.

        Args:
            pair: the pair of the packets.
            number: of the part on its path, from 0.
            delay_ns: its part of the pair's delay.
            ahead: the queue to which it leads, and the part behind that; None = it is the last part.
            reorder_ns: a further delay, in which later frames overtake.
        """
        self.source, self.destination = pair.source, pair.destination
        self.ahead = ahead
        self._pair, self._number, self._delay_ns, self._reorder_ns = pair, number, delay_ns, reorder_ns
        self._pair_delay_ns, self._jitter, self._loss_ratio = pair.delay_ns, pair.jitter, pair.loss_ratio

    def pass_ns(self, draws: Draws, enters_ns: int) -> int | None:
        """Return when a frame has passed that enters at an instant; None = it is lost, behind the last queue.

        No frame of a pair overtakes another one, but in the further delay of that one.
        """
        pair, number = self._pair, self._number
        if self.ahead is None and self._loss_ratio and pair.is_lost(draws, self._loss_ratio):
            return None
        offset_ns = 0 if self._jitter is None else self._jitter.offset_ns(enters_ns)
        passed_ns = enters_ns + jittered_ns(self._delay_ns, self._pair_delay_ns, offset_ns)
        passed_ns = pair.passed_ns[number] = max(passed_ns, pair.passed_ns.get(number, 0))
        return passed_ns + self._reorder_ns


def make_parts(pair: Pair, stops: Sequence[Stop], queues: Sequence[Queue], reorder_ns: int = 0) -> Part:
    """Return the first part of the path of a pair, with the values that the pair has now.

    Args:
        pair: the pair.
        stops: the bottlenecks on its path.
        queues: of all bottlenecks, by number.
        reorder_ns: a further delay of frames that take these parts, behind the last bottleneck.
    """
    *before_ns, last_ns = split_ns(pair.delay_ns, stops)
    part = Part(pair, len(stops), last_ns, None, reorder_ns)
    for number in reversed(range(len(stops))):
        part = Part(pair, number, before_ns[number], (queues[stops[number].bottleneck], part), 0)
    return part
