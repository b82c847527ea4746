"""Access links of the simulated network, which pass a frame packet by packet.

A packet leaves its source's link, crosses the network, and enters its destination's link when it has arrived there as a
whole (store and forward, as in the data plane). So a frame of many packets takes its transmission time on the slower
link, and that of one packet on the other one.

A frame takes two events at its destination's link, not one per packet: its first packet arrives, then its last one.
Between them its bits arrive evenly, so that what waits at the link changes evenly between two events. That is exact as
long as frames of different sources do not mix at a link; where they do, it differs from packets by at most the
transmission time of one packet per source.
"""

from __future__ import annotations

from typing import NamedTuple

from peer.wire import MSS_BYTES

HEADER_BYTES = 52
"""IPv4 and TCP headers with timestamps."""

FULL_BYTES = MSS_BYTES + HEADER_BYTES


def count_packets(size_bytes: int) -> int:
    """Return how many packets carry these bytes of a stream."""
    return -(-size_bytes // MSS_BYTES)


class Crossing(NamedTuple):
    """A frame of several packets between two access links.

    Attributes:
        link: the destination's link.
        first_ns, last_ns: when its first and its last packet arrive at the destination's link.
        head_ns: how long the destination's link sends the first packet.
        rest_ns: how long it sends the others.
        inflow: time on the destination's link that arrives per time after the first packet; 0 if all arrive at once.
        least_ns: the time from the last packet's arrival to its end at a link that is otherwise idle.
    """

    link: DownLink
    first_ns: int
    last_ns: int
    head_ns: float
    rest_ns: float
    inflow: float
    least_ns: float


class UpLink:
    """A host's link towards the network, or a bottleneck on the way: frames or packets one after the other.

    Attributes:
        byte_ns: time to send a byte; 0 = unlimited.
        free_ns: when all that it was given has left.
    """

    __slots__ = ("byte_ns", "free_ns")

    def __init__(self, byte_ns: float) -> None:
        self.byte_ns = byte_ns
        self.free_ns = 0

    def send(self, now_ns: int, size_bytes: int) -> int:
        """Send bytes, and return when the last of them has left."""
        wire_bytes = size_bytes + HEADER_BYTES * -(-size_bytes // MSS_BYTES)
        start_ns = self.free_ns if self.free_ns > now_ns else now_ns
        self.free_ns = free_ns = start_ns + round(wire_bytes * self.byte_ns)
        return free_ns

    def since_first_ns(self, size_bytes: int) -> int:
        """Return how long before the last of several packets the first one has left."""
        return round((size_bytes + HEADER_BYTES * count_packets(size_bytes) - FULL_BYTES) * self.byte_ns)


class DownLink:
    """A host's link from the network, which serves packets in the order of their arrival. Times of calls never fall.

    Attributes:
        byte_ns: time to send a byte; 0 = unlimited.
    """

    __slots__ = ("_at_ns", "_inflow", "_mixed", "_waiting_ns", "byte_ns")

    def __init__(self, byte_ns: float) -> None:
        self.byte_ns = byte_ns
        self._at_ns = 0
        self._waiting_ns = 0.0  # how long it sends what has arrived by _at_ns
        self._inflow = 0.0  # time on the link that arrives per time
        self._mixed = 0  # frames of which some packets have arrived and others not

    def pass_packet(self, now_ns: int, size_bytes: int) -> int:
        """Take a packet with this payload, or none (0), and return when it has passed."""
        waiting_ns = self._waiting_ns + (self._inflow - 1.0) * (now_ns - self._at_ns)
        if waiting_ns < 0.0:
            waiting_ns = 0.0
        if size_bytes:
            waiting_ns += (size_bytes + HEADER_BYTES) * self.byte_ns
        self._waiting_ns = waiting_ns
        self._at_ns = now_ns
        return now_ns + round(waiting_ns)

    def expect(self, up_byte_ns: float, size_bytes: int, first_ns: int, last_ns: int) -> Crossing:
        """Return the crossing of several packets.

        Args:
            up_byte_ns: of the source's link.
            size_bytes: their payload.
            first_ns: when the first one arrives.
            last_ns: when the last one does.
        """
        full = count_packets(size_bytes) - 1
        tail_bytes = size_bytes - MSS_BYTES * full + HEADER_BYTES
        head_ns, tail_ns = FULL_BYTES * self.byte_ns, tail_bytes * self.byte_ns
        rest_ns, span_ns = head_ns * (full - 1) + tail_ns, last_ns - first_ns
        # the full packet before the last one arrived when the last one began to leave the source
        gap_ns = tail_bytes * up_byte_ns
        least_ns = tail_ns + head_ns - gap_ns if head_ns > gap_ns else tail_ns
        inflow = rest_ns / span_ns if span_ns else 0.0
        return Crossing(self, first_ns, last_ns, head_ns, rest_ns, inflow, least_ns)

    def begin(self, crossing: Crossing) -> None:
        """Take a first packet. If the others arrive with it, take them, too."""
        self.pass_packet(crossing.first_ns, 0)
        self._waiting_ns += crossing.head_ns
        if crossing.inflow:
            self._inflow += crossing.inflow
            self._mixed += 1
        else:
            self._waiting_ns += crossing.rest_ns

    def end(self, crossing: Crossing) -> int:
        """Take a last packet. Return when it has passed."""
        self.pass_packet(crossing.last_ns, 0)
        if crossing.inflow:
            self._mixed -= 1
            self._inflow = self._inflow - crossing.inflow if self._mixed else 0.0
        self._waiting_ns = max(self._waiting_ns, crossing.least_ns)
        return crossing.last_ns + round(self._waiting_ns)
