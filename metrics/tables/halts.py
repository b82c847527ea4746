"""Find what cuts and pauses explain: frames lost with connections that broke, and ends of links without a report."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.changes import BREAK_NS, FOREVER_NS, PairChanges
from metrics.checks.consistency import TOLD
from metrics.pcap.walk import Bools, Ints
from metrics.tables.columns import numbers, says, valid


def excuse_halted(unread: pa.Table, moving_ns: Ints, read_off: Ints, trip_ns: Ints, changes: PairChanges) -> Bools:
    """Return which frames that were sent and never read are explained by a cut, or by the pause of a peer.

    A cut of one direction breaks connections, too, since acknowledgements are lost. A frame is explained if, at most a
    round trip and ``TOLD`` before the cut or the pause, it was sent, its stream still worked, or it arrived; or if it
    never arrived and was sent at most ``BREAK_NS`` before. It must have been sent before ``BREAK_NS`` after the cut or
    the pause. A frame that lies before one that was read is not explained.

    Args:
        unread: (n,) the frames.
        moving_ns: (n,) the last instant at which the stream of each is known to have worked.
        read_off: (n,) the largest offset on its stream of a frame that was read; -1 = none was.
        trip_ns: (n,) the round trip that was asked for.
        changes: the changes of pairs of nodes.
    """
    src, dst, sent_ns = (numbers(unread[name], -1) for name in ("src_node", "dst_node", "log_send_ns"))
    came_ns, is_lost = numbers(unread["tap_rx_ns"], -1), valid(unread["tap_tx_ns"]) & ~valid(unread["tap_rx_ns"])
    worked_ns = np.maximum(np.maximum(moving_ns, sent_ns), came_ns) + trip_ns + TOLD.ns
    worked_ns = np.where(is_lost, np.maximum(worked_ns, sent_ns + BREAK_NS), worked_ns)
    halted = changes.meet(src, dst, sent_ns, worked_ns, which="breaking")
    return halted & (numbers(unread["off"]) > read_off)


def count_drops(drops: pa.Table, changes: PairChanges) -> dict[str, int]:
    """Count the frames that peers dropped, by reason.

    A node continues to send until it knows that a connection is broken. So frames without a link do not count if a cut
    or a pause was breaking the connection.

    Args:
        drops: the events, with node, peer, ts_ns and reason.
        changes: the changes of pairs of nodes.
    """
    node, peer, at_ns = (numbers(drops[name], -1) for name in ("node", "peer", "ts_ns"))
    breaking = changes.meet(node, peer, at_ns, at_ns, which="breaking") & says(drops["reason"], "no_link")
    return dict(Counter(pc.fill_null(drops["reason"].filter(pa.array(~breaking)), "unsaid").to_pylist()))


def before_halts(rows: pa.Table, changes: PairChanges) -> pa.Table:
    """Return spans of links by the traces, ended at their pair's first cut or pause, since later frames are missing.

    On the wire, a link that begins just before a cut may lack the ``Hello`` of one side: the cut dropped it.

    Args:
        rows: with node, peer, from_ns and to_ns.
        changes: the changes of pairs of nodes.
    """
    if not changes:
        return rows
    node, peer, from_ns, to_ns = (numbers(rows[name], -1) for name in ("node", "peer", "from_ns", "to_ns"))
    until_ns = np.minimum(to_ns, changes.first_halt_ns(node, peer, from_ns))
    rows = rows.set_column(rows.column_names.index("to_ns"), "to_ns", pa.array(until_ns))
    return rows.filter(pa.array(from_ns < until_ns))


def loosen(rows: pa.Table, changes: PairChanges) -> pa.Table:
    """Return spans of links by the wire, with wider bounds if a cut or a pause hides the ends of a link.

    A node may end a link during a cut, and no packet shows this, so the link is sure only up to the cut. The other end
    may not learn of it either, so the link stays possible for ever. A paused peer reports no end either, and reads
    reports to it late.

    Args:
        rows: with node, peer, from_ns, sure_from_ns, sure_to_ns and maybe_to_ns.
        changes: the changes of pairs of nodes.
    """
    if not changes:
        return rows
    node, peer = (numbers(rows[name], -1) for name in ("node", "peer"))
    halt_ns = changes.first_halt_ns(node, peer, numbers(rows["from_ns"]))
    sure = pc.min_element_wise(rows["sure_to_ns"], pa.array(halt_ns), skip_nulls=False)
    is_told = halt_ns > numbers(rows["maybe_to_ns"], FOREVER_NS)
    maybe = pc.if_else(pa.array(is_told), rows["maybe_to_ns"], pa.scalar(FOREVER_NS))
    for name, values in (("sure_to_ns", sure), ("maybe_to_ns", maybe)):
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows
