"""The simulated network: when the bytes of a stream between two hosts arrive.

Frames are carried by TCP, so no frame is lost or reordered: a lost packet arrives one retransmission timeout later, and
later packets wait for it. docs/limitations.md lists the other parts of TCP that are not simulated.
"""

from collections.abc import Callable
from random import Random

from harness.simulator.access import Crossing, DownLink, UpLink, count_packets
from topologies.model import Matrix, Underlay

RETRANSMISSION_NS = 200_000_000
"""Linux's retransmission timeout minus the round trip, if round trips vary little."""

Delay = Callable[[int, int], int]
"""(source, destination) -> one-way delay in ns."""


class SimulatedNetwork:
    """Delays, jitter, loss and access rates between hosts.

    Args:
        delay_ns: one-way delay of each directed pair.
        jitter_ns: standard deviation of each delay; None = no jitter.
        loss_ratio: probability of each pair to lose a packet; None = no loss.
        rate_mbit: access rate of each host in both directions; 0 or None = unlimited.
        draws: source of random numbers for jitter and loss.

    Attributes:
        limits_rates: whether bytes must pass access links (``pass_down_ns`` and others).
        is_fixed: whether a frame's delay depends only on the pair.
    """

    def __init__(
        self,
        delay_ns: Delay,
        *,
        jitter_ns: Delay | None = None,
        loss_ratio: Callable[[int, int], float] | None = None,
        rate_mbit: Callable[[int], float] | None = None,
        draws: Random,
    ) -> None:
        self.delay_ns = delay_ns
        self._jitter_ns = jitter_ns
        self._loss_ratio = loss_ratio
        self._rate_mbit = rate_mbit
        self._draws = draws
        self.limits_rates = rate_mbit is not None
        self.is_fixed = jitter_ns is None and loss_ratio is None and rate_mbit is None
        self._up: dict[int, UpLink] = {}
        self._down: dict[int, DownLink] = {}

    def fixed_delay_ns(self, source: int, destination: int) -> int | None:
        """Return the delay of every frame if it depends only on the pair, otherwise None."""
        return self.delay_ns(source, destination) if self.is_fixed else None

    def arrival_ns(self, now_ns: int, source: int, destination: int, size_bytes: int) -> int:
        """Return when the last of some bytes that leave now arrives, unless earlier bytes delay them.

        With limited rates: when it arrives at the destination's access link. Calls must be in order of ``now_ns``,
        since access links are first come, first served.
        """
        delay_ns = self._draw_delay_ns(source, destination, size_bytes)
        return delay_ns + (self._up_link(source).send(now_ns, size_bytes) if self.limits_rates else now_ns)

    def cross(self, last_ns: int, source: int, destination: int, size_bytes: int, earlier_ns: int) -> Crossing:
        """Return the way of several packets between the access links.

        Args:
            last_ns: when the last of them arrives.
            source: the sender.
            destination: the receiver.
            size_bytes: their payload.
            earlier_ns: when the last packet before them arrives: none overtakes it.
        """
        up = self._up_link(source)
        first_ns = max(last_ns - up.since_first_ns(size_bytes), earlier_ns)
        return self._down_link(destination).expect(up.byte_ns, size_bytes, first_ns, last_ns)

    def pass_down_ns(self, now_ns: int, destination: int, size_bytes: int) -> int:
        """Return when a packet, or no byte (0), at the destination's access link has passed it.

        Calls of this and of the methods of a crossing's link must be in order of time.
        """
        return self._down_link(destination).pass_packet(now_ns, size_bytes)

    def _draw_delay_ns(self, source: int, destination: int, size_bytes: int) -> int:
        """Draw the time between the access links, with retransmissions."""
        delay_ns = self.delay_ns(source, destination)
        if self._jitter_ns is not None and (jitter_ns := self._jitter_ns(source, destination)):
            delay_ns = max(0, round(self._draws.gauss(delay_ns, jitter_ns)))
        if self._loss_ratio is not None:
            delay_ns += self._lost_ns(source, destination, size_bytes)
        return delay_ns

    def _lost_ns(self, source: int, destination: int, size_bytes: int) -> int:
        """Draw the time that retransmissions of these bytes take."""
        assert self._loss_ratio is not None, "the caller has checked"
        ratio = self._loss_ratio(source, destination)
        if not ratio:
            return 0
        packets = count_packets(size_bytes)
        wait_ns = RETRANSMISSION_NS + self.delay_ns(source, destination) + self.delay_ns(destination, source)
        total_ns = 0
        lost = 1.0 - (1.0 - ratio) ** packets
        while self._draws.random() < lost:
            total_ns += wait_ns
            wait_ns *= 2
            lost = ratio
        return total_ns

    def _up_link(self, host: int) -> UpLink:
        link = self._up.get(host)
        if link is None:
            link = self._up[host] = UpLink(self._byte_ns(host))
        return link

    def _down_link(self, host: int) -> DownLink:
        link = self._down.get(host)
        if link is None:
            link = self._down[host] = DownLink(self._byte_ns(host))
        return link

    def _byte_ns(self, host: int) -> float:
        assert self._rate_mbit is not None, "the caller has checked"
        rate = self._rate_mbit(host)
        return 8000 / rate if rate else 0.0


def uniform_network(delay_ms: float, draws: Random) -> SimulatedNetwork:
    """Return a network with the same delay between any two hosts."""
    delay_ns = round(delay_ms * 1e6)
    return SimulatedNetwork(lambda source, destination: delay_ns, draws=draws)


def matrix_network(underlay: Underlay, draws: Random) -> SimulatedNetwork:
    """Return the network of an underlay, with its numbers of hosts. Its matrices are not copied."""
    rate = underlay.rate_mbit.tolist()
    return SimulatedNetwork(
        _in_ns(underlay.delay_ms),
        jitter_ns=_in_ns(underlay.jitter_ms) if underlay.jitter_ms.any() else None,
        loss_ratio=underlay.loss_ratio.item if underlay.loss_ratio.any() else None,
        rate_mbit=rate.__getitem__ if any(rate) else None,
        draws=draws,
    )


def _in_ns(matrix_ms: Matrix) -> Delay:
    item = matrix_ms.item
    return lambda source, destination: round(item(source, destination) * 1e6)
