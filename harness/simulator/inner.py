"""Bottlenecks of the simulated network: links with a rate between the access links, which packets of all paths share.

A frame's packets meet each bottleneck in the order of their arrival there, so each packet takes one event per
bottleneck. A frame whose path has none takes no such event. Nothing is dropped: frames are bytes of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness.simulator.access import HEADER_BYTES, UpLink, count_packets
from peer.wire import MSS_BYTES
from topologies.bottlenecks import Stop

Push = Callable[[int, Any, Any], None]
"""(instant, action, argument) -> the action is called at the instant."""


class InnerPath:
    """The bottlenecks on the way of one connection, in one direction. No packet of it overtakes another one.

    Attributes:
        stops: the bottlenecks, in the order of the path.
        links: their queues, likewise.
        latest_ns: when the latest packet reached each of them and, last, the access link of the destination.
    """

    __slots__ = ("latest_ns", "links", "stops")

    def __init__(self, stops: Sequence[Stop], links: Sequence[UpLink]) -> None:
        self.stops = stops
        self.links = links
        self.latest_ns = [0] * (len(stops) + 1)

    def reach_ns(self, number: int, at_ns: int) -> int:
        """Note that a packet reaches a stop, or the end of the path. Return when: not before those ahead of it."""
        latest_ns = self.latest_ns
        if at_ns < latest_ns[number]:
            return latest_ns[number]
        latest_ns[number] = at_ns
        return at_ns


class Packet(NamedTuple):
    """A packet on its way through bottlenecks.

    Attributes:
        path: its way.
        parts_ns: the delay before each stop; last, the delay behind the last stop.
        size_bytes: its payload; 0 = the end of a stream, which waits its turn and takes no time.
        action, argument: what to do when it reaches the access link of its destination.
    """

    path: InnerPath
    parts_ns: Sequence[int]
    size_bytes: int
    action: Callable[[Any], None]
    argument: Any


def enter(push: Push, packet: Packet, arrival_ns: int, now_ns: int) -> None:
    """Let a packet travel to the first bottleneck of its path, and from there on.

    Args:
        push: makes an event.
        packet: the packet.
        arrival_ns: when it would reach the access link of its destination if no bottleneck took time.
        now_ns: the present instant.
    """
    _travel(push, packet, 0, max(arrival_ns - sum(packet.parts_ns[1:]), now_ns))


def _travel(push: Push, packet: Packet, number: int, at_ns: int) -> None:
    """Let a packet reach a stop of its path, or the end of it (the number of stops), at an instant."""
    reached_ns = packet.path.reach_ns(number, at_ns)
    if number < len(packet.path.stops):
        push(reached_ns, _pass, (push, packet, number, reached_ns))
    else:
        push(reached_ns, packet.action, packet.argument)


def _pass(step: tuple[Push, Packet, int, int]) -> None:
    """Let a packet that has reached a bottleneck pass it."""
    push, packet, number, at_ns = step
    left_ns = packet.path.links[number].send(at_ns, packet.size_bytes)
    _travel(push, packet, number + 1, left_ns + packet.parts_ns[number + 1])


def divide(size_bytes: int, byte_ns: float) -> list[tuple[int, int]]:
    """Return the payload of every packet of a frame, and how long before the last one it has left its source.

    Args:
        size_bytes: of the frame; 0 = the end of a stream, which is one packet without payload.
        byte_ns: time to send a byte on the access link of the source.
    """
    packets = max(count_packets(size_bytes), 1)
    divided = []
    for behind in reversed(range(packets)):
        before_bytes = (packets - 1 - behind) * MSS_BYTES
        payload_bytes = min(size_bytes - before_bytes, MSS_BYTES)
        rest_bytes = size_bytes - before_bytes - payload_bytes + behind * HEADER_BYTES
        divided.append((payload_bytes, round(rest_bytes * byte_ns)))
    return divided
