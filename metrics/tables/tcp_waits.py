"""How long TCP itself held a publisher's copies back: that is the network's doing, not the host's.

TCP sends nothing new while it repairs a loss or while its window is full; the acknowledgement of what is under way lets
it go on. So a frame that left just after such an acknowledgement waited for it.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.asked import find_asked
from metrics.pcap.walk import Bools, Ints
from metrics.storage import Place
from metrics.tables.columns import group_rows, numbers, valid
from peer.core.frames import Data

LEAST_NS: Final = 1_000_000
"""A frame that left its host so soon was not held back."""

WINDOW_FRAMES: Final = 10
"""TCP's first window is ten packets (RFC 6928), and so is that after a pause. With fewer frames under way, none of them
lost, it does not wait."""

_STREAM: Final = ("conn", "direction", "incarnation")


def tcp_waits(rows: pa.Table, pairs: Place) -> pa.Array:
    """How long TCP held each hop's frame back before it left, in ns; 0 where nothing shows that it did.

    Of a publisher's copies only: nothing else is asked for. The frames under way when the frame was written are those
    that had left before and whose acknowledgement came later: their arrival and the delay asked for, back. TCP waited
    if one of them, or one before them on the stream, was retransmitted, or if they fill its first window. It waited for
    the last acknowledgement that came before the frame left.

    Args:
        rows: ``hops`` of whole streams.
        pairs: what was asked of every directed pair, for ``find_asked``.
    """
    waited = np.zeros(len(rows), np.int64)
    late = _left_late(rows)
    if late.any():
        stream, streams = group_rows(rows, *_STREAM)
        back_ms = find_asked(pairs, "delay_ms", rows["dst_node"], rows["src_node"])
        acked_ns = numbers(rows["tap_rx_ns"]) + (pc.fill_null(back_ms, 0.0).to_numpy() * 1e6).astype(np.int64)
        acked_ns[~valid(rows["tap_rx_ns"])] = np.iinfo(np.int64).max
        order = np.argsort(stream, kind="stable")
        bounds = np.searchsorted(stream[order], np.arange(len(streams) + 1))
        columns = [numbers(rows[name]) for name in ("off", "log_send_ns", "tap_tx_ns", "n_retx")]
        left = valid(rows["tap_tx_ns"])
        for row in np.flatnonzero(late).tolist():
            others = order[bounds[stream[row]] : bounds[stream[row] + 1]]
            others = others[left[others]]
            waited[row] = _wait(row, others, acked_ns, *columns)
    return pa.array(waited)


def _left_late(rows: pa.Table) -> Bools:
    """Which hops are a publisher's copies that left their host some time after they were written."""
    own = pc.equal(pc.shift_right(rows["message_id"], 32), rows["src_node"].cast(pa.int64()))
    late = pc.greater(rows["d_sndbuf_ns"], LEAST_NS)
    found: Bools = pc.fill_null(
        pc.and_(pc.and_(pc.equal(rows["kind"], Data.kind), own), late), fill_value=False
    ).to_numpy()
    return found


def _wait(row: int, others: Ints, acked_ns: Ints, off: Ints, sent_ns: Ints, left_ns: Ints, resent: Ints) -> int:
    """How long TCP held a frame back, given the frames of its stream that left."""
    before = others[off[others] < off[row]]
    under_way = before[(left_ns[before] <= sent_ns[row]) & (acked_ns[before] > sent_ns[row])]
    if not len(under_way) or not ((resent[before] > 0).any() or len(under_way) >= WINDOW_FRAMES):
        return 0
    answered_ns = acked_ns[before][acked_ns[before] <= left_ns[row]]
    return max(int(answered_ns.max(initial=sent_ns[row])) - int(sent_ns[row]), 0)
