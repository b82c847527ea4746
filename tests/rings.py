"""Reading what a stopped packet ring still holds."""

import time

from harness.planes.host_capture.ring import RETIRE_MS, Packet, PacketRing


def read_stopped(ring: PacketRing) -> list[Packet]:
    """Return the packets that nobody has read yet, once the kernel has handed them over, and close the ring."""
    packets: list[Packet] = []
    until_s = time.monotonic() + 300
    while ring.outstanding and time.monotonic() < until_s:
        packets += ring.packets()
        time.sleep(RETIRE_MS / 1e3)
    ring.close()
    return packets
