"""Stage what the captures contain as Parquet, in one pass of the tasks of ``metrics.pcap.tasks``."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from metrics.executors import Executor
from metrics.pcap import tasks as sharing
from metrics.pcap.divided import divide_capture
from metrics.pcap.files import Capture
from metrics.pcap.schemas import SCHEMAS
from metrics.pcap.tables import Reading
from metrics.pcap.tasks import FileShare, Task, plan_tasks, read_task
from metrics.pcap.walk import Ints
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.tables.buckets import BucketParts, HostParts, of_connections, of_nodes, of_seconds
from metrics.tables.shares import Share, write_share
from metrics.tables.staged import STAGED, remove_attempts, temporary_folder
from metrics.tables.traces import MENTIONS, add_mentions

WIRE_TABLES = ("conns", "frames", "spans", "controls", "wire", "crossings", "captures")
_KEPT = "frames"
"""The table of the run that stays as it is staged. It is the largest of the tables that are always made."""

_MENTIONS: Final = "mentions"

PART_BYTES: Final = 128 << 20
"""Captures are divided into parts of about this many bytes, so that a task holds no more at a time."""


def captures_of(run: RunDir) -> list[Capture]:
    """Return the captures of a run. Its interfaces have the names of hosts, so files need not say their hosts."""
    return [Capture(path, path.name) for path in run.captures]


def count_parts(workers: int, capture_bytes: int) -> int:
    """Return how many parts captures are divided into; 1 = they are read as they are."""
    return max(1, min(workers, -(-capture_bytes // sharing.PARTITION_BYTES)), -(-capture_bytes // PART_BYTES))


class Wire:
    """The staged tables of a run's captures; all are empty if there is no capture.

    Args:
        executor: runs the tasks.
        staging: where they are staged.
        frames: the folder of ``frames``, which is a table of the run.
        mentions: the folder of ``traces.MENTIONS``, which must exist.
    """

    def __init__(self, executor: Executor, staging: Place, frames: Place, mentions: Place) -> None:
        self._executor = executor
        self._staging = staging
        self._targets = {name: staging / name for name in WIRE_TABLES} | {_KEPT: frames}
        for target in self._targets.values():
            target.mkdir(parents=True)
        self._targets[_MENTIONS] = mentions

    def read(self, captures: Sequence[Capture], reading: Reading, buckets: int) -> None:
        """Read all captures once and stage their tables in buckets.

        The buckets are of seconds for ``wire``, of sources for ``crossings``, and of connections for the other tables.

        Args:
            captures: the captures.
            reading: how they are read, with some of ``WIRE_TABLES``. Captures are divided if it has several parts.
            buckets: how many there are.
        """
        if reading.parts == 1:
            stage_captures(self._executor, captures, reading, self._targets, buckets)
            return
        with temporary_folder(self._staging, "divided-") as folder:
            divided = [(capture, folder / str(number), reading.parts) for number, capture in enumerate(captures)]
            self._executor.map(_divide, divided)
            tasks = [
                tuple(FileShare(capture, 0, part, parts, each) for capture, each, parts in divided)
                for part in range(reading.parts)
            ]
            _stage_tasks(self._executor, tasks, reading, self._targets, buckets)

    def complete(self) -> None:
        """Write an empty part of ``frames`` if there is none."""
        if not any(self._targets["frames"].glob("*")):
            write_share({"frames": SCHEMAS["frames"].empty_table()}, self._targets, Share())


def stage_captures(
    executor: Executor, captures: Sequence[Capture], reading: Reading, targets: Mapping[str, Place], buckets: int = 1
) -> None:
    """Read captures and write their tables as folders of parts, one part per task (and bucket) that found any row.

    Args:
        executor: runs the tasks.
        captures: the captures.
        reading: what to read of them.
        targets: the folder of each table.
        buckets: how many buckets all tables except ``captures`` have.
    """
    tasks = plan_tasks(captures, reading, executor.workers)
    _stage_tasks(executor, tasks, reading, targets, buckets)


def _stage_tasks(
    executor: Executor, tasks: Sequence[Task], reading: Reading, targets: Mapping[str, Place], buckets: int
) -> None:
    executor.map(partial(_stage, reading, targets, buckets), list(enumerate(tasks)))
    for target in targets.values():
        remove_attempts(target)


def _divide(given: tuple[Capture, Place, int]) -> None:
    divide_capture(*given)


def _stage(reading: Reading, targets: Mapping[str, Place], buckets: int, numbered: tuple[int, Task]) -> None:
    number, task = numbered
    parts = {}
    for name in reading.tables:
        count, compression = buckets if name in _BUCKETED else 1, "zstd" if name == _KEPT else STAGED["compression"]
        parts[name] = BucketParts(targets[name], number, SCHEMAS[name], count, compression=compression)
    if _MENTIONS in targets:
        parts[_MENTIONS] = BucketParts(targets[_MENTIONS], f"wire{number}", MENTIONS, buckets)
    for name, rows in read_task(task, reading):
        bucket = _BUCKETED[name](rows, reading.origin_ns, buckets) if name in _BUCKETED else np.zeros(len(rows), int)
        parts[name].add(rows, bucket)
        if name == "frames" and _MENTIONS in targets:
            add_mentions(parts[_MENTIONS], rows, bucket, buckets)
    for part in parts.values():
        part.close()


def write_packets(executor: Executor, captures: Sequence[Capture], reading: Reading, folder: Place) -> None:
    """Write the table ``packets`` of captures, in folders of hosts.

    Args:
        executor: runs the tasks.
        captures: the captures.
        reading: how they are read; its table is ``packets``.
        folder: the folder of the table.
    """
    tasks = plan_tasks(captures, reading, executor.workers)
    executor.map(partial(_write_packets, reading, folder), list(enumerate(tasks)))
    remove_attempts(folder)


def _write_packets(reading: Reading, folder: Place, numbered: tuple[int, Task]) -> None:
    number, task = numbered
    parts = HostParts(folder, number, SCHEMAS["packets"])
    for _, rows in read_task(task, reading):
        parts.add(rows)
    parts.close()


def _by_connection(rows: pa.Table, origin_ns: int, buckets: int) -> Ints:
    return of_connections(rows["conn"], buckets)


def _by_second(rows: pa.Table, origin_ns: int, buckets: int) -> Ints:
    return of_seconds(rows["at_ns"], origin_ns, buckets)


def _by_source(rows: pa.Table, origin_ns: int, buckets: int) -> Ints:
    return of_nodes(rows["src"], buckets)


_BUCKETED: Final = {
    "conns": _by_connection,
    "frames": _by_connection,
    "spans": _by_connection,
    "controls": _by_connection,
    "wire": _by_second,
    "crossings": _by_source,
}
