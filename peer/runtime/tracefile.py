"""Writes trace events to a file, many at a time, so that the hot path stays fast."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from peer.trace import VERSION, TraceEvent

HELD_EVENTS = 256
"""The most events that a file holds. Their lines have about 64 KiB."""


class TraceFile:
    """Appends events as JSON lines. It holds at most ``HELD_EVENTS``, which ``flush`` encodes and writes.

    The first line is ``start``; ``close`` writes ``stop`` with the number of lines before it.

    Events are encoded together, not one by one: a peer that wakes for each frame finds the encoder's code and data in
    no cache of the processor.

    Args:
        path: the file.
        node: the node.
        topics: its subscriptions at the start.
        now_ns: the present virtual instant (ns).
        resume: whether to append to the existing file, since an earlier process of the node was killed.

    Attributes:
        observe: called with the events of each flush, before they are written; None = nothing is called.
    """

    def __init__(self, path: Path, node: int, topics: tuple[int, ...], now_ns: int, *, resume: bool = False) -> None:
        self.observe: Callable[[Sequence[TraceEvent]], None] | None = None
        self._node = node
        flags = os.O_APPEND if resume else os.O_CREAT | os.O_TRUNC
        self._descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
        self._encode_lines = msgspec.json.Encoder().encode_lines
        self._held: list[TraceEvent] = []
        self._written = path.read_bytes().count(b"\n") if resume else 0
        if not resume:
            self.write(TraceEvent("start", now_ns, node, topics=topics, version=VERSION))

    def write(self, event: TraceEvent) -> None:
        """Append an event that has its instant and node."""
        self._held.append(event)
        if len(self._held) >= HELD_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Write the events that are held.

        Raises:
            OSError: the file could not be written, such as on a full disk.
        """
        held, self._held = self._held, []
        if not held:
            return
        if self.observe is not None:
            self.observe(held)
        self._written += len(held)
        data = memoryview(self._encode_lines(held))
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self, now_ns: int) -> None:
        """Write what is held and the last line, and close the file."""
        self.write(TraceEvent("stop", now_ns, self._node, records=self._written + len(self._held)))
        self.flush()
        os.close(self._descriptor)
