"""What the simulated network does to the bytes of a stream between two hosts.

TCP carries the frames, so nothing is lost or reordered for good: a lost packet arrives one retransmission timeout
later, and what was sent after it waits behind it. docs/limitations.md lists what else of TCP is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from topologies.model import Matrix, Underlay

MSS_BYTES = 1448
"""Payload of a full packet on Ethernet with TCP timestamps."""

PACKET_BYTES = 52
"""IPv4 and TCP headers with timestamps."""

RETRANSMISSION_NS = 200_000_000
"""What Linux's retransmission timeout is longer than the round trip, where round trips are alike."""

Delay = Callable[[int, int], int]
"""(source, destination) -> one-way delay in ns."""


class Network:
    """Delays, jitter, loss and access rates between hosts.

    Args:
        delay_ns: the one-way delay of each directed pair.
        jitter_ns: the standard deviation of each, None = no jitter.
        loss_ratio: the probability of each to lose a packet, None = no loss.
        rate_mbit: the access rate of each host, both ways; 0 or None = unlimited.
        draws: for jitter and loss.

    Attributes:
        limits_rates: whether what arrives still has to pass the destination's access link (``pass_down_ns``).
        is_fixed: whether nothing but the pair decides over a frame's delay.
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
        self._up_free_ns: dict[int, int] = {}
        self._down_free_ns: dict[int, int] = {}

    def fixed_delay_ns(self, source: int, destination: int) -> int | None:
        """The delay of every frame, where nothing but the pair decides over it; None where more does."""
        return self.delay_ns(source, destination) if self.is_fixed else None

    def arrival_ns(self, now_ns: int, source: int, destination: int, size_bytes: int) -> int:
        """When the last of some bytes that leave now arrives, if nothing sent before holds them up.

        Where rates are limited: arrives at the destination's access link. Calls must come in the order of ``now_ns``:
        hosts' access links are first come, first served.
        """
        delay_ns = self.delay_ns(source, destination)
        if self._jitter_ns is not None and (jitter_ns := self._jitter_ns(source, destination)):
            delay_ns = max(0, round(self._draws.gauss(delay_ns, jitter_ns)))
        if self._loss_ratio is not None:
            delay_ns += self._lost_ns(source, destination, size_bytes)
        return delay_ns + (
            now_ns if self._rate_mbit is None else self._pass(self._up_free_ns, source, now_ns, size_bytes)
        )

    def pass_down_ns(self, now_ns: int, destination: int, size_bytes: int) -> int:
        """When bytes that are at the destination's access link now are through it. Calls as of ``arrival_ns``."""
        return self._pass(self._down_free_ns, destination, now_ns, size_bytes)

    def _lost_ns(self, source: int, destination: int, size_bytes: int) -> int:
        """The time that retransmissions of these bytes cost."""
        assert self._loss_ratio is not None, "the caller has asked"
        ratio = self._loss_ratio(source, destination)
        if not ratio:
            return 0
        packets = -(-size_bytes // MSS_BYTES)
        wait_ns = RETRANSMISSION_NS + self.delay_ns(source, destination) + self.delay_ns(destination, source)
        total_ns = 0
        lost = 1.0 - (1.0 - ratio) ** packets
        while self._draws.random() < lost:
            total_ns += wait_ns
            wait_ns *= 2
            lost = ratio
        return total_ns

    def _pass(self, free_ns: dict[int, int], host: int, at_ns: int, size_bytes: int) -> int:
        """Through a host's access link: wait until it is free, then take the time of the bytes."""
        assert self._rate_mbit is not None, "the caller has asked"
        rate = self._rate_mbit(host)
        if not rate:
            return at_ns
        wire_bytes = size_bytes + PACKET_BYTES * -(-size_bytes // MSS_BYTES)
        done_ns = max(at_ns, free_ns.get(host, 0)) + round(wire_bytes * 8000 / rate)
        free_ns[host] = done_ns
        return done_ns


def uniform_network(delay_ms: float, draws: Random) -> Network:
    """The same delay between any two hosts."""
    delay_ns = round(delay_ms * 1e6)
    return Network(lambda source, destination: delay_ns, draws=draws)


def matrix_network(underlay: Underlay, draws: Random) -> Network:
    """What an underlay asks; hosts are numbered as there. Its matrices are read where they are."""
    rate = underlay.rate_mbit.tolist()
    return Network(
        _in_ns(underlay.delay_ms),
        jitter_ns=_in_ns(underlay.jitter_ms) if underlay.jitter_ms.any() else None,
        loss_ratio=underlay.loss_ratio.item if underlay.loss_ratio.any() else None,
        rate_mbit=rate.__getitem__ if any(rate) else None,
        draws=draws,
    )


def _in_ns(matrix_ms: Matrix) -> Delay:
    item = matrix_ms.item
    return lambda source, destination: round(item(source, destination) * 1e6)
