"""The forwarding process: ``python -m harness.planes.userspace.process CONTROL_FD MEMORY_FD``.

It has one loop and one thread. It sleeps until a frame is due or a device is readable, with a precision of
microseconds: ``select`` on the epoll descriptor has a finer timeout than epoll's milliseconds. It has real-time
priority if allowed, never collects garbage, and uses no file and no lock. Other work (publishing the counters, writing
captured records into their pipes) is done every tick, and commands are executed between two bursts.

All its instants are virtual (``peer.runtime.clock``), so delays, rates and queues of a dilated run need no conversion.
"""

import gc
import mmap
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from harness.errors import TestbedError
from harness.machine.child import unwrap
from harness.machine.scheduling import PLANE_PRIORITY
from harness.planes.plane import FinalCounters
from harness.planes.userspace import commands, gauges, lateness, tun
from harness.planes.userspace.capture import CaptureRecorder
from harness.planes.userspace.commands import CaptureTally, Reply
from harness.planes.userspace.defects import emulate, make_forwarder
from harness.planes.userspace.forwarder import Forwarder
from harness.planes.userspace.intake import LOOK_NS, Burst
from harness.planes.userspace.links import AccessLink
from harness.planes.userspace.upcoming import Upcoming
from peer.runtime.clock import UNDILATED, Clock
from topologies.network import Link
from topologies.timeline import decode_changes

TICK_NS = 5_000_000
STALL_NS = 1_000_000
"""A tick that is later than this is a gap and counts as a late frame, so that a stall of the loop is seen even if no
frame was due."""

READY_DEVICES = 8
"""Most devices served between two bursts of writing."""


