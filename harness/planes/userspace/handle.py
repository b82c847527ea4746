"""The handle of the userspace data plane: starts its processes, sends commands to the forwarding one, stops them.

Source: design section 4.
"""

import fcntl
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from harness.errors import TestbedError
from harness.machine.child import Child, wrap
from harness.planes.plane import (
    AccessChange,
    CaptureCounts,
    Change,
    Counters,
    FinalCounters,
    PairChange,
    PairsChange,
    Port,
    check_ports,
)
from harness.planes.userspace import commands, gauges
from harness.planes.userspace.capture import GROUP_HOSTS
from harness.planes.userspace.commands import Command, Reply
from harness.planes.userspace.defects import Defect
from harness.planes.userspace.forwarder import LATE_NS
from metrics.rundir.files import DATAPLANE_FILE
from peer.files import LOGS_FOLDER
from topologies import timeline
from topologies.network import Network

REPLY_TIMEOUT_S = 60.0
PIPE_BYTES = 1 << 20
_STEADY_HEAP = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_TOP_PAD_": str(1 << 24)}
"""For glibc: freed memory of frames is kept for later frames instead of being returned to the kernel."""


class UserspacePlane:
    """The userspace plane: three kinds of processes, which this object starts, commands and ends.

    ``process`` owns one TUN device per host and forwards. It takes one command at a time over a socket pair,
    with descriptors (networks, pipes) attached, and answers each. ``monitor`` reads the counters, which the
    forwarding process publishes in shared memory, and serves and logs them. ``writer`` exists during a
    capture and copies the records from pipes to files. So forwarding never waits for a disk or a scrape. ``lost``
    reports processes that ended early; without the forwarding process the next command fails.

    Hosts are numbered as in the network. Every method can raise ``TestbedError``.

    Attributes:
        complaints: one sentence per process that did not end as expected.
    """

    def __init__(
        self,
        network: Network,
        seed: int,
        folder: Path,
        metrics: tuple[str, int] | None = None,
        time_dilation: float = 1.0,
        late_ns: int = LATE_NS,
        defect: Defect | None = None,
    ) -> None:
        """Start the processes.

        Args:
            network: what is asked of packets.
            seed: seed of loss and jitter.
            folder: folder for ``dataplane.jsonl`` and, in ``logs``, the processes' standard error.
            metrics: address and port for Prometheus; None = not served.
            time_dilation: factor by which everything runs slower; reported times are virtual.
            late_ns: frames later than this are counted and recorded as late.
            defect: a deliberate defect of the plane, for tests and benchmarks.
        """
        self._network = network
        self._seed = seed
        self._time_dilation, self._late_ns = time_dilation, late_ns
        self._defect = defect
        self._logs = folder / LOGS_FOLDER
        self._writer: Child | None = None
        self._files: tuple[Path, ...] = ()
        self.complaints: list[str] = []
        memory = os.memfd_create("dataplane")
        os.ftruncate(memory, gauges.SIZE_BYTES)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(REPLY_TIMEOUT_S)
        self._process = self._start("process", [theirs.fileno(), memory], str(theirs.fileno()), str(memory))
        theirs.close()
        served = [metrics[0], str(metrics[1])] if metrics else []
        words = [str(memory), str(folder / DATAPLANE_FILE), str(time_dilation), *served]
        self._monitor = self._start("monitor", [memory], *words)
        os.close(memory)

    @property
    def pid(self) -> int:
        return self._process.pid

    def attach(self, ports: Sequence[Port]) -> None:
        """Make every host's device, address it, bring it up, and start to forward."""
        check_ports(ports, self._network.size)
        command = commands.Attach(tuple(ports), self._seed, self._time_dilation, self._late_ns, self._defect)
        self._ask_with(commands.wrap_network(self._network), command)

    def apply(self, change: Change) -> None:
        """Change the network. Frames already in flight keep their due times."""
        match change:
            case PairsChange():
                if change.network.size != self._network.size:
                    raise TestbedError("set the pairs", f"expected a network of {self._network.size} hosts")
                self._ask_with(commands.wrap_network(change.network), commands.SetPairs())
            case PairChange():
                self._check(change.source)
                self._check(change.destination)
                self._ask(commands.SetPair(change))
            case AccessChange():
                self._check(change.host)
                self._ask(commands.SetAccess(change))

    def schedule(self, changes: Sequence[timeline.Change], zero_ns: int) -> None:
        """Schedule what faults do to the network; ``zero_ns`` is their zero on the run's clock."""
        self._ask_with(wrap(timeline.encode_changes(changes)), commands.Schedule(zero_ns))

    def start_capture(self, folder: Path, snaplen_bytes: int, epoch_offset_ns: int) -> None:
        """Record every frame at ingress and at egress, one file per group of hosts; times are virtual + the offset."""
        if self._writer:
            raise TestbedError("start a capture", "one is running")
        folder.mkdir(parents=True, exist_ok=True)
        groups = range(-(-self._network.size // GROUP_HOSTS))
        self._files = tuple(folder / f"hosts-{group:03d}.pcapng" for group in groups)
        pipes = [_make_pipe() for _ in self._files]
        readers, writers = [list(ends) for ends in zip(*pipes, strict=True)]
        sources = [f"{reader}={path}" for reader, path in zip(readers, self._files, strict=True)]
        self._writer = self._start("writer", readers, *sources)
        for reader in readers:
            os.close(reader)
        try:
            self._ask(commands.StartCapture(snaplen_bytes, epoch_offset_ns), writers)
        finally:
            for writer in writers:
                os.close(writer)

    def stop_capture(self) -> CaptureCounts:
        """Stop the capture; return when the files are complete on disk."""
        if not self._writer:
            raise TestbedError("stop the capture", "none is running")
        tally = self._ask(commands.StopCapture()).tally
        assert tally
        self.complaints += self._writer.end()
        self._writer = None
        return CaptureCounts(
            self._files, tally.records_written, tally.records_dropped, tally.frames_in, tally.frames_out
        )

    def counters(self) -> Counters:
        """Return a consistent snapshot of the counters."""
        counters = self._ask(commands.Count()).counters
        assert counters
        return counters

    def cpu_s(self) -> float:
        """Return the forwarding process's processor time (s), which the kernel counts in ticks of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> FinalCounters:
        """Stop forwarding and remove the devices. Frames in flight are never written."""
        try:
            final = self._ask(commands.Close()).final
            assert final
            self.complaints += self._process.end() + self._monitor.end()
        finally:
            self.kill()
        return final

    def lost(self) -> dict[str, str]:
        """Return the processes that have ended, how, and the last lines of their logs."""
        return {name: how for child in self._children for name, how in child.lost().items()}

    def kill(self) -> None:
        self._control.close()
        for child in self._children:
            child.kill()

    @property
    def _children(self) -> list[Child]:
        return [child for child in (self._process, self._monitor, self._writer) if child]

    def _check(self, host: int) -> None:
        if not 0 <= host < self._network.size:
            raise TestbedError(f"change host {host}", f"expected a host from 0 to {self._network.size - 1}")

    def _ask_with(self, descriptor: int, command: Command) -> None:
        """Send a command with a file in memory, and close the file."""
        try:
            self._ask(command, [descriptor])
        finally:
            os.close(descriptor)

    def _ask(self, command: Command, descriptors: Sequence[int] = ()) -> Reply:
        asked = f"data plane: {type(command).__name__}"
        try:
            socket.send_fds(self._control, [commands.encode(command)], list(descriptors))
            answer = self._control.recv(commands.MESSAGE_BYTES)
        except TimeoutError as error:
            raise TestbedError(asked, f"no answer within {REPLY_TIMEOUT_S:g} s") from error
        except ConnectionError:
            answer = b""
        if not answer:
            raise TestbedError(asked, f"the forwarding process has ended; {self._process.last_words}")
        reply = commands.decode_reply(answer)
        if reply.error is not None:
            raise TestbedError("data plane", reply.error)
        return reply

    def _start(self, name: str, descriptors: Sequence[int], *arguments: str) -> Child:
        log = self._logs / f"dataplane-{name}.log"
        return Child(f"the data plane's {name}", f"{__package__}.{name}", arguments, log, descriptors, _STEADY_HEAP)


def _make_pipe() -> tuple[int, int]:
    """Make a pipe as large as this user may."""
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return ends
