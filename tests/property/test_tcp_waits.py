"""How long TCP held frames back: what arrays say against a loop over all pairs of frames."""

import tempfile
from math import ceil
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.recorded.probing import JITTER_SIGMAS
from metrics.rundir.files import CHANGES_FILE
from metrics.tables.schemas import arrow_schema
from metrics.tables.tcp_waits import LEAST_NS, WINDOW_PACKETS, tcp_waits
from peer.wire import MSS_BYTES
from tests.examples import examples
from topologies.timeline import Change, encode_changes

MS = 1_000_000
DELAYS_MS = np.array([[0.0, 5.0], [9.0, 0.0]])
JITTER_MS = np.array([[0.0, 0.0], [0.5, 0.0]])
QUEUE_MS = np.array([[0.0, 2.0], [1.0, 0.5]])
REORDERED = Change(-1, 0, sources=(1,), destinations=(0,), reorder_ratio=0.5, reorder_ms=7.0)

Row = dict[str, Any]

steps = st.tuples(
    st.integers(0, 4),  # ms until it is written
    st.integers(0, 8),  # ms until it leaves, at the earliest
    st.none() | st.integers(5, 40),  # ms until it arrives
    st.integers(0, 19).map(lambda each: int(each == 19)),  # retransmissions
    st.sampled_from([None, 1, MSS_BYTES, MSS_BYTES + 1, 4000]),  # bytes
    st.sampled_from([0, 0, 1, 6]),  # ms from its first byte to its last
)
stream = st.tuples(
    st.sampled_from("ab"), st.sampled_from([("orig", 0, 1), ("resp", 1, 0)]), st.lists(steps, max_size=25)
)


def frames_of(conn: str, side: tuple[str, int, int], found: list[Any]) -> list[Row]:
    """A stream: frames leave in the order in which they are written."""
    direction, src, dst = side
    rows: list[Row] = []
    sent_ns = left_ns = last_ns = 0
    for place, (wait_ms, held_ms, way_ms, n_retx, size, tail_ms) in enumerate(found):
        sent_ns += wait_ms * MS + 1
        left_ns = max(last_ns, sent_ns + held_ms * MS) + 1
        last_ns = left_ns + tail_ms * MS
        rows.append(
            {
                "conn": conn, "incarnation": 0, "direction": direction, "off": 10 * place,
                "src_node": src, "dst_node": dst, "n_retx": n_retx, "len_bytes": size,
                "log_send_ns": sent_ns, "tap_tx_ns": left_ns, "d_sndbuf_ns": left_ns - sent_ns,
                "tap_tx_last_ns": last_ns, "tap_rx_ns": None if way_ms is None else last_ns + way_ms * MS,
            }
        )  # fmt: skip
    return rows


def wait_of(row: Row, rows: list[Row], *, is_reordered: bool) -> int:
    """How long TCP held a frame back, by the definition."""
    if row["d_sndbuf_ns"] <= LEAST_NS:
        return 0
    answers = []  # earliest and latest acknowledgement of each frame before
    before = [
        each
        for each in rows
        if all(each[name] == row[name] for name in ("conn", "direction")) and each["off"] < row["off"]
    ]
    back = row["dst_node"], row["src_node"]
    more_ms = JITTER_SIGMAS * JITTER_MS[back] + QUEUE_MS[0, back[0]] + QUEUE_MS[1, back[1]]
    more_ns = int((more_ms + REORDERED.reorder_ms * (is_reordered and back == (1, 0))) * MS)
    for each in before:
        acked_ns = np.inf if each["tap_rx_ns"] is None else each["tap_rx_ns"] + int(DELAYS_MS[back] * MS)
        answers.append((acked_ns, acked_ns + more_ns))
    ahead = [each for each, (_, latest) in zip(before, answers, strict=True) if latest > row["log_send_ns"]]
    packets = sum(ceil((each["len_bytes"] or 1) / MSS_BYTES) for each in ahead)
    small_window = any(each["n_retx"] for each in before)
    if not (small_window or packets >= WINDOW_PACKETS):
        return 0
    came = [latest for acked_ns, latest in answers if acked_ns <= row["tap_tx_ns"]]
    if before and (last := max(before, key=itemgetter("off")))["tap_tx_last_ns"] > last["tap_tx_ns"]:
        came.append(last["tap_tx_last_ns"])
    round_trip_ns = int(DELAYS_MS[back] * MS) + int(DELAYS_MS[back[::-1]] * MS)
    for each, (_, latest) in zip(before, answers, strict=True):
        if (each["len_bytes"] or 1) > MSS_BYTES and each["tap_tx_ns"] + round_trip_ns <= row["tap_tx_ns"] <= latest:
            came.append(row["tap_tx_ns"])
    return int(max(min(max(came, default=0), row["tap_tx_ns"]) - row["log_send_ns"], 0))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(stream, max_size=3, unique_by=lambda each: each[:2]), st.randoms(use_true_random=False), st.booleans())
def test_waits_are_what_a_loop_says(streams: list[Any], random: Any, is_reordered: bool) -> None:
    rows = [row for each in streams for row in frames_of(*each)]
    random.shuffle(rows)
    with tempfile.TemporaryDirectory() as folder:
        access = np.zeros((2, 2, 3))  # rates and queues of two nodes, and of none
        access[:, :, :2] = np.ones((2, 2)), QUEUE_MS
        arrays = {"delay_ms": DELAYS_MS, "jitter_ms": JITTER_MS, "access": access}
        arrays["segment_bytes"] = np.array([MSS_BYTES])
        for name, values in arrays.items():
            np.save(Path(folder) / f"{name}.npy", values)
        if is_reordered:
            (Path(folder) / CHANGES_FILE).write_bytes(encode_changes([REORDERED]))
        found = tcp_waits(pa.Table.from_pylist(rows, arrow_schema("hops")), Path(folder))
    assert found.tolist() == [wait_of(row, rows, is_reordered=is_reordered) for row in rows]
