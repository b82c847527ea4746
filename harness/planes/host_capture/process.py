"""The process that captures in hosts: ``python -m harness.planes.host_capture.process ORDER``.

It prints a line when it receives packets. At the end of its standard input it ends with a line that has its ``Tally``.
In between it wakes a few times per second, moves the packets from the kernel's rings to the file, and gives way to
everything else.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from harness.errors import TestbedError
from harness.planes.host_capture.ring import RETIRE_MS, PacketRing
from harness.planes.pcapng import INBOUND, OUTBOUND, PacketForms, interface, section_header, statistics
from peer.runtime.clock import Clock

PERIOD_S = 0.1
"""Real time between two looks at the rings."""

LAST_S = 5.0
"""Time in which the kernel must hand over the last packets."""

_LOWEST_PRIORITY = 19


class Order(Struct, frozen=True):
    """What to capture.

    Attributes:
        path: the file.
        netns: the network namespace of each host, by its number.
        device: the device's name in each of them.
        snaplen_bytes: bytes kept of each packet.
        epoch_offset_ns: CLOCK_REALTIME - CLOCK_MONOTONIC.
        time_dilation: of the run.
    """

    path: str
    netns: dict[int, str]
    device: str
    snaplen_bytes: int
    epoch_offset_ns: int
    time_dilation: float


class Tally(Struct, frozen=True):
    """What a finished capture holds.

    Attributes:
        outbound, inbound: records of packets that hosts sent and received.
        dropped: packets that the kernel had no room for.
    """

    outbound: int
    inbound: int
    dropped: int


class HostCapture:
    """The rings of all hosts, and the file that gets their packets.

    Timestamps are virtual instants + the offset, as in the data plane's capture.
    """

    def __init__(self, order: Order, file: BinaryIO) -> None:
        """Make the rings. Nothing is received yet.

        Raises:
            TestbedError: the kernel refused a step.
        """
        self._clock, self._offset_ns = Clock(order.time_dilation), order.epoch_offset_ns
        self._forms = PacketForms(order.snaplen_bytes)
        self._rings = {host: PacketRing(path, order.device, order.snaplen_bytes) for host, path in order.netns.items()}
        self._file = file
        self._records = {OUTBOUND: 0, INBOUND: 0}
        file.write(section_header() + b"".join(interface(str(host), order.snaplen_bytes) for host in self._rings))

    def start(self) -> None:
        """Receive from now on.

        Raises:
            TestbedError: a device is missing.
        """
        self._start_ns = self._clock.now_ns() + self._offset_ns
        for ring in self._rings.values():
            ring.start()

    def drain(self) -> None:
        """Write the packets that the kernel has handed over."""
        for index, ring in enumerate(self._rings.values()):
            blocks = []
            for direction, at_ns, beginning, length in ring.packets():
                self._records[direction] += 1
                blocks.append(self._forms.packet(index, direction, self._stamp(at_ns), beginning, length))
            self._file.write(b"".join(blocks))

    def finish(self) -> Tally:
        """Stop receiving, and write the last packets and how many the kernel dropped.

        Raises:
            TestbedError: the kernel kept packets back.
        """
        for ring in self._rings.values():
            ring.stop()
        end_ns = self._clock.now_ns() + self._offset_ns
        until_s = time.monotonic() + LAST_S
        while any(ring.outstanding for ring in self._rings.values()) and time.monotonic() < until_s:
            time.sleep(RETIRE_MS / 1e3)
            self.drain()
        for index, ring in enumerate(self._rings.values()):
            self._file.write(statistics(index, self._start_ns, end_ns, ring.received, ring.dropped))
        self._file.flush()
        missing = sum(ring.outstanding for ring in self._rings.values())
        if missing:
            raise TestbedError("finish the captures in hosts", f"the kernel kept {missing} packets back")
        dropped = sum(ring.dropped for ring in self._rings.values())
        return Tally(self._records[OUTBOUND], self._records[INBOUND], dropped)

    def _stamp(self, at_ns: int) -> int:
        return self._clock.virtual_ns(at_ns - self._offset_ns) + self._offset_ns


def main() -> None:
    """Capture until the end of standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    order = msgspec.json.decode(sys.argv[1], type=Order)
    try:
        with Path(order.path).open("xb") as file:
            capture = HostCapture(order, file)
            capture.start()
            os.nice(_LOWEST_PRIORITY)
            print("ready", flush=True)
            while not select.select([sys.stdin], [], [], PERIOD_S)[0]:
                capture.drain()
            print(msgspec.json.encode(capture.finish()).decode(), flush=True)
    except (TestbedError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
