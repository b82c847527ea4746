"""What a cut excuses: frames that are lost with their connections, and the ends of links that nobody was told of."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.asked import FOREVER_NS, PairChanges
from metrics.pcap.walk import Bools
from metrics.tables.columns import numbers, valid

_UNDER_WAY_NS = 1_000_000_000
"""A frame that was sent so long before a cut may have been under way, or in TCP's buffer, when it began."""


def excuse_cut(rows: pa.Table, changes: PairChanges) -> Bools:
    """Return which hops were sent and never read because a cut may have ended their connections, (n,).

    A frame was sent shortly before a cut of its pair, in it, or while TCP may still have waited after it.
    """
    if not changes:
        return np.zeros(len(rows), np.bool_)
    unread = valid(rows["log_send_ns"]) & ~valid(rows["log_recv_ns"])
    source, destination = (numbers(rows[name], -1) for name in ("src_node", "dst_node"))
    sent_ns = numbers(rows["log_send_ns"])
    met: Bools = unread & changes.meet(source, destination, sent_ns, sent_ns + _UNDER_WAY_NS, which="settling")
    return met


def before_cuts(rows: pa.Table, changes: PairChanges) -> pa.Table:
    """Return spans of links by the traces up to their pair's first cut: frames that it stops show no later one.

    Args:
        rows: with node, peer, from_ns and to_ns.
        changes: of pairs of nodes.
    """
    if not changes:
        return rows
    node, peer, from_ns, to_ns = (numbers(rows[name], -1) for name in ("node", "peer", "from_ns", "to_ns"))
    until_ns = np.minimum(to_ns, changes.first_cut_ns(node, peer, from_ns))
    rows = rows.set_column(rows.column_names.index("to_ns"), "to_ns", pa.array(until_ns))
    return rows.filter(pa.array(from_ns < until_ns))


def loosen(rows: pa.Table, changes: PairChanges) -> pa.Table:
    """Return spans of links by the wire, loosened where a cut keeps its ends from being told.

    A node may give a link up in a cut, and no packet tells: it is sure up to the cut only. The other end may not hear
    of it either, so it is possible for ever.

    Args:
        rows: with node, peer, from_ns, sure_from_ns, sure_to_ns and maybe_to_ns.
        changes: of pairs of nodes.
    """
    if not changes:
        return rows
    node, peer = (numbers(rows[name], -1) for name in ("node", "peer"))
    cut_ns = changes.first_cut_ns(node, peer, numbers(rows["from_ns"]))
    sure = pc.min_element_wise(rows["sure_to_ns"], pa.array(cut_ns), skip_nulls=False)
    is_told = cut_ns > numbers(rows["maybe_to_ns"], FOREVER_NS)
    maybe = pc.if_else(pa.array(is_told), rows["maybe_to_ns"], pa.scalar(FOREVER_NS))
    for name, values in (("sure_to_ns", sure), ("maybe_to_ns", maybe)):
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows
