"""Share captures among tasks: which task reads which part of which file.

Files are packed into few tasks, since a task costs tens of milliseconds to start on Spark. If a file is large compared
with the others, several tasks share it: by hosts if connections are reassembled, otherwise by packets. Each of these
tasks walks all record headers of the file, a fifth of the work of reassembly, unless the file is divided
(``metrics.pcap.divided``). No border is guessed.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from metrics.pcap.files import Capture, CaptureError, head_of, is_compressed, read_bytes
from metrics.pcap.listing import HEAD_BYTES
from metrics.pcap.tables import Reading, read_tables
from metrics.storage import Place

PARTITION_BYTES = 64 << 20


@dataclass(frozen=True)
class FileShare:
    """A task's share of a file: the ``part``-th of ``parts``."""

    capture: Capture
    size_bytes: int
    part: int = 0
    parts: int = 1
    divided: Place | None = None  # the file, divided by connections; None = its headers are walked


Task = tuple[FileShare, ...]


def plan_tasks(
    captures: Sequence[Capture], reading: Reading, parallelism: int, partition_bytes: int | None = None
) -> list[Task]:
    """Return the shares of all files, packed into tasks of about equal bytes.

    Args:
        captures: one or more files.
        reading: what to read of them.
        parallelism: the most tasks that there may be.
        partition_bytes: the least that a task should have; None = ``PARTITION_BYTES``.
    """
    total = sum(each.path.stat().st_size for each in captures)
    tasks = max(1, min(parallelism, -(-total // (partition_bytes or PARTITION_BYTES))))
    shares = [share for each in captures for share in _shares(each, reading, max(1, total // tasks))]
    return [tuple(group) for group in _pack(shares, tasks)]


def read_task(task: Task, reading: Reading) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a task, as (name, piece), each in its own schema."""
    for share in task:
        yield from read_share(share, reading)


def read_share(share: FileShare, reading: Reading) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a share, likewise."""
    yield from read_tables(share.capture, replace(reading, part=share.part, parts=share.parts, divided=share.divided))


def _shares(capture: Capture, reading: Reading, fair_bytes: int) -> list[FileShare]:
    """Return the shares of a file. A compressed file has one share: each task would decompress all of it."""
    size = capture.path.stat().st_size
    parts = -(-size // fair_bytes) if size > fair_bytes * 5 // 4 and not is_compressed(capture.path) else 1
    if reading.reassembles and parts > 1:
        parts = min(parts, _count_hosts(capture.path))
    return [FileShare(capture, size // parts, part, parts) for part in range(parts)]


def _count_hosts(path: Place) -> int:
    """Return how many hosts the beginning of a file describes, which decides whether to share it by hosts."""
    try:
        return max(1, len(read_bytes(head_of(path, HEAD_BYTES)).interfaces))
    except CaptureError:
        return 1


def _pack(shares: list[FileShare], tasks: int) -> list[list[FileShare]]:
    """Pack the largest share first, each into the task with the least to do."""
    loads: list[tuple[int, int, list[FileShare]]] = [(0, number, []) for number in range(tasks)]
    for share in sorted(shares, key=lambda each: (-each.size_bytes, each.capture.path, each.part)):
        load, number, mine = heapq.heappop(loads)
        heapq.heappush(loads, (load + share.size_bytes, number, [*mine, share]))
    return [mine for _, _, mine in sorted(loads) if mine]
