"""The simulated network: when the bytes of a stream between two hosts arrive.

Frames are carried by TCP, so no frame is lost or reordered: a lost packet arrives one retransmission timeout later, and
later packets wait for it. docs/limitations.md lists the other parts of TCP that are not simulated.
"""

from collections.abc import Callable
from random import Random

from harness.simulator.access import Crossing, DownLink, UpLink, count_packets
from harness.simulator.inner import InnerPath
from topologies.jitter import Jitter, JitterProcess
from topologies.network import Network, OfPair

RETRANSMISSION_NS = 200_000_000
"""Linux's retransmission timeout minus the round trip, if round trips vary little."""

Delay = Callable[[int, int], int]
"""(source, destination) -> one-way delay in ns."""


class SimulatedNetwork:
    """A network that carries streams.

    Args:
        network: the network.
        draws: source of random numbers for loss.
        seed: of jitter.
        zero_ns: the workload's zero on the clock of the simulation, from which jitter counts.

    Attributes:
        delay_ns: one-way delay of each directed pair.
        limits_rates: whether bytes must pass access links (``pass_down_ns`` and others).
        is_fixed: whether a frame's delay depends only on the pair.
    """

    def __init__(self, network: Network, draws: Random, *, seed: int = 0, zero_ns: int = 0) -> None:
        self.network = network
        self.delay_ns = _of_pair_ns(network.delay_ms)
        self._jitter = Jitter(seed, network.jitter_correlation_ms, zero_ns)
        self._processes: dict[tuple[int, int, float, float], JitterProcess] = {}
        self._loss_ratio = network.loss_ratio
        self._size = network.size
        self._rate_mbit = network.rate_mbit
        self._draws = draws
        self.limits_rates = bool(network.rate_mbit)
        is_even = network.jitter_ms is None and network.loss_ratio is None
        self.is_fixed = is_even and not network.rate_mbit and not network.bottlenecks
        self._inner = [UpLink(8000 / each.rate_mbit) for each in network.bottlenecks.all]
        self._up: dict[int, UpLink] = {}
        self._down: dict[int, DownLink] = {}

    def fixed_delay_ns(self, source: int, destination: int) -> int | None:
        """Return the delay of every frame if it depends only on the pair, otherwise None."""
        return self.delay_ns(source, destination) if self.is_fixed else None

    def arrival_ns(self, now_ns: int, source: int, destination: int, size_bytes: int) -> int:
        """Return when the last of some bytes that leave now arrives, unless earlier bytes delay them.

        With limited rates: when it arrives at the destination's access link, without the time that bottlenecks on the
        way take. Calls must be in order of ``now_ns``,
        since access links are first come, first served.
        """
        enters_ns = self._up_link(source).send(now_ns, size_bytes) if self.limits_rates else now_ns
        return enters_ns + self._draw_delay_ns(now_ns, enters_ns, source, destination, size_bytes)

    def inner_path(self, source: int, destination: int) -> InnerPath | None:
        """Return the bottlenecks on the way of a new connection in one direction; None = there are none."""
        stops = self.network.stops(source, destination)
        return InnerPath(stops, [self._inner[stop.bottleneck] for stop in stops]) if stops else None

    def up_byte_ns(self, source: int) -> float:
        """Return the time to send a byte on the access link of a source; 0 = unlimited."""
        return self._up_link(source).byte_ns

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

    def _draw_delay_ns(self, now_ns: int, enters_ns: int, source: int, destination: int, size_bytes: int) -> int:
        """Draw the time between the access links, with retransmissions, of bytes that leave now.

        Args:
            now_ns: when they are sent, which decides what is asked of them.
            enters_ns: when the last of them has passed the access link of the source.
            source: the sender.
            destination: the receiver.
            size_bytes: their payload.
        """
        delay_ns = self.delay_ns(source, destination)
        network = self.network
        if network.jitter_ms is not None:
            asked = network.delay_ms(source, destination), network.jitter_ms(source, destination)
            delay_ns += self._offset_ns(enters_ns, source, destination, *asked)
        if self._loss_ratio is not None and (ratio := self._loss_ratio(source, destination)):
            round_trip_ns = self.delay_ns(source, destination) + self.delay_ns(destination, source)
            delay_ns += self._lost_ns(ratio, round_trip_ns, size_bytes)
        return delay_ns

    def _offset_ns(self, at_ns: int, source: int, destination: int, delay_ms: float, jitter_ms: float) -> int:
        """Return by how much a delay deviates from its mean for bytes that enter at an instant."""
        if not jitter_ms:
            return 0
        key = source, destination, delay_ms, jitter_ms
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = self._jitter.process(*key)
        return process.offset_ns(at_ns)

    def _lost_ns(self, ratio: float, round_trip_ns: int, size_bytes: int) -> int:
        """Draw the time that retransmissions of some bytes take.

        Args:
            ratio: the probability that a packet is lost.
            round_trip_ns: between the two hosts.
            size_bytes: how many bytes.
        """
        packets = count_packets(size_bytes)
        wait_ns = RETRANSMISSION_NS + round_trip_ns
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
            link = self._down[host] = DownLink(self._byte_ns(self._size + host))
        return link

    def _byte_ns(self, number: int) -> float:
        """Return the time to send a byte on an access link, by its number in the network."""
        rate = self._rate_mbit[number] if self._rate_mbit else 0.0
        return 8000 / rate if rate else 0.0


def in_ns(value_ms: float) -> int:
    """Return a time in whole ns."""
    return round(value_ms * 1e6)


def _of_pair_ns(of_pair_ms: OfPair) -> Delay:
    return lambda source, destination: round(of_pair_ms(source, destination) * 1e6)
