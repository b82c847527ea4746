"""What the traces say of nodes that come and go: the connections that crashes broke, and what changes cost."""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.executors import Executor
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.storage.parquet import open_dataset
from metrics.tables.columns import numbers
from metrics.tables.hops import HOPS
from metrics.tables.tallies import Tally
from metrics.tables.traces import EVENTS
from metrics.totals import FrameCounts
from peer.core.frames import Data
from peer.trace import CRASHED, JOINED, LEFT

_SECOND_NS = 1_000_000_000

_BEFORE_NS = _SECOND_NS
_AFTER_NS = 60 * _SECOND_NS
"""A frame that was never read is put down to a crash of its sender or receiver in this span around its sending."""

_BEFORE_SILENT_NS = 60 * _SECOND_NS
"""The same as ``_BEFORE_NS`` for a silent crash. Nothing tells the other side of it before its kernel breaks the
connection: ``TCP_USER_TIMEOUT`` (30 s) after its first byte without an answer, which may be sent up to ``TCP_KEEPIDLE``
(20 s) after the crash (``peer.runtime.link``). Until then it may send on a connection that the node that crashed had
not yet seen as a link."""


def silent_crashes(run: RunDir) -> frozenset[tuple[int, int]]:
    """Return (node, number of its crashes before) of each scheduled silent crash; traces do not tell them apart."""
    scheduled: Counter[int] = Counter()
    silent = set()
    for action in run.schedule():
        node, name = action["node"], action["action"]
        if name == "vanish":
            silent.add((node, scheduled[node]))
        scheduled[node] += name in ("crash", "vanish")
    return frozenset(silent)


def broken_connections(
    executor: Executor, events: Place, hops: Place, silent: frozenset[tuple[int, int]] = frozenset()
) -> pa.Array:
    """Connections (``conn``) that a crash broke: frames may be lost on them that were sent, or that wait to be.

    Those that a crashed node had as links, and those with an unread frame about the time of a crash of either end.

    Args:
        executor: looks through the parts of ``hops``.
        events: ``traces.EVENTS`` as Parquet.
        hops: the ``hops`` table.
        silent: ``silent_crashes``.
    """
    said = open_dataset(events, EVENTS).to_table(
        columns=["event", "node", "ts_ns", "conn"], filter=pc.field("reason") == CRASHED
    )
    crashes = said.filter(pc.equal(said["event"], "leave"))
    links = said.filter(pc.equal(said["event"], "remove_peer"))["conn"]
    spans: list[tuple[int, int, int]] = []
    carried_out: Counter[int] = Counter()
    for crash in crashes.sort_by("ts_ns").to_pylist():
        node, at_ns = crash["node"], crash["ts_ns"]
        before_ns = _BEFORE_SILENT_NS if (node, carried_out[node]) in silent else _BEFORE_NS
        carried_out[node] += 1
        spans.append((node, at_ns - _AFTER_NS, at_ns + before_ns))
    lost = executor.map(partial(_find_unread, spans), sorted(hops.glob("*.parquet")))
    return pa.chunked_array([*links.chunks, *lost], pa.string()).drop_null().unique()


def _find_unread(spans: list[tuple[int, int, int]], part: Place) -> pa.Array:
    """Connections of a part of ``hops`` with an unread frame from or to a node that was sent in a span of it."""
    unread = open_dataset(part, HOPS).to_table(
        columns=["conn", "src_node", "dst_node", "log_send_ns"],
        filter=pc.field("log_send_ns").is_valid() & pc.field("log_recv_ns").is_null(),
    )
    src, dst, sent_ns = (numbers(unread[name], -1) for name in ("src_node", "dst_node", "log_send_ns"))
    lost = np.zeros(len(unread), np.bool_)
    for node, first_ns, last_ns in spans:
        lost |= (first_ns <= sent_ns) & (sent_ns <= last_ns) & ((src == node) | (dst == node))
    return unread["conn"].filter(pa.array(lost)).unique()


def build_churn_control(
    events: Place, sent: Tally[FrameCounts], span_ns: tuple[int, int], adversaries: frozenset[int]
) -> list[dict[str, Any]]:
    """The ``churn_control`` table: frames other than data by kind, against the joins and leaves of the same span.

    No rows where no node joined or left. A crash is a leave. What adversaries do counts neither here nor there.

    Args:
        events: ``traces.EVENTS`` as Parquet.
        sent: ``HopTotals.sent``.
        span_ns: begin and end of the workload.
        adversaries: nodes that do not count.
    """
    bad = pa.array(sorted(adversaries), pa.int32())
    since, until = span_ns
    inside = (pc.field("ts_ns") >= since) & (pc.field("ts_ns") < until)
    changes = pc.field("reason").isin([JOINED, LEFT, CRASHED]) & pc.field("event").isin(["join", "leave"])
    changes &= ~pc.field("node").isin(bad)
    said = Counter(
        open_dataset(events, EVENTS).to_table(columns=["event"], filter=changes & inside)["event"].to_pylist()
    )
    joins, leaves = said["join"], said["leave"]
    if not joins + leaves:
        return []
    return [
        {
            "kind": kind,
            "frames": counts.frames,
            "frame_bytes": counts.len_bytes,
            "joins": joins,
            "leaves": leaves,
            "frames_per_change": counts.frames / (joins + leaves),
        }
        for kind, counts in sent.items()
        if kind not in (-1, Data.kind)
    ]
