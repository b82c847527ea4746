"""The forwarding process's side of a capture: it writes blocks into pipes without waiting.

A pipe carries the finished blocks of a group of hosts to the writer process, which only moves them to a file. While a
pipe is full, blocks wait in memory up to a limit; beyond it they are dropped and counted by host.
"""

import os
from collections import deque
from collections.abc import Sequence
from struct import unpack_from

from harness.planes.pcapng import PacketForms, interface, section_header, statistics

GROUP_HOSTS = 32
"""Hosts that share a file: the analysis is spread over files, and all records of a host are in one file."""

BACKLOG_BYTES = 64 << 20
"""Most bytes that wait for a full pipe, per group of hosts."""


class Stream:
    """One group's pipe."""

    def __init__(self, descriptor: int, hosts: Sequence[int], snaplen_bytes: int, backlog_bytes: int) -> None:
        os.set_blocking(descriptor, False)
        self.hosts = hosts
        self.records: list[bytes] = []
        self.received = dict.fromkeys(hosts, 0)
        self.dropped = dict.fromkeys(hosts, 0)
        self._descriptor = descriptor
        self._backlog_bytes = backlog_bytes
        self.broken = False
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._wait(section_header() + b"".join(interface(str(host), snaplen_bytes) for host in hosts))

    @property
    def empty(self) -> bool:
        """Whether everything is in the pipe, or the pipe is broken."""
        return self.broken or not (self.records or self._waiting)

    def flush(self) -> None:
        if self.records:
            self._enqueue()
        while self._waiting and not self.broken:
            chunk = self._waiting[0]
            try:
                pushed = os.write(self._descriptor, chunk)
            except BlockingIOError:
                return
            except BrokenPipeError:
                self.broken = True
                return
            self._waiting_bytes -= pushed
            if pushed < len(chunk):
                self._waiting[0] = chunk[pushed:]
                return
            self._waiting.popleft()

    def finish(self, start_ns: int, end_ns: int) -> None:
        """Queue the gathered records, and the interfaces' statistics regardless of the limit."""
        self._enqueue()
        for index, host in enumerate(self.hosts):
            received, dropped = self.received[host], self.dropped[host]
            self._wait(statistics(index, start_ns, end_ns, received + dropped, dropped))

    def close(self) -> None:
        os.close(self._descriptor)

    def _enqueue(self) -> None:
        """Queue the gathered records behind those that wait, or drop them if too many bytes wait already."""
        full = self.broken or self._waiting_bytes > self._backlog_bytes
        counts = self.dropped if full else self.received
        for record in self.records:
            counts[self.hosts[unpack_from("<I", record, 8)[0]]] += 1
        if not full:
            self._wait(b"".join(self.records))
        self.records.clear()

    def _wait(self, chunk: bytes) -> None:
        if chunk:
            self._waiting.append(memoryview(chunk))
            self._waiting_bytes += len(chunk)


class CaptureRecorder:
    """A running capture of all hosts, which makes blocks of frames at ingress and at egress."""

    def __init__(
        self,
        pipes: Sequence[int],
        hosts: int,
        snaplen_bytes: int,
        epoch_offset_ns: int,
        now_ns: int,
        backlog_bytes: int = BACKLOG_BYTES,
    ) -> None:
        """Begin a capture.

        Args:
            pipes: one pipe per group of GROUP_HOSTS hosts; the recorder closes them.
            hosts: number of hosts.
            snaplen_bytes: most bytes that are kept of a frame.
            epoch_offset_ns: added to CLOCK_MONOTONIC in every timestamp.
            now_ns: start of the capture, CLOCK_MONOTONIC.
            backlog_bytes: limit of a group's backlog.
        """
        groups = [range(first, min(first + GROUP_HOSTS, hosts)) for first in range(0, hosts, GROUP_HOSTS)]
        self.streams = [
            Stream(pipe, group, snaplen_bytes, backlog_bytes) for pipe, group in zip(pipes, groups, strict=True)
        ]
        self._records = [stream.records for stream in self.streams for _ in stream.hosts]
        self._packet = PacketForms(snaplen_bytes).packet
        self._offset_ns = epoch_offset_ns
        self._start_ns = now_ns + epoch_offset_ns

    def add(self, host: int, direction: int, now_ns: int, frame: bytes) -> None:
        records = self._records[host]
        records.append(self._packet(host % GROUP_HOSTS, direction, now_ns + self._offset_ns, frame))

    def flush(self) -> None:
        """Write what the pipes take, without waiting."""
        for stream in self.streams:
            stream.flush()

    def finish(self, now_ns: int) -> None:
        """End the capture with each interface's statistics. ``flush`` until ``empty``, then ``close``."""
        end_ns = now_ns + self._offset_ns
        for stream in self.streams:
            stream.finish(self._start_ns, end_ns)

    @property
    def empty(self) -> bool:
        return all(stream.empty for stream in self.streams)

    @property
    def records_written(self) -> int:
        """Records handed to the pipes or waiting for them."""
        return sum(sum(stream.received.values()) for stream in self.streams)

    @property
    def records_dropped(self) -> int:
        """Records dropped for lack of space."""
        return sum(sum(stream.dropped.values()) for stream in self.streams)

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