class Plane:
    """The loop and its commands.

    Attributes:
        clock: what its instants go by.
        forwarder: what the loop drives, from the first command on.
    """

    def __init__(self, control: socket.socket, memory: mmap.mmap, realtime: bool) -> None:
        self._control = control
        self._memory = memory
        self._realtime = realtime
        self._poll = select.epoll()
        self._poll.register(control, select.EPOLLIN)
        self._links: dict[int, AccessLink] = {}
        self._devices: list[str] = []
        self.forwarder: Forwarder
        self._recorder: CaptureRecorder | None = None
        self._tally: CaptureTally | None = None
        self.clock = UNDILATED
        self._idle_ns = 0
        self._gaps: list[Burst] = []
        self._bursts = dict.fromkeys(gauges.KINDS, 0)
        self._closed = False
        self._upcoming = Upcoming((), 0, 0)

    def serve(self) -> None:
        """Execute the first command, which attaches the hosts, then forward until the end."""
        self._command()
        if self.forwarder:
            self._forward(self.forwarder)

    def _forward(self, forwarder: Forwarder) -> None:
        """Run the loop. It sleeps only after it has emptied the devices that it found ready, as ``intake`` needs."""
        poll, links, clock, intake = self._poll.poll, self._links, self.clock.now_ns, forwarder.intake
        now_ns = clock()
        next_tick_ns = now_ns + TICK_NS
        while True:
            intake.looked_ns = looked_ns = now_ns
            ready = poll(0, READY_DEVICES)
            all_seen = all_drained = len(ready) < READY_DEVICES
            for descriptor, _ in ready:
                link = links.get(descriptor)
                if link is None:
                    self._command()
                    if self._closed:
                        return  # so that the last counters stay the last
                    continue
                try:
                    all_drained &= forwarder.take_in(link)
                except OSError:
                    self._poll.unregister(descriptor)  # its device and namespace are gone
            if all_seen:
                intake.empty_ns = looked_ns
            forwarder.let_out()
            now_ns = clock()
            if now_ns >= next_tick_ns:
                self._tick(now_ns, now_ns - next_tick_ns)
                next_tick_ns = now_ns + TICK_NS
            if now_ns >= self._upcoming.next_ns:
                now_ns = self._change()
            if all_drained:
                now_ns = self.sleep(min(forwarder.next_due_ns or next_tick_ns, next_tick_ns, self._upcoming.next_ns))

    def sleep(self, until_ns: int) -> int:
        """Wait for an instant or a readable descriptor, and return the instant afterwards."""
        clock = self.clock
        slept_ns = clock.now_ns()
        if until_ns <= slept_ns:
            return slept_ns
        until_ns = min(until_ns, slept_ns + LOOK_NS)
        came, _, _ = select.select((self._poll,), (), (), (until_ns - slept_ns) * clock.dilation / 1e9)
        now_ns = clock.now_ns()
        self._idle_ns += now_ns - slept_ns
        self.forwarder.intake.wake(slept_ns, until_ns, now_ns, by_frame=bool(came))
        return now_ns

    def _tick(self, now_ns: int, lateness_ns: int) -> None:
        """Do the work of every few milliseconds."""
        if lateness_ns > STALL_NS:
            self.forwarder.note_lateness(lateness_ns)
            self._gaps.append((now_ns - lateness_ns, now_ns, 1))
        recorder = self._recorder
        if recorder:
            recorder.flush()
            if self._tally and recorder.empty:
                recorder.close()
                self._control.send(commands.encode(Reply(tally=self._tally)))
                self._tally = None
        self._publish(now_ns)

    def _change(self) -> int:
        """Apply what is due of the scheduled changes, and return the instant afterwards.

        Frames that were due at a link before the instant that is noted have met the link as it was.
        """
        upcoming, forwarder, from_ns = self._upcoming, self.forwarder, self.clock.now_ns()
        forwarder.reach_links(from_ns - 1)
        for change in upcoming.losses():
            forwarder.drop_in_flight(change)
        forwarder.network.change(upcoming.changes())
        upcoming.note(from_ns)
        return self.clock.now_ns()

    def _publish(self, now_ns: int) -> None:
        forwarder = self.forwarder
        for kind, bursts in zip(gauges.KINDS, (self._gaps, forwarder.late, forwarder.intake.bursts), strict=True):
            for burst in bursts:
                gauges.publish_burst(self._memory, kind, self._bursts[kind], burst)
                self._bursts[kind] += 1
            bursts.clear()
        gauges.publish(self._memory, self._snapshot(now_ns))

    def _snapshot(self, now_ns: int) -> gauges.GaugeSnapshot:
        forwarder, recorder = self.forwarder, self._recorder
        return gauges.GaugeSnapshot(
            at_ns=now_ns,
            idle_ns=self._idle_ns,
            counters=forwarder.counters(),
            records_written=recorder.records_written if recorder else 0,
            records_dropped=recorder.records_dropped if recorder else 0,
            lateness_max_ns=forwarder.lateness_max_ns,
            frames_late=forwarder.frames_late,
            waited_max_ns=forwarder.intake.waited_max_ns,
            frames_waited=forwarder.intake.frames_waited,
            bursts=self._bursts,
            histogram=tuple(forwarder.histogram),
            intake_histogram=tuple(forwarder.intake.histogram),
        )

    # ------------------------------------------------------------------------------------------------ commands

    def _command(self) -> None:
        """Execute the next command, or end if the handle is gone."""
        message, descriptors, _, _ = socket.recv_fds(self._control, commands.MESSAGE_BYTES, commands.MAX_DESCRIPTORS)
        if not message:
            self._closed = True
            return
        command = commands.decode_command(message)
        try:
            reply = self._handlers[type(command)](self, command, descriptors)
        except TestbedError as error:
            reply = Reply(error=str(error))
        if reply is not None:
            self._control.send(commands.encode(reply))

    def _attach(self, command: commands.Attach, descriptors: list[int]) -> Reply:
        network = emulate(commands.unwrap_network(descriptors[0]), command.seed, command.defect)
        for port in command.ports:
            device = tun.open_device(port)
            link = AccessLink(port.host, device)
            network.add(link, port.address)
            self._links[device] = link
            self._poll.register(device, select.EPOLLIN)
        self._devices = [port.device for port in command.ports]
        largest = max(port.mtu for port in command.ports)
        self.clock = Clock(command.time_dilation)
        self.forwarder = make_forwarder(network, self.clock.now_ns, largest, command.late_ns, command.defect)
        gc.collect()
        gc.freeze()
        gc.disable()
        return Reply()

    def _set_pair(self, command: commands.SetPair, _: list[int]) -> Reply:
        change = command.change
        link = Link(change.delay_ms, change.jitter_ms, change.loss_ratio)
        self.forwarder.network.set_pair(change.source, change.destination, link)
        return Reply()

    def _set_pairs(self, _: commands.SetPairs, descriptors: list[int]) -> Reply:
        self.forwarder.network.set_pairs(commands.unwrap_network(descriptors[0]))
        return Reply()

    def _set_access(self, command: commands.SetAccess, _: list[int]) -> Reply:
        change = command.change
        self.forwarder.network.set_access(change.host, change.up, change.down)
        return Reply()

    def _schedule(self, command: commands.Schedule, descriptors: list[int]) -> Reply:
        self.forwarder.network.set_zero(command.zero_ns)
        changes = decode_changes(unwrap(descriptors[0]))
        self._upcoming = Upcoming(changes, len(self._links), command.zero_ns)
        return Reply()

    def _start_capture(self, command: commands.StartCapture, descriptors: list[int]) -> Reply:
        self._recorder = CaptureRecorder(
            descriptors, len(self._links), command.snaplen_bytes, command.epoch_offset_ns, self.clock.now_ns()
        )
        self.forwarder.recorder = self._recorder
        self._before_capture = self.forwarder.counters()
        return Reply()

    def _stop_capture(self, _: commands.StopCapture, __: list[int]) -> None:
        """Stop recording; the answer is sent when all records are in the pipes."""
        recorder, now, before = self._recorder, self.forwarder.counters(), self._before_capture
        assert recorder
        self.forwarder.recorder = None
        recorder.finish(self.clock.now_ns())
        self._tally = CaptureTally(
            recorder.records_written,
            recorder.records_dropped,
            now.frames_in - before.frames_in - (now.drops["cut"] - before.drops["cut"]),
            now.frames_out - before.frames_out,
        )

    def _count(self, _: commands.Count, __: list[int]) -> Reply:
        return Reply(counters=self.forwarder.counters())

    def _close(self, _: commands.Close, __: list[int]) -> Reply:
        self._closed = True
        forwarder = self.forwarder
        self._publish(self.clock.now_ns())
        devices = zip(self._links, self._devices, strict=True)
        summary = {**lateness.summarise(forwarder.histogram), "max": forwarder.lateness_max_ns}
        overruns = sum(tun.read_overruns(descriptor, device) for descriptor, device in devices)
        applied_ns = tuple(self._upcoming.applied_ns)
        counted = (forwarder.counters(), summary, overruns, self._realtime, applied_ns)
        return Reply(final=FinalCounters(*counted, forwarder.network.bottleneck_counters()))

    _handlers: ClassVar[dict[type, Callable[[Any, Any, list[int]], Reply | None]]] = {
        commands.Attach: _attach,
        commands.SetPair: _set_pair,
        commands.SetPairs: _set_pairs,
        commands.SetAccess: _set_access,
        commands.Schedule: _schedule,
        commands.StartCapture: _start_capture,
        commands.StopCapture: _stop_capture,
        commands.Count: _count,
        commands.Close: _close,
    }


def gain_priority() -> bool:
    """Ask for real-time priority, and return whether it was granted."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PLANE_PRIORITY))
    except PermissionError:
        return False
    return True


def main() -> None:
    """Serve the control socket and publish to the memory given as descriptors."""
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    control = socket.socket(fileno=int(sys.argv[1]))
    memory = mmap.mmap(int(sys.argv[2]), gauges.SIZE_BYTES)
    Plane(control, memory, gain_priority()).serve()


if __name__ == "__main__":
    main()
