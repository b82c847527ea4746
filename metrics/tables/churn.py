"""What the traces say of nodes that come and go: their instances, and the connections that crashes broke."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from metrics.rundir import RunDir
from metrics.tables.columns import numbers
from metrics.tables.hops import HOPS
from metrics.tables.traces import EVENTS
from peer.core.frames import Data
from peer.files import SCHEDULE_FILE
from peer.trace import CRASHED, JOINED, LEFT

_FOREVER = 2**63 - 1
_SECOND_NS = 1_000_000_000

_BEFORE_NS = _SECOND_NS
_AFTER_NS = 60 * _SECOND_NS
"""A frame that was never read is put down to a crash of its sender or receiver in this span around its sending."""

_BEFORE_SILENT_NS = 60 * _SECOND_NS
"""The same as ``_BEFORE_NS`` for a silent crash. Nothing tells the other side of it before its kernel breaks the
connection: ``TCP_USER_TIMEOUT`` (30 s) after its first byte without an answer, which may be sent up to ``TCP_KEEPIDLE``
(20 s) after the crash (``peer.runtime.link``). Until then it may send on a connection that the node that crashed had
not yet seen as a link."""


def instances(overlay: DataFrame, events: DataFrame) -> DataFrame:
    """Intervals in which a node is up: node, from_ns, to_ns (half open); 0 and 2^63-1 stand for the run's ends.

    Not made with ``peer.core.schedule.Population``, for the reason that ``deliveries.subscriptions`` gives.
    """
    starters = overlay.select(F.explode("nodes").alias("spec")).where(F.coalesce("spec.up", F.lit(True)))
    initial = starters.select(
        F.col("spec.node").cast("int").alias("node"),
        F.lit(0).cast("bigint").alias("ts_ns"),
        F.lit(True).alias("begins"),
    )
    begins = (F.col("event") == "join") & (F.col("reason") == JOINED)
    ends = (F.col("event") == "leave") & F.col("reason").isin(LEFT, CRASHED)
    changes = events.where(begins | ends).select("node", "ts_ns", (F.col("event") == "join").alias("begins"))
    following = F.lead("ts_ns", 1, _FOREVER).over(Window.partitionBy("node").orderBy("ts_ns"))
    spans = initial.unionByName(changes).withColumn("to_ns", following)
    return spans.where("begins").select("node", F.col("ts_ns").alias("from_ns"), "to_ns")


def silent_crashes(run: RunDir) -> frozenset[tuple[int, int]]:
    """Return (node, number of its crashes before) of each scheduled silent crash; traces do not tell them apart."""
    scheduled: Counter[int] = Counter()
    silent = set()
    for action in run.lines(SCHEDULE_FILE):
        node, name = action["node"], action["action"]
        if name == "vanish":
            silent.add((node, scheduled[node]))
        scheduled[node] += name in ("crash", "vanish")
    return frozenset(silent)


def broken_connections(events: Path, hops: Path, silent: frozenset[tuple[int, int]] = frozenset()) -> pa.Array:
    """Connections (``conn``) that a crash broke: frames may be lost on them that were sent, or that wait to be.

    Those that a crashed node had as links, and those with an unread frame about the time of a crash of either end.

    Args:
        events: ``traces.EVENTS`` as Parquet.
        hops: the ``hops`` table.
        silent: ``silent_crashes``.
    """
    said = ds.dataset(events, schema=EVENTS).to_table(
        columns=["event", "node", "ts_ns", "conn"], filter=pc.field("reason") == CRASHED
    )
    crashes = said.filter(pc.equal(said["event"], "leave"))
    links = said.filter(pc.equal(said["event"], "remove_peer"))["conn"]
    unread = ds.dataset(hops, schema=HOPS).to_table(
        columns=["conn", "src_node", "dst_node", "log_send_ns"],
        filter=pc.field("log_send_ns").is_valid() & pc.field("log_recv_ns").is_null(),
    )
    src, dst, sent_ns = (numbers(unread[name], -1) for name in ("src_node", "dst_node", "log_send_ns"))
    lost = np.zeros(len(unread), np.bool_)
    carried_out: Counter[int] = Counter()
    for crash in crashes.sort_by("ts_ns").to_pylist():
        node, at_ns = crash["node"], crash["ts_ns"]
        before_ns = _BEFORE_SILENT_NS if (node, carried_out[node]) in silent else _BEFORE_NS
        carried_out[node] += 1
        about_then = (at_ns - _AFTER_NS <= sent_ns) & (sent_ns <= at_ns + before_ns)
        lost |= about_then & ((src == node) | (dst == node))
    broken = [*links.chunks, *unread["conn"].filter(pa.array(lost)).chunks]
    return pa.chunked_array(broken, pa.string()).drop_null().unique()


def build_churn_control(
    events: Path, hops: Path, span_ns: tuple[int, int], adversaries: frozenset[int]
) -> list[dict[str, Any]]:
    """The ``churn_control`` table: frames other than data by kind, against the joins and leaves of the same span.

    No rows where no node joined or left. A crash is a leave. What adversaries do counts neither here nor there.

    Args:
        events: ``traces.EVENTS`` as Parquet.
        hops: the ``hops`` table.
        span_ns: begin and end of the workload.
        adversaries: nodes that do not count.
    """
    bad = pa.array(sorted(adversaries), pa.int32())
    since, until = span_ns
    inside = (pc.field("ts_ns") >= since) & (pc.field("ts_ns") < until)
    changes = pc.field("reason").isin([JOINED, LEFT, CRASHED]) & pc.field("event").isin(["join", "leave"])
    changes &= ~pc.field("node").isin(bad)
    said = Counter(
        ds.dataset(events, schema=EVENTS).to_table(columns=["event"], filter=changes & inside)["event"].to_pylist()
    )
    joins, leaves = said["join"], said["leave"]
    if not joins + leaves:
        return []
    sent = (pc.field("log_send_ns") >= since) & (pc.field("log_send_ns") < until) & (pc.field("kind") != Data.kind)
    sent &= ~pc.field("src_node").isin(bad)
    frames = ds.dataset(hops, schema=HOPS).to_table(columns=["kind", "len_bytes"], filter=sent)
    kinds = frames.group_by("kind").aggregate([([], "count_all"), ("len_bytes", "sum")])
    return [
        {
            "kind": row["kind"],
            "frames": row["count_all"],
            "frame_bytes": row["len_bytes_sum"],
            "joins": joins,
            "leaves": leaves,
            "frames_per_change": row["count_all"] / (joins + leaves),
        }
        for row in kinds.sort_by("kind").to_pylist()
    ]
