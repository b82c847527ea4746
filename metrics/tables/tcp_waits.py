"""Find how long TCP itself held frames back, which is the network's share of a delay, not the host's.

TCP sends nothing new while it repairs a loss or while its window is full. The acknowledgement of data under way lets it
continue. So a frame that left just after such an acknowledgement waited for it. Behind an access link with a rate,
acknowledgements come as slowly as the link lets frames through, so a frame that waits for the link waits for them.

The window begins with ten packets, of which a large frame takes several. A loss makes it smaller, down to one packet
(RFC 5681). It grows only while it is full, so a connection that sends little may keep a small window to its end.

TCP sends a stream's bytes in order. So a frame also waits until the last byte of a large frame before it has left. The
packets of a large frame are acknowledged one by one, at instants that the table ``hops`` does not have.

While a fault cuts a pair, TCP waits too, and after it until the next retransmission. A paused peer reads nothing, so
that its host has no room in the end, and TCP waits likewise.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.asked import find_asked, find_queues, find_segment_bytes
from metrics.changes import PairChanges
from metrics.pcap.walk import Bools, Ints
from metrics.recorded.probing import JITTER_SIGMAS
from metrics.storage import Place
from metrics.tables.columns import group_rows, numbers, valid

LEAST_NS: Final = 1_000_000
"""A frame that left its host this soon was not held back."""

WINDOW_PACKETS: Final = 10
"""TCP's first window (RFC 6928), which is also its window after a pause. With fewer packets under way, and none lost
before, TCP does not wait."""

_NEVER: Final = np.iinfo(np.int64).max
_MS: Final = 1e6


def tcp_waits(rows: pa.Table, pairs: Place) -> Ints:
    """Return how long TCP held each hop's frame back before it left, (n,) in ns; 0 if nothing shows that it did.

    The frames ahead of a frame are the frames that were written before it and whose acknowledgement may have come later
    than the frame was written. An acknowledgement comes after the arrival, the delay asked for in the other direction,
    and what jitter, the queues of access links and faults that reorder packets may add. TCP waited if the frames ahead
    fill its first window, or if a frame of the stream was retransmitted before. It waited for the last of these
    instants before the frame left: an acknowledgement may have come; the last byte of the frame before it left later
    than the first; some packets of a large frame may have been acknowledged and others not.

    Args:
        rows: ``hops`` of whole streams.
        pairs: the folder of ``metrics.asked.stage_asked``.
    """
    waited = np.zeros(len(rows), np.int64)
    late = np.flatnonzero(numbers(rows["d_sndbuf_ns"]) > LEAST_NS)
    if len(late):
        sent = _Sent.of(rows.filter(pc.is_valid(rows["tap_tx_ns"])), pairs)
        left = valid(rows["tap_tx_ns"])
        waited[late] = sent.waits(np.cumsum(left)[late] - 1)
        halted = _met_halt(rows, pairs)
        waited[halted] = numbers(rows["d_sndbuf_ns"])[halted]
    return waited


def _met_halt(rows: pa.Table, pairs: Place) -> Bools:
    """Return whether a cut of its pair, a pause at either end, or TCP's waits after it held each frame back, (n,)."""
    source, destination = (numbers(rows[name], -1) for name in ("src_node", "dst_node"))
    sent_ns, left_ns = (numbers(rows[name]) for name in ("log_send_ns", "tap_tx_ns"))
    met = PairChanges.staged(pairs).meet(source, destination, sent_ns, left_ns, which="settling")
    return np.asarray(met & valid(rows["log_send_ns"], rows["tap_tx_ns"]))


