"""The first phase of an analysis: read every raw file once, and stage it in the buckets in which tasks need it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metrics.asked import stage_asked
from metrics.executors import Executor
from metrics.pcap.tables import Reading
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.storage.attempts import whole
from metrics.tables.interests import starters_of
from metrics.tables.logs import Logs
from metrics.tables.observed_links import observed_kinds
from metrics.tables.published import stage_schedule
from metrics.tables.shares import count_shares
from metrics.tables.traces import Staging
from metrics.tables.wire import WIRE_TABLES, Wire, captures_of, count_parts
from peer.files import TRACE_FOLDER

_BYTES_PER_ROW = 300
"""Bytes of traces and captures per sighting of a frame, from which the number of buckets follows before any reading."""

STARTERS_FILE = "starters.parquet"
"""``interests.STARTERS`` of every node."""

STEPS = 2
"""How many independent steps run at a time. Most of them wait for tasks."""


def in_parallel(**parts: Callable[[], Any]) -> dict[str, Any]:
    """Call independent parts, two at a time in the order given, and return what each of them returns.

    Raises:
        Exception: what the first part that failed raised, after all have ended.
    """
    with ThreadPoolExecutor(max_workers=STEPS) as pool:
        begun = {name: pool.submit(part) for name, part in parts.items()}
    return {name: future.result() for name, future in begun.items()}


def count_buckets(workers: int, run: RunDir) -> int:
    """Return the number of buckets of a run, from its sightings of frames, or its nodes' seconds if these are more."""
    _, first, last = run.timeline.grid
    return count_shares(workers, max(run.recorded_bytes // _BYTES_PER_ROW, len(run.nodes) * (last - first + 1)))


class StagedRun:
    """The raw files of a run, as Parquet that tasks wrote.

    Traces become the tables of ``traces.STAGED_TABLES``, captures those of ``wire.WIRE_TABLES`` in the folder ``wire``,
    the schedule ``planned``, the nodes ``nodes.parquet`` and ``STARTERS_FILE``, and the network between them ``pairs``
    (``metrics.asked``).

    Args:
        executor: runs the tasks.
        run: the run.
        folder: where it is staged.
        frames: the folder of ``frames``, which is a table of the run.

    Attributes:
        buckets: how many there are.
        states: what was counted in each trace, by node.
        incomplete: nodes whose trace is missing or cut off.
        wire: the staged captures.
    """

    def __init__(self, executor: Executor, run: RunDir, folder: Place, frames: Place) -> None:
        self._executor = executor
        self._run = run
        self._folder = folder
        self.buckets = count_buckets(executor.workers, run)
        in_parallel(raw=lambda: self._stage_raw(frames), plan=self._stage_plan)

    def _stage_raw(self, frames: Place) -> None:
        run, executor = self._run, self._executor
        traces = Logs(executor, self._folder)
        captured = bool(run.captures)
        staging = Staging(
            folder=self._folder,
            traced=captured,
            ahead_ns={node: clock.monotonic_ns for node, clock in run.clocks.items()},
            addresses={place.node: place.wan_ip for place in run.plan.placement},
            buckets=self.buckets,
            parts=count_parts(executor.workers, run.captured_bytes),
        )
        self.states = traces.read(run.path / TRACE_FOLDER, staging)
        complete = {node for node, state in self.states.items() if state.is_complete}
        self.incomplete = [node for node in run.nodes if node not in complete]
        self.wire = Wire(executor, self._folder / "wire", frames, self._folder / "mentions")
        if captured:
            manifest, kinds = run.manifest, observed_kinds(run)
            reading = Reading(
                tuple(name for name in WIRE_TABLES if kinds or name != "controls"),
                traces.complete_traced(self.incomplete, staging),
                epoch_offset_ns=manifest.epoch_offset_ns,
                origin_ns=manifest.zero_ns,
                kinds=kinds,
                parts=staging.parts,
                foreign=True,
            )
            self.wire.read(captures_of(run), reading, self.buckets)

    def _stage_plan(self) -> None:
        """Stage what was asked for: messages, nodes, and the network between nodes."""
        planned = self._folder / "planned"
        planned.mkdir()
        stage_schedule(self._run.schedule(), planned, self.buckets)
        places, path = self._run.plan.placement, self._folder / "nodes.parquet"
        columns = {"node": [place.node for place in places], "ip": [place.wan_ip for place in places]}
        with whole(self._folder / STARTERS_FILE) as attempt:
            pq.write_table(starters_of(self._run.overlay), attempt)
        with whole(path) as attempt:
            pq.write_table(pa.table(columns, pa.schema([("node", pa.int32()), ("ip", pa.string())])), attempt)
        stage_asked(self._run, self._folder / "pairs")
