"""A simulated network whose links change: what enters a link at an instant, and whether it comes out."""

from collections.abc import Sequence
from random import Random

from harness.simulator.network import SimulatedNetwork, in_ns
from topologies.network import Network
from topologies.timeline import Change, Timeline


class ChangingNetwork(SimulatedNetwork):
    """A network that carries streams while its links change.

    What a packet meets is known when it is sent, since the timeline is: whether a link is cut then, and whether a cut
    that spares nothing begins before it arrives. So a packet that is lost needs no event.

    Args:
        timeline: the network and its changes, on the clock of the simulation.
        draws: source of random numbers for loss.
        seed: of jitter.
        zero_ns: the workload's zero on the clock of the simulation.
    """

    def __init__(self, timeline: Timeline, draws: Random, *, seed: int = 0, zero_ns: int = 0) -> None:
        super().__init__(timeline.network, draws, seed=seed, zero_ns=zero_ns)
        self.timeline = timeline
        self.is_fixed = False
        self.limits_rates |= any(change.rate_mbit for change in timeline.changes)

    def delay_at_ns(self, at_ns: int, source: int, destination: int) -> int:
        """Return the one-way delay of a pair at an instant, without jitter."""
        if not self.timeline.active(at_ns):
            return self.delay_ns(source, destination)
        return in_ns(self.timeline.asked(source, destination, at_ns).delay_ms)

    def round_trip_ns(self, at_ns: int, source: int, destination: int) -> int:
        """Return the delays of a pair both ways at an instant."""
        return self.delay_at_ns(at_ns, source, destination) + self.delay_at_ns(at_ns, destination, source)

    def pass_ns(self, at_ns: int, source: int, destination: int, delay_ns: int | None = None) -> int | None:
        """Return when a packet that enters the link of a pair at an instant leaves it; None = it is lost in a cut.

        Args:
            at_ns: the instant.
            source: the sender.
            destination: the receiver.
            delay_ns: how long it takes; None = the delay of the pair.
        """
        if delay_ns is None:
            delay_ns = self.delay_at_ns(at_ns, source, destination)
        arrives_ns = at_ns + delay_ns
        return None if self.timeline.loses(source, destination, at_ns, arrives_ns) else arrives_ns

    def answered_ns(self, at_ns: int, source: int, destination: int) -> int | None:
        """Return when the answer to a packet that is sent at an instant is back; None = one of the two is lost."""
        there_ns = self.pass_ns(at_ns, source, destination)
        return None if there_ns is None else self.pass_ns(there_ns, destination, source)

    def set_rates(self, at_ns: int) -> None:
        """Give the access links that a change at an instant reaches their rates. What waits at them is not slower."""
        for change in self.timeline.changes:
            if at_ns in (change.from_ns, change.to_ns):
                for host in change.up:
                    self._up_link(host).byte_ns = self._byte_ns_at(host, at_ns)
                for host in change.down:
                    self._down_link(host).byte_ns = self._byte_ns_at(self.timeline.network.size + host, at_ns)

    def _byte_ns_at(self, link: int, at_ns: int) -> float:
        rate_mbit = self.timeline.link(link, at_ns).rate_mbit
        return 8000 / rate_mbit if rate_mbit else 0.0

    def _draw_delay_ns(self, now_ns: int, enters_ns: int, source: int, destination: int, size_bytes: int) -> int:
        if not self.timeline.active(now_ns):
            return super()._draw_delay_ns(now_ns, enters_ns, source, destination, size_bytes)
        asked = self.timeline.asked(source, destination, now_ns)
        delay_ns = in_ns(asked.delay_ms)
        delay_ns += self._offset_ns(enters_ns, source, destination, asked.delay_ms, asked.jitter_ms)
        if not asked.loss_ratio:
            return delay_ns
        return delay_ns + self._lost_ns(asked.loss_ratio, self.round_trip_ns(now_ns, source, destination), size_bytes)


def simulate_network(
    network: Network, changes: Sequence[Change], draws: Random, *, seed: int = 0, zero_ns: int = 0
) -> SimulatedNetwork:
    """Return the simulated network of a network and its changes; without changes it is faster.

    Args:
        network: the network without changes.
        changes: with instants from the workload's zero.
        draws: source of random numbers for loss.
        seed: of jitter.
        zero_ns: the workload's zero on the clock of the simulation.
    """
    if not changes:
        return SimulatedNetwork(network, draws, seed=seed, zero_ns=zero_ns)
    return ChangingNetwork(Timeline(network, changes, zero_ns=zero_ns), draws, seed=seed, zero_ns=zero_ns)
