"""Stage the peers' traces: events, the frames they sent and read, and the input of header-only captures."""

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.executors import Executor
from metrics.storage import Place
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import holds, says
from metrics.tables.shares import Share, all_shares
from metrics.tables.timespans import common_keys
from metrics.tables.traces import (
    FRAMES,
    STAGED_TABLES,
    Staging,
    TracedParts,
    TraceState,
    locate,
    merge_states,
    stage_files,
)

SHARE_BYTES: Final = 16 << 20


class Logs:
    """The staged traces of a run: ``events`` has every line that is not about a frame, ``frames`` the other lines."""

    def __init__(self, executor: Executor, staging: Place) -> None:
        self._executor = executor
        self._staging = staging

    def read(self, trace_dir: Place, staging: Staging) -> dict[int | None, TraceState]:
        """Parse every trace once, and stage its events; see ``traces.stage_files`` for the states by node.

        Args:
            trace_dir: where the traces are.
            staging: how they are staged.
        """
        for name in STAGED_TABLES:
            (self._staging / name).mkdir()
        files: list[Place] = sorted(trace_dir.glob("*.jsonl"), key=lambda path: (-path.stat().st_size, path.name))
        total = sum(path.stat().st_size for path in files)
        shares = max(1, min(self._executor.workers, -(-total // SHARE_BYTES)))
        parts = [(number, files[number::shares]) for number in range(shares)]
        staged = self._executor.map(lambda part: stage_files(part[1], staging, part[0]), parts)
        return merge_states(state for states in staged for state in states)

    def complete_traced(self, incomplete: list[int], staging: Staging) -> Place:
        """Return the folder of the input of header-only captures: every frame once, also frames of lost traces.

        Args:
            incomplete: nodes whose trace is cut off or missing.
            staging: how traces were staged.
        """
        if incomplete:
            self._executor.map(partial(_add_orphans, staging, incomplete), all_shares(staging.buckets))
        return self._staging / "traced"


def _add_orphans(staging: Staging, incomplete: list[int], share: Share) -> None:
    """Add the ``orphans`` of a share of the connections to ``traced``."""
    theirs = ((pc.field("event") == "send") & pc.field("node").isin(incomplete)) | (
        (pc.field("event") == "receive") & pc.field("peer").isin(incomplete)
    )
    frames = locate(read_bucket(staging.folder / "frames", FRAMES, share, where=theirs))
    parts = TracedParts(staging, f"orphans{share.number}")
    parts.add(orphans(frames, incomplete))
    parts.close()


def orphans(frames: pa.Table, incomplete: list[int]) -> pa.Table:
    """Return frames that the ``incomplete`` nodes sent, which only their receivers report.

    Args:
        frames: the ``send`` and ``receive`` events that say where in a stream their frame lies (``traces.locate``);
            those that these nodes neither sent nor received may be left out.
        incomplete: nodes whose trace is cut off or missing.
    """
    sent = says(frames["event"], "send")
    received = says(frames["event"], "receive") & holds(pc.is_in(frames["peer"], pa.array(incomplete, pa.int32())))
    sends, rows = frames.filter(pa.array(sent)), frames.filter(pa.array(received))
    key = ("conn", "direction", "off")
    told, asked = common_keys(*([some[name] for name in key] for some in (sends, rows)))
    return rows.filter(pa.array(~np.isin(asked, told)))
