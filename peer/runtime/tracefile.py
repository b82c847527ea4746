"""Writes trace events to a file, and buffers them so that the hot path stays fast."""

import os
from pathlib import Path

import msgspec

from peer.trace import VERSION, TraceEvent

FLUSH_BYTES = 1 << 16


class TraceFile:
    """Appends events as JSON lines. It buffers at most ``FLUSH_BYTES``, which ``flush`` writes.

    The first line is ``start``; ``close`` writes ``stop`` with the number of lines before it.

    Args:
        path: the file.
        node: the node.
        topics: its subscriptions at the start.
        now_ns: the present virtual instant (ns).
        resume: whether to append to the existing file, since an earlier process of the node was killed.
    """

    def __init__(self, path: Path, node: int, topics: tuple[int, ...], now_ns: int, *, resume: bool = False) -> None:
        self._node = node
        flags = os.O_APPEND if resume else os.O_CREAT | os.O_TRUNC
        self._descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
        self._encode = msgspec.json.Encoder().encode
        self._lines: list[bytes] = []
        self._held_bytes = 0
        self._records = path.read_bytes().count(b"\n") if resume else 0
        if not resume:
            self.write(TraceEvent("start", now_ns, node, topics=topics, version=VERSION))

    def write(self, event: TraceEvent) -> None:
        """Append an event that has its instant and node."""
        line = self._encode(event)
        self._lines.append(line)
        self._records += 1
        self._held_bytes += len(line)
        if self._held_bytes > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._lines:
            return
        self._lines.append(b"")
        data = memoryview(b"\n".join(self._lines))
        while data:
            data = data[os.write(self._descriptor, data) :]
        self._lines.clear()
        self._held_bytes = 0

    def close(self, now_ns: int) -> None:
        self.write(TraceEvent("stop", now_ns, self._node, records=self._records))
        self.flush()
        os.close(self._descriptor)
