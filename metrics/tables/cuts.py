"""What cuts explain: frames that were lost with connections that broke, and ends of links that nobody was told of."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.asked import FOREVER_NS, PairChanges
from metrics.checks.consistency import TOLD
from metrics.checks.rule import Limit
from metrics.pcap.walk import Bools, Ints
from metrics.tables.columns import numbers
from topologies.timeline import Change

SILENCE: Final = Limit(30.0, "s")
"""How long after a cut a connection may still break for it: ``TCP_USER_TIMEOUT`` (``peer.runtime.link``)."""


def excuse_cut(unread: pa.Table, moving_ns: Ints, read_off: Ints, trip_ns: Ints, cuts: Sequence[Change]) -> Bools:
    """Return which frames that were sent and never read a cut explains.

    A cut of one direction breaks connections, too, since acknowledgements are lost. The frames were sent, or their
    stream still worked, at most a round trip and ``TOLD`` before the cut, and they were sent at most ``SILENCE`` after
    it. A frame that lies before one that was read is not explained.

    Args:
        unread: (n,) the frames.
        moving_ns: (n,) the last instant at which the stream of each is known to have worked.
        read_off: (n,) the largest offset on its stream of a frame that was read; -1 = none was.
        trip_ns: (n,) the round trip that was asked for.
        cuts: of the run, between nodes (``metrics.asked.read_cuts``).
    """
    src, dst, sent_ns = (numbers(unread[name], -1) for name in ("src_node", "dst_node", "log_send_ns"))
    bound_ns, moving_ns = trip_ns + TOLD.ns, np.maximum(moving_ns, sent_ns)
    excused = np.zeros(len(unread), np.bool_)
    for cut in cuts if len(unread) else ():
        there, back = (
            np.isin(one, cut.sources) & np.isin(other, cut.destinations) for one, other in ((src, dst), (dst, src))
        )
        in_time = moving_ns >= cut.from_ns - bound_ns
        if cut.to_ns is not None:
            in_time &= sent_ns <= cut.to_ns + SILENCE.ns
        excused |= (there | back) & in_time
    return excused & (numbers(unread["off"]) > read_off)


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
