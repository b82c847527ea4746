"""How long TCP itself held frames back: that is the network's doing, not the host's.

TCP sends nothing new while it repairs a loss or while its window is full; the acknowledgement of what is under way lets
it go on. So a frame that left just after such an acknowledgement waited for it. Behind an access link with a rate,
acknowledgements come as slowly as the link lets frames through, so a frame that waits for the link waits for them.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.walk import Bools, Ints
from metrics.probing import JITTER_SIGMAS
from metrics.storage import Place
from metrics.storage.copies import map_array
from metrics.tables.columns import find_asked, group_rows, numbers, valid

LEAST_NS: Final = 1_000_000
"""A frame that left its host so soon was not held back."""

WINDOW_FRAMES: Final = 10
"""TCP's first window is ten packets (RFC 6928), and so is that after a pause. With fewer frames under way, none of them
lost, it does not wait."""

_NEVER: Final = np.iinfo(np.int64).max
_MS: Final = 1e6


def tcp_waits(rows: pa.Table, pairs: Place) -> Ints:
    """Return how long TCP held each hop's frame back before it left, (n,) in ns; 0 where nothing shows that it did.

    The frames under way when a frame was written are those that had left before and whose acknowledgement may have come
    later: their arrival and the delay asked for, back, and what jitter and the queues of access links may add. TCP
    waited if they fill its first window, or if a frame before was retransmitted whose acknowledgement may have come
    later. It waited for the last acknowledgement that may have come before the frame left.

    Args:
        rows: ``hops`` of whole streams.
        pairs: what was asked of every directed pair, for ``find_asked``, and ``queue_ms`` of every node.
    """
    waited = np.zeros(len(rows), np.int64)
    late = np.flatnonzero(numbers(rows["d_sndbuf_ns"]) > LEAST_NS)
    if len(late):
        sent = _Sent.of(rows.filter(pc.is_valid(rows["tap_tx_ns"])), pairs)
        left = valid(rows["tap_tx_ns"])
        waited[late] = sent.waits(np.cumsum(left)[late] - 1)
    return waited


@dataclass(frozen=True)
class _Sent:
    """The frames that left, (n,); instants in ns.

    Instants are compared within a stream by keys: the number of the stream, and the rank of the instant.
    """

    stream: Ints
    off: Ints
    sent_ns: Ints
    left_ns: Ints
    resent: Bools
    acked_ns: Ints  # when the acknowledgement came at the earliest
    latest_ns: Ints  # when at the latest, but for chance

    @classmethod
    def of(cls, rows: pa.Table, pairs: Place) -> Self:
        stream, _ = group_rows(rows, "conn", "direction", "incarnation")
        left_ns, arrived = numbers(rows["tap_tx_ns"]), valid(rows["tap_rx_ns"])
        back = rows["dst_node"], rows["src_node"]
        delay_ms, jitter_ms = (
            pc.fill_null(find_asked(pairs, name, *back), 0.0).to_numpy() for name in ("delay_ms", "jitter_ms")
        )
        queue_ms = np.append(map_array(pairs / "queue_ms.npy"), 0.0)
        more_ms = JITTER_SIGMAS * jitter_ms + sum(queue_ms[numbers(each, -1)] for each in back)
        acked_ns = np.maximum(numbers(rows["tap_rx_ns"]) + (delay_ms * _MS).astype(np.int64), left_ns + 1)
        latest_ns = acked_ns + (more_ms * _MS).astype(np.int64)
        return cls(
            stream,
            numbers(rows["off"]),
            numbers(rows["log_send_ns"], _NEVER),
            left_ns,
            numbers(rows["n_retx"]) > 0,
            np.where(arrived, acked_ns, _NEVER),
            np.where(arrived, latest_ns, _NEVER),
        )

    def waits(self, late: Ints) -> Ints:
        """Return how long TCP held some of the frames back."""
        columns = (self.sent_ns, self.left_ns, self.acked_ns, self.latest_ns)
        instants, ranks = np.unique(np.concatenate(columns), return_inverse=True)
        base = self.stream * len(instants)
        sent, left, acked, latest = (base + rank for rank in np.split(ranks, len(columns)))
        under_way = _count(left, sent[late]) - _count(latest, sent[late])
        in_order = np.lexsort((self.off, self.stream))
        last_resent = np.maximum.accumulate(np.where(self.resent, latest, -1)[in_order])
        before = np.empty(len(base), np.int64)  # the last acknowledgement of a retransmitted frame before each one
        before[in_order] = np.append(-1, last_resent[:-1])
        held = (under_way > 0) & ((under_way >= WINDOW_FRAMES) | (before[late] > sent[late]))
        by_answer = np.argsort(acked)
        answers = np.append(-1, np.maximum.accumulate(latest[by_answer]))
        answer = np.maximum(answers[_count(acked, left[late])], base[late])
        answered_ns = np.minimum(instants[answer - base[late]], self.left_ns[late])
        return np.where(held, np.maximum(answered_ns - self.sent_ns[late], 0), 0)


def _count(keys: Ints, limits: Ints) -> Ints:
    """Count the keys up to each limit."""
    return np.searchsorted(np.sort(keys), limits, "right")
