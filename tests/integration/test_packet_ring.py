"""The ring of a device's packets, while nobody reads it."""

import socket
import time
from pathlib import Path

import pytest

from benchmarks._namespaces import held_namespaces
from harness.machine.netns import entered
from harness.planes.host_capture.ring import RETIRE_MS, PacketRing
from tests.rings import read_stopped

pytestmark = pytest.mark.root

PACKETS = 40
WAIT_S = 1.2 * RETIRE_MS / 1e3


def test_a_reader_that_pauses_for_seconds_loses_no_packet_of_a_slow_sender() -> None:
    """The kernel hands over a block with two packets after each wait: a UDP packet on its way out and in again."""
    with held_namespaces(1) as [netns], Path(netns).open("rb") as namespace:
        ring = PacketRing(netns, "lo", 96)
        with entered(namespace.fileno()):
            receiver, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        with receiver, sender:
            receiver.bind(("127.0.0.1", 5000))
            ring.start()
            for _ in range(PACKETS):
                sender.sendto(b"packet", receiver.getsockname())
                time.sleep(WAIT_S)
            ring.stop()
    assert len(read_stopped(ring)) == ring.received == 2 * PACKETS
    assert ring.dropped == 0
