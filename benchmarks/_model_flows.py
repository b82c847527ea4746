"""A model of TCP's flows (CUBIC) that share a drop-tail queue, which treats all packets alike: how even they can be.

The queue is the one of the userspace plane (``Queue``), on virtual time. A sender keeps as many packets on their way as
its window says, and learns of a loss from the third packet behind it. A round trip takes up to the time to send a
packet longer, at random: otherwise the same flow would meet the full queue for minutes. Not modelled: delayed
acknowledgements, timeouts, and the pacing of packets while a flow recovers.

Source: S. Floyd and V. Jacobson, On traffic phase effects in packet-switched gateways, 1992 (the random time); RFC
9438; ``tcp_cubic.c`` of Linux, which always grows like Reno with 0.53 packets per round trip at least.
"""

import heapq
from dataclasses import dataclass
from random import Random

import numpy as np

from benchmarks._flows import INTERVAL_S, Matrix
from harness.planes.userspace.trips import Queue
from topologies.bottlenecks import Bottleneck

SECOND_NS = 1_000_000_000
PACKET_BYTES, PAYLOAD_BYTES = 1500, 1448
STARTS_NS = 50_000_000
"""Flows begin within this time."""

_C, _BETA = 0.4, 0.7
_FRIENDLY = 3 * (1 - _BETA) / (1 + _BETA)
_FIRST_WINDOW, _LEAST_WINDOW = 10.0, 2.0


@dataclass
class Sender:
    """A flow's sender: its window in packets, by CUBIC.

    Attributes:
        window: packets that may be on their way.
        on_the_way: packets that are.
        reduced_ns: when the window was last reduced; None = it never was, and grows with each packet.
        peak: the window at which it was reduced, or less if that was below the one before.
        back_s: how long after that it has grown to the peak.
        friendly: the window of Reno since then.
    """

    window: float = _FIRST_WINDOW
    on_the_way: int = 0
    reduced_ns: int | None = None
    peak: float = 0.0
    back_s: float = 0.0
    friendly: float = 0.0

    def grow(self, now_ns: int, round_trip_ns: int) -> None:
        """Take an acknowledgement."""
        if self.reduced_ns is None:
            self.window += 1
            return
        self.friendly += _FRIENDLY / self.window
        after_s = (now_ns + round_trip_ns - self.reduced_ns) / SECOND_NS
        target = max(self.peak + _C * (after_s - self.back_s) ** 3, self.friendly)
        if target > self.window:
            self.window += min((target - self.window) / self.window, 0.5)

    def reduce(self, sent_ns: int, now_ns: int) -> None:
        """Learn of a loss; losses of packets that were sent before the last reduction are part of it."""
        if self.reduced_ns is None or sent_ns > self.reduced_ns:
            converges = self.reduced_ns is not None and self.window < self.peak
            self.peak = self.window * (1 + _BETA) / 2 if converges else self.window
            self.window = self.friendly = max(self.window * _BETA, _LEAST_WINDOW)
            self.back_s = (max(self.peak - self.window, 0.0) / _C) ** (1 / 3)
            self.reduced_ns = now_ns


def model_flows(flows: int, seconds: int, ignored_s: int, link: Bottleneck, round_trip_ms: float, seed: int) -> Matrix:
    """Return (flows, intervals) rates of payload (Mbit/s) of flows that share a queue.

    Args:
        flows: their number.
        seconds: how long they are counted.
        ignored_s: the beginning, which is not counted.
        link: what they share.
        round_trip_ms: the round trip of the idle network, without the time to send a packet.
        seed: of their beginnings and of the unsteadiness of round trips.
    """
    draws, queue = Random(seed), Queue(link)
    packet_ns, round_trip_ns = round(PACKET_BYTES * queue.byte_ns), round(round_trip_ms * 1e6)
    senders = [Sender() for _ in range(flows)]
    carried = np.zeros((flows, seconds // INTERVAL_S))
    # (instant, number, flow, when the packet was sent, whether it was lost); a beginning is like a lost packet
    events = [(draws.randrange(STARTS_NS), flow, flow, -1, False) for flow in range(flows)]
    heapq.heapify(events)
    number, first_ns, end_ns = (
        flows,
        ignored_s * SECOND_NS,
        (ignored_s + seconds // INTERVAL_S * INTERVAL_S) * SECOND_NS,
    )
    while True:
        now_ns, _, flow, sent_ns, is_lost = heapq.heappop(events)
        if now_ns >= end_ns:
            return carried * PAYLOAD_BYTES * 8 / 1e6 / INTERVAL_S
        sender = senders[flow]
        if sent_ns >= 0:
            sender.on_the_way -= 1
            if is_lost:
                sender.reduce(sent_ns, now_ns)
            else:
                sender.grow(now_ns, now_ns - sent_ns)
                if now_ns >= first_ns:
                    carried[flow, (now_ns - first_ns) // (INTERVAL_S * SECOND_NS)] += 1
        while sender.on_the_way < int(sender.window):
            sender.on_the_way += 1
            left_ns = queue.send(now_ns, PACKET_BYTES)
            known_ns = now_ns + queue.longest_ns + 3 * packet_ns if left_ns is None else left_ns
            known_ns += round_trip_ns + draws.randrange(packet_ns)
            heapq.heappush(events, (known_ns, number, flow, now_ns, left_ns is None))
            number += 1
