"""Starts and stops a process that captures in hosts."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.errors import TestbedError
from harness.machine.child import Child
from harness.planes.host_capture.process import Order, Tally
from metrics.rundir.files import HOST_CAPTURE_FILE
from peer.files import LOGS_FOLDER
from peer.runtime.clock import UNDILATED, Clock

MOST_BYTES = 96
"""Most bytes kept of a packet: its headers."""


class HostCaptures:
    """The process, which exists during a capture, and its file.

    Attributes:
        path: the file.
    """

    def __init__(
        self,
        netns: Mapping[int, str],
        run_dir: Path,
        device: str = "wan0",
        clock: Clock = UNDILATED,
        file: str = HOST_CAPTURE_FILE,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Start nothing yet.

        Args:
            netns: the network namespaces of the hosts, by number.
            run_dir: gets the file.
            device: the device's name in each of them.
            clock: the clock of the run.
            file: the file's path, relative to the run directory.
            most_bytes: the most bytes that are kept of a packet.
        """
        self._netns, self._run_dir, self._device, self._clock = dict(netns), run_dir, device, clock
        self.path, self._most_bytes = run_dir / file, most_bytes
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The process; None if there is none."""
        return self._child.pid if self._child else None

    def start(self, snaplen_bytes: int, epoch_offset_ns: int) -> None:
        """Start the process; return when it receives packets.

        Args:
            snaplen_bytes: bytes kept of each packet, if ``most_bytes`` allows as many.
            epoch_offset_ns: CLOCK_REALTIME - CLOCK_MONOTONIC.

        Raises:
            TestbedError: it could not capture in a host.
        """
        if not self._netns:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept_bytes = min(snaplen_bytes, self._most_bytes)
        order = Order(str(self.path), self._netns, self._device, kept_bytes, epoch_offset_ns, self._clock.dilation)
        words = [msgspec.json.encode(order).decode()]
        log = self._run_dir / LOGS_FOLDER / "host-capture.log"
        child = Child("the capture in hosts", f"{__package__}.process", words, log, answers=True)
        if not child.read_line():
            problem = child.last_words
            child.kill()
            raise TestbedError("start the capture in hosts", problem)
        self._child = child

    def lost(self) -> dict[str, str]:
        """Return the process and how it ended, if it ended early."""
        return self._child.lost() if self._child else {}

    def kill(self) -> None:
        """End the process, if there is one; its file stays as it is."""
        child, self._child = self._child, None
        if child:
            child.kill()

    def stop(self) -> Tally:
        """Stop the capture; return what it holds when the file is complete.

        Raises:
            TestbedError: the process did not end as expected.
        """
        if not self._child:
            return Tally(0, 0, 0)
        child, self._child = self._child, None
        complaints = child.end()
        told = "" if complaints else child.read_line()
        child.kill()
        if complaints:
            raise TestbedError("stop the capture in hosts", complaints[0])
        return msgspec.json.decode(told, type=Tally)