@dataclass(frozen=True)
class _Sent:
    """The frames that left, (n,); instants in ns.

    Instants are compared within a stream by keys: the number of the stream, and the rank of the instant.
    """

    stream: Ints
    off: Ints
    packets: Ints
    sent_ns: Ints
    left_ns: Ints  # when the first byte left
    last_ns: Ints  # when the last byte left
    resent: Bools
    partly_ns: Ints  # when the acknowledgement of the first packet came at the earliest
    acked_ns: Ints  # when the acknowledgement of the last packet came at the earliest
    latest_ns: Ints  # when it came at the latest, except by chance

    @classmethod
    def of(cls, rows: pa.Table, pairs: Place) -> Self:
        stream, _ = group_rows(rows, "conn", "direction", "incarnation")
        left_ns, arrived = numbers(rows["tap_tx_ns"]), valid(rows["tap_rx_ns"])
        back = rows["dst_node"], rows["src_node"]
        delay_ms, jitter_ms = (
            pc.fill_null(find_asked(pairs, name, *back, rows["tap_rx_ns"]), 0.0).to_numpy()
            for name in ("delay_ms", "jitter_ms")
        )
        there_ms = find_asked(pairs, "delay_ms", *back[::-1], rows["tap_tx_ns"])
        round_trip_ms = delay_ms + pc.fill_null(there_ms, 0.0).to_numpy()
        more_ms = JITTER_SIGMAS * jitter_ms + find_queues(pairs, *back, rows["tap_rx_ns"])
        source, destination = (numbers(nodes, -1) for nodes in back)
        more_ms += PairChanges.staged(pairs).disorder(source, destination, numbers(rows["tap_rx_ns"])).reorder_ms
        acked_ns = np.maximum(numbers(rows["tap_rx_ns"]) + (delay_ms * _MS).astype(np.int64), left_ns + 1)
        latest_ns = np.where(arrived, acked_ns + (more_ms * _MS).astype(np.int64), _NEVER)
        return cls(
            stream,
            numbers(rows["off"]),
            -(-numbers(rows["len_bytes"], 1) // find_segment_bytes(pairs)),
            numbers(rows["log_send_ns"], _NEVER),
            left_ns,
            numbers(rows["tap_tx_last_ns"]),
            numbers(rows["n_retx"]) > 0,
            np.minimum(left_ns + (round_trip_ms * _MS).astype(np.int64), latest_ns),
            np.where(arrived, acked_ns, _NEVER),
            latest_ns,
        )

    def waits(self, late: Ints) -> Ints:
        """Return how long TCP held some of the frames back."""
        columns = (self.sent_ns, self.left_ns, self.partly_ns, self.acked_ns, self.latest_ns)
        instants, ranks = np.unique(np.concatenate(columns), return_inverse=True)
        base = self.stream * len(instants)
        sent, left, partly, acked, latest = (base + rank for rank in np.split(ranks, len(columns)))
        acknowledged = _sum_up_to(latest, self.packets, sent[late]) - _sum_up_to(latest, self.packets, base[late])
        ahead = self._before(self.packets)[late] - acknowledged
        held = (ahead >= WINDOW_PACKETS) | (self._before(self.resent)[late] > 0)
        by_answer = np.argsort(acked)
        answers = np.append(-1, np.maximum.accumulate(latest[by_answer]))
        answer = np.maximum(answers[np.searchsorted(acked[by_answer], left[late], "right")], base[late])
        answered_ns = np.maximum(instants[answer - base[late]], self._tail_ns()[late])
        large = self.packets > 1
        in_part = _sum_up_to(partly, large, left[late]) > _sum_up_to(latest, large, left[late])
        answered_ns = np.where(in_part, self.left_ns[late], np.minimum(answered_ns, self.left_ns[late]))
        return np.where(held, np.maximum(answered_ns - self.sent_ns[late], 0), 0)

    def _before(self, values: Ints | Bools) -> Ints:
        """Return the sum of the values of the frames before each frame in its stream."""
        sums = np.append(0, np.cumsum(values[self.in_order]))[:-1]
        streams = self.stream[self.in_order]
        before = np.empty(len(sums), np.int64)
        before[self.in_order] = sums - sums[np.searchsorted(streams, streams)]
        return before

    def _tail_ns(self) -> Ints:
        """Return when the last byte of the frame before each frame left, if later than its first byte; otherwise 0."""
        tails = np.where(self.last_ns > self.left_ns, self.last_ns, 0)[self.in_order]
        streams = self.stream[self.in_order]
        tail_ns = np.zeros(len(tails), np.int64)
        tail_ns[self.in_order[1:]] = np.where(streams[1:] == streams[:-1], tails[:-1], 0)
        return tail_ns

    @cached_property
    def in_order(self) -> Ints:
        """The frames, stream by stream, in the order of their bytes."""
        return np.lexsort((self.off, self.stream))


def _sum_up_to(keys: Ints, values: Ints | Bools, limits: Ints) -> Ints:
    """Return the sum of the values whose keys are at most each limit."""
    by_key = np.argsort(keys)
    return np.append(0, np.cumsum(values[by_key]))[np.searchsorted(keys[by_key], limits, "right")]
