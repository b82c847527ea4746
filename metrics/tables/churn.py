"""Find in the traces the frames that are lost with nodes that end, and the control frames per change of membership."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.changes import BREAK_NS
from metrics.checks.consistency import TOLD
from metrics.checks.rule import Limit
from metrics.facts.population import CHANGES, ENDINGS
from metrics.pcap.walk import Bools, Ints
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.storage.parquet import open_dataset
from metrics.tables.columns import numbers, valid
from metrics.tables.tallies import Tally
from metrics.tables.traces import EVENTS
from metrics.totals import FrameCounts
from peer.core.frames import Data
from peer.trace import CRASHED

SILENCE: Final = Limit(60.0, "s")
"""How long after a silent crash the other side may send. It learns of the crash only when its kernel breaks the
connection: ``TCP_USER_TIMEOUT`` (30 s) after its first byte without an answer, which may be sent up to ``TCP_KEEPIDLE``
(20 s) after the crash (``peer.runtime.tcp_connection``)."""


class Ending(NamedTuple):
    """The end of an instance of a node, after which it reads nothing."""

    node: int
    at_ns: int
    crashed: bool  # frames that it has sent may be lost, too
    silent: bool  # its host vanished: no packet informs the other sides


def silent_crashes(run: RunDir) -> frozenset[tuple[int, int]]:
    """Return (node, number of its earlier crashes) of each scheduled silent crash; traces do not distinguish them."""
    scheduled: Counter[int] = Counter()
    silent = set()
    for action in run.schedule():
        node, name = action["node"], action["action"]
        if name == "vanish":
            silent.add((node, scheduled[node]))
        scheduled[node] += name in ("crash", "vanish")
    return frozenset(silent)


def read_endings(events: Place, silent: frozenset[tuple[int, int]] = frozenset()) -> tuple[Ending, ...]:
    """Read when nodes left or crashed, by their traces.

    Args:
        events: ``traces.EVENTS`` as Parquet.
        silent: ``silent_crashes``.
    """
    said = open_dataset(events, EVENTS).to_table(
        columns=["node", "ts_ns", "reason"],
        filter=(pc.field("event") == "leave") & pc.field("reason").isin(ENDINGS),
    )
    found, carried_out = [], Counter[int]()
    for leave in said.sort_by("ts_ns").to_pylist():
        node, crashed = leave["node"], leave["reason"] == CRASHED
        found.append(Ending(node, leave["ts_ns"], crashed, crashed and (node, carried_out[node]) in silent))
        carried_out[node] += crashed
    return tuple(found)


def excuse_unread(unread: pa.Table, moving_ns: Ints, read_off: Ints, trip_ns: Ints, endings: Sequence[Ending]) -> Bools:
    """Return which frames that were sent and never read are explained by the end of a node.

    A frame is explained if it was under way to the node when the node ended, if the sender could not know yet that the
    node had ended, or if the frame waited at a node that crashed. The bound is a round trip and ``TOLD``, in which TCP
    repeats what was lost once. A frame that had to wait for other frames of its stream counts from the last of these
    that was read, and a frame that TCP repeated later counts from its arrival. A frame that never arrived may have been
    under way for as long as TCP goes on to repeat it (``BREAK_NS``). A node reads a stream in order, so its end does
    not explain a frame that lies before one that was read.

    Args:
        unread: the frames.
        moving_ns: for each frame, the last instant at which its stream is known to have worked.
        read_off: for each frame, the largest offset on its stream of a frame that was read; -1 = no frame was.
        trip_ns: for each frame, the round trip that was asked for.
        endings: the endings of all nodes.
    """
    src, dst, sent_ns = (numbers(unread[name], -1) for name in ("src_node", "dst_node", "log_send_ns"))
    bound_ns, moving_ns = trip_ns + TOLD.ns, np.maximum(moving_ns, sent_ns)
    came_ns, is_lost = numbers(unread["tap_rx_ns"], -1), valid(unread["tap_tx_ns"]) & ~valid(unread["tap_rx_ns"])
    excused = np.zeros(len(unread), np.bool_)
    for each in endings if len(unread) else ():
        repeated = is_lost & (sent_ns >= each.at_ns - BREAK_NS)
        since = (moving_ns >= each.at_ns - bound_ns) | repeated
        came = came_ns >= each.at_ns - bound_ns
        noticed_ns = each.at_ns + (np.maximum(bound_ns, SILENCE.ns) if each.silent else bound_ns)
        excused |= (dst == each.node) & (since | came) & (sent_ns <= noticed_ns)
        if each.crashed:
            excused |= (src == each.node) & since & (sent_ns <= each.at_ns)
    return excused & (numbers(unread["off"]) > read_off)


def build_churn_control(
    events: Place, sent: Tally[FrameCounts], span_ns: tuple[int, int], adversaries: frozenset[int]
) -> list[dict[str, Any]]:
    """Return the rows of ``churn_control``: frames other than data by kind, and the joins and leaves of the same span.

    There are no rows if no node joined or left. A crash is a leave. What adversaries do does not count.

    Args:
        events: ``traces.EVENTS`` as Parquet.
        sent: ``HopTotals.sent``.
        span_ns: begin and end of the workload.
        adversaries: nodes that do not count.
    """
    bad = pa.array(sorted(adversaries), pa.int32())
    since, until = span_ns
    inside = (pc.field("ts_ns") >= since) & (pc.field("ts_ns") < until)
    changes = pc.field("reason").isin(CHANGES) & pc.field("event").isin(["join", "leave"])
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
