"""Captures shared among tasks: which task reads which part of which file.

Files are packed into few tasks, since a task costs tens of milliseconds to start on Spark. A file that is large beside
the others is shared by several tasks: by hosts where connections are reassembled, by packets otherwise. Each of them
walks all its record headers, a fifth of the work of reassembly, unless it is divided (``metrics.pcap.divided``). No
border is guessed.
"""

import glob
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from metrics.pcap.files import read_bytes
from metrics.pcap.tables import Reading, read_tables
from metrics.storage import Place, StorePath, place

SUFFIXES: Final = (".pcap", ".pcapng", ".cap")
PARTITION_BYTES = 64 << 20
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True)
class FileShare:
    """A task's share of a file: the ``part``-th of ``parts``."""

    path: Place
    size_bytes: int
    part: int = 0
    parts: int = 1
    divided: Place | None = None  # the file, divided by connections; None = its headers are walked


Task = tuple[FileShare, ...]


def plan_tasks(path: Place | str, reading: Reading, parallelism: int, partition_bytes: int | None = None) -> list[Task]:
    """The shares of all files, packed into tasks of about equal bytes.

    Args:
        path: see ``find_captures``.
        reading: what is read of them.
        parallelism: the most tasks that there may be.
        partition_bytes: a task has at least about as many; None = ``PARTITION_BYTES``.

    Raises:
        FileNotFoundError: there is no capture.
    """
    files = find_captures(path)
    total = sum(each.stat().st_size for each in files)
    tasks = max(1, min(parallelism, -(-total // (partition_bytes or PARTITION_BYTES))))
    shares = [share for each in files for share in _shares(each, reading, max(1, total // tasks))]
    return [tuple(group) for group in _pack(shares, tasks)]


def read_task(task: Task, reading: Reading) -> Iterator[tuple[str, pa.Table]]:
    """The tables of a task, as (name, piece), each in its own schema."""
    for share in task:
        own = replace(reading, part=share.part, parts=share.parts, divided=share.divided)
        yield from read_tables(share.path, own)


def _shares(path: Place, reading: Reading, fair_bytes: int) -> list[FileShare]:
    size = path.stat().st_size
    parts = -(-size // fair_bytes) if size > fair_bytes * 5 // 4 else 1
    if reading.reassembles:
        parts = min(parts, _count_hosts(path))
    return [FileShare(path, size // parts, part, parts) for part in range(parts)]


def find_captures(path: Place | str) -> list[Place]:
    """The capture files that a path or URI means: a file, a folder's captures, or a glob pattern's matches.

    In a store only the last part of a pattern may have wildcards.

    Raises:
        FileNotFoundError: there is none.
    """
    where = place(path if "://" in path else path.removeprefix("file:")) if isinstance(path, str) else path
    found: list[Place]
    if where.is_dir():
        found = sorted(each for each in where.iterdir() if each.suffix in SUFFIXES)
    elif isinstance(where, StorePath):
        found = [where] if where.is_file() else list(where.parent.glob(where.name))
    else:
        found = [Path(each) for each in sorted(glob.glob(str(where)))]  # noqa: PTH207 - patterns may be absolute
    if not found:
        raise FileNotFoundError(
            f"option path: no capture at {str(path)!r} (a file, a folder of {'|'.join(SUFFIXES)}, a glob)"
        )
    return found


def _count_hosts(path: Place) -> int:
    """How many hosts the beginning of a file describes: whether sharing it by hosts helps."""
    with path.open("rb") as file:
        head = np.frombuffer(file.read(_HEAD_BYTES), np.uint8)
    return max(1, len(read_bytes(head).interfaces))


def _pack(shares: list[FileShare], tasks: int) -> list[list[FileShare]]:
    """The largest share first, each to the task with the least to do."""
    loads: list[tuple[int, int, list[FileShare]]] = [(0, number, []) for number in range(tasks)]
    for share in sorted(shares, key=lambda each: (-each.size_bytes, each.path, each.part)):
        load, number, mine = heapq.heappop(loads)
        heapq.heappush(loads, (load + share.size_bytes, number, [*mine, share]))
    return [mine for _, _, mine in sorted(loads) if mine]
