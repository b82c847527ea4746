"""How long the forwarding loop sleeps, and what it then knows about the devices."""

import mmap
import select
import socket
import time

import pytest

from harness.planes.userspace import gauges
from harness.planes.userspace.forwarder import Forwarder
from harness.planes.userspace.links import EmulatedNetwork
from harness.planes.userspace.process import Plane
from peer.runtime.clock import Clock
from topologies.network import uniform_network


@pytest.mark.parametrize(("dilation", "longest_s"), [(1, 0.001), (4, 0.004)])
def test_the_loop_never_sleeps_longer_than_a_virtual_millisecond(
    monkeypatch: pytest.MonkeyPatch, dilation: float, longest_s: float
) -> None:
    """A device whose frame does not wake it is seen again as soon."""
    asked_s: list[float] = []

    def wait(*arguments: object) -> tuple[list[int], list[int], list[int]]:
        asked_s.append(float(str(arguments[3])))
        return [], [], []

    monkeypatch.setattr(select, "select", wait)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        plane = Plane(ours, mmap.mmap(-1, gauges.SIZE_BYTES), False)
        plane.clock = clock = Clock(dilation)
        network = EmulatedNetwork(uniform_network(0, 0.0), 1)
        plane.forwarder = Forwarder(network, clock.now_ns, lambda *_: b"", lambda *_: 0)
        begin_ns = clock.now_ns()
        woke_ns = plane.sleep(begin_ns + 10**12)
    assert asked_s == [pytest.approx(longest_s)]
    assert begin_ns <= plane.forwarder.intake.empty_ns == woke_ns <= clock.virtual_ns(time.monotonic_ns())
