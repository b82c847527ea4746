"""Packets of a device as the kernel saw them, received through a memory-mapped ring (TPACKET_V3).

The kernel copies the beginning of each packet into the ring, with its own timestamp, and hands over whole blocks. So
reading needs no system call, and a reader that runs a few times per second misses nothing.

A block is handed over when it is full, or ``RETIRE_MS`` after the kernel has opened it, however few packets it has. So
a reader that does not run loses packets once all blocks are handed over: at a low rate the number of blocks, not their
size, is how long it may pause.

Source: Documentation/networking/packet_mmap.rst, linux/if_packet.h, packet(7).
"""

import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Iterator

from harness.errors import TestbedError
from harness.machine.netns import entered
from harness.planes.pcapng import INBOUND, OUTBOUND

RETIRE_MS = 50
"""Time after which the kernel hands over a block that is not full."""

_BLOCK_BYTES, _BLOCKS = 1 << 15, 64
"""A packet takes about 200 bytes: the ring holds some 10,000, and the packets of at least 3 s at a low rate."""

_FRAME_BYTES = 1 << 11
_SOL_PACKET, _RX_RING, _STATISTICS, _VERSION, _V3 = 263, 5, 6, 10, 2
_ETH_P_ALL = 0x0003
_SO_ATTACH_FILTER = 26
_RETURN = 0x06
_OUTGOING = 4

_REQUEST = struct.Struct("=7I")
_STATS = struct.Struct("=3I")
_BLOCK_AT, _BLOCK = 8, struct.Struct("=3I")
"""Status, number of packets, offset of the first one."""

_KERNEL, _USER = 0, 1
_STATUS = struct.Struct("=I")
_PACKET = struct.Struct("=5I4xH32xB")
"""Offset of the next packet, seconds, nanoseconds, bytes kept, bytes of the packet; where it starts; its kind."""

Packet = tuple[int, int, bytes, int]
"""Direction, CLOCK_REALTIME in ns, the beginning, and the length of the whole packet."""


class PacketRing:
    """The packets that a device has sent and received since ``start``."""

    def __init__(self, netns: str, device: str, snaplen_bytes: int) -> None:
        """Make the ring in the namespace. Nothing is received yet.

        Raises:
            TestbedError: the kernel refused a step.
        """
        self._asked = f"capture the packets of {device} in {netns}"
        self._device = device
        self._snaplen_bytes = snaplen_bytes
        self._next = 0
        self.received = self.dropped = self.read = 0
        try:
            namespace = os.open(netns, os.O_RDONLY)
            try:
                with entered(namespace):
                    self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
            finally:
                os.close(namespace)
            self._socket.setsockopt(_SOL_PACKET, _VERSION, _V3)
            frames = _BLOCK_BYTES // _FRAME_BYTES * _BLOCKS
            request = _REQUEST.pack(_BLOCK_BYTES, _BLOCKS, _FRAME_BYTES, frames, RETIRE_MS, 0, 0)
            self._socket.setsockopt(_SOL_PACKET, _RX_RING, request)
            self._memory = mmap.mmap(self._socket.fileno(), _BLOCK_BYTES * _BLOCKS)
        except OSError as error:
            raise TestbedError(self._asked, error.strerror or str(error)) from error

    def start(self) -> None:
        """Receive from now on.

        Raises:
            TestbedError: there is no such device.
        """
        try:
            self._keep(self._snaplen_bytes)
            self._socket.bind((self._device, _ETH_P_ALL))
        except OSError as error:
            raise TestbedError(self._asked, error.strerror or str(error)) from error

    def stop(self) -> None:
        """Receive nothing more. What the kernel has not handed over yet comes within two periods of ``RETIRE_MS``."""
        self._keep(0)
        self.received, self.dropped, _ = _STATS.unpack(self._socket.getsockopt(_SOL_PACKET, _STATISTICS, _STATS.size))

    @property
    def outstanding(self) -> int:
        """Packets that have not been read, after ``stop``."""
        return self.received - self.dropped - self.read

    def packets(self) -> Iterator[Packet]:
        """Yield the packets of the blocks that the kernel has handed over, and give the blocks back."""
        while True:
            at = self._next * _BLOCK_BYTES
            status, count, first = _BLOCK.unpack_from(self._memory, at + _BLOCK_AT)
            if not status & _USER:
                return
            yield from self._block(at + first, count)
            self.read += count
            _STATUS.pack_into(self._memory, at + _BLOCK_AT, _KERNEL)
            self._next = (self._next + 1) % _BLOCKS

    def close(self) -> None:
        self._memory.close()
        self._socket.close()

    def _block(self, at: int, count: int) -> Iterator[Packet]:
        memory = self._memory
        for _ in range(count):
            following, seconds, nanoseconds, kept, length, start, kind = _PACKET.unpack_from(memory, at)
            direction = OUTBOUND if kind == _OUTGOING else INBOUND
            yield direction, seconds * 1_000_000_000 + nanoseconds, memory[at + start : at + start + kept], length
            at += following

    def _keep(self, length_bytes: int) -> None:
        """Let the kernel keep so many bytes of each packet; 0 = ignore packets."""
        program = ctypes.create_string_buffer(struct.pack("=HBBI", _RETURN, 0, 0, length_bytes))
        filters = struct.pack("@HP", 1, ctypes.addressof(program))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filters)
