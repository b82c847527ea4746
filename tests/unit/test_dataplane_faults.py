"""First frames that are late on purpose, and only those."""

import socket

import numpy as np
import pytest

from harness.testbeds.emulated.dataplane.commands import Attach, decode_command, encode
from harness.testbeds.emulated.dataplane.faults import LateFirsts, LateFirstsNetwork
from harness.testbeds.emulated.dataplane.links import AccessLink

HOSTS, DELAY_MS, LATE_MS = 4, 10.0, 1.5
ADDRESSES = [f"10.0.0.{host + 1}" for host in range(HOSTS)]
FRAMES = [(0, 1), (0, 1), (1, 0), (0, 2), (2, 0), (2, 0), (1, 2), (3, 1), (0, 1)]


def late(fault: LateFirsts, *, renewed: bool = False) -> list[bool]:
    """Which of ``FRAMES`` are late. ``renewed``: all pairs are set again before each, to what they are."""
    asked = np.zeros((3, HOSTS, HOSTS))
    asked[0] = DELAY_MS
    network = LateFirstsNetwork(asked, 1, fault)
    for host, address in enumerate(ADDRESSES):
        network.add(AccessLink(host, host, 0, 0), address)
    found = []
    for source, destination in FRAMES:
        if renewed:
            network.set_pairs(asked)
        pair = network.links[source].route[socket.inet_aton(ADDRESSES[destination])]
        assert (pair.source.host, pair.destination.host) == (source, destination)
        found.append({10_000_000: False, 11_500_000: True}[pair.delay_ns])
    return found


@pytest.mark.parametrize("renewed", [False, True])
def test_the_first_frame_of_each_directed_pair_is_late(renewed: bool) -> None:
    expected = [True, False, True, True, True, False, True, True, False]
    assert late(LateFirsts("pairs"), renewed=renewed) == expected


@pytest.mark.parametrize("renewed", [False, True])
def test_the_first_frame_that_each_host_sends_is_late(renewed: bool) -> None:
    expected = [True, False, True, False, True, False, False, True, False]
    assert late(LateFirsts("hosts"), renewed=renewed) == expected


def test_the_fault_may_be_of_every_so_many_pairs() -> None:
    expected = [False, False, True, False, True, False, False, True, False]
    assert late(LateFirsts("pairs", every=2)) == expected


def test_frames_to_nowhere_are_not_late() -> None:
    network = LateFirstsNetwork(np.zeros((3, 1, 1)), 1, LateFirsts("hosts"))
    network.add(AccessLink(0, 0, 0, 0), ADDRESSES[0])
    assert network.links[0].route[socket.inet_aton("10.9.9.9")].dead_end == "unknown_destination"
    assert network.links[0].route[socket.inet_aton(ADDRESSES[0])].delay_ns == 1_500_000


def test_no_network_has_the_fault_unless_it_is_asked_for() -> None:
    attach = decode_command(encode(Attach((), (), (), 1, 1.0, 1)))
    assert isinstance(attach, Attach) and attach.fault is None
    asked = Attach((), (), (), 1, 1.0, 1, LateFirsts("pairs"))
    assert decode_command(encode(asked)) == asked
