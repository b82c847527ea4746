"""How long TCP held a frame back: from a lost frame, or a full window, to the acknowledgement that let it go."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metrics.rundir.files import CHANGES_FILE
from metrics.tables.schemas import arrow_schema
from metrics.tables.tcp_waits import LEAST_NS, WINDOW_PACKETS, tcp_waits
from peer.core.frames import Data
from peer.wire import MSS_BYTES
from topologies.timeline import Change, encode_changes

MS = 1_000_000
DELAY_MS = 20.0


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_pairs(tmp_path)


def write_pairs(
    folder: Path, jitter_ms: float = 0.0, queue_ms: float = 0.0, rate_mbit: float = 1.0, segment: int = MSS_BYTES
) -> Path:
    np.save(folder / "segment_bytes.npy", np.array([segment]))
    np.save(folder / "delay_ms.npy", np.full((3, 3), DELAY_MS))
    np.save(folder / "jitter_ms.npy", np.full((3, 3), jitter_ms))
    np.save(folder / "access.npy", np.stack([np.full((2, 4), value) for value in (rate_mbit, queue_ms)]))
    return folder


def frame(place: int, sent_ms: float, left_ms: float, came_ms: float | None, **changes: Any) -> dict[str, Any]:
    """A copy of a message of node 1 on its way to node 2."""
    row = {
        "conn": "c",
        "incarnation": 0,
        "direction": "orig",
        "off": 100 * place,
        "kind": Data.kind,
        "message_id": 1 << 32 | place,
        "src_node": 1,
        "dst_node": 2,
        "log_send_ns": round(sent_ms * MS),
        "tap_tx_ns": round(left_ms * MS),
        "tap_tx_last_ns": round(left_ms * MS),
        "tap_rx_ns": None if came_ms is None else round(came_ms * MS),
        "d_sndbuf_ns": round((left_ms - sent_ms) * MS),
        "n_retx": 0,
    }
    return row | changes


def waits(pairs: Path, rows: list[dict[str, Any]]) -> list[float]:
    found = tcp_waits(pa.Table.from_pylist(rows, arrow_schema("hops")), pairs)
    return [each / MS for each in found.tolist()]


LOST = frame(0, 0, 0.1, 80, n_retx=1)
"""Its second transmission arrived at 80 ms, so its acknowledgement is back at 100 ms."""


def test_a_frame_that_leaves_with_the_acknowledgement_of_a_lost_one_waited_for_it(pairs: Path) -> None:
    assert waits(pairs, [LOST, frame(1, 10, 100.1, 120.1)]) == [0, 90]


def test_every_frame_waits_whatever_it_carries(pairs: Path) -> None:
    assert waits(pairs, [LOST, frame(1, 10, 100.1, 120, kind=None, message_id=None)]) == [0, 90]


def test_after_a_loss_one_packet_may_fill_the_window(pairs: Path) -> None:
    """The lost one had been acknowledged. Another frame was under way until 140.1 ms when the late one was written."""
    assert waits(pairs, [LOST, frame(1, 100, 100.1, 120.1), frame(2, 101, 140.2, 160)])[2] == pytest.approx(39.1)


def test_a_frame_that_was_lost_after_the_late_one_was_written_holds_it_back(pairs: Path) -> None:
    """Both waited at their host; the one before was lost first."""
    under_way, lost = frame(0, 0, 0.1, 20.1), frame(1, 9, 40.1, 140, n_retx=1)
    assert waits(pairs, [under_way, lost, frame(2, 10, 160.1, 180)])[2] == 150
    assert waits(pairs, [under_way, frame(1, 9, 160.1, 180), lost | {"off": 200, "log_send_ns": 10 * MS}])[1] == 0


def test_a_frame_waits_for_the_last_byte_of_the_frame_before(pairs: Path) -> None:
    """A frame of two packets, of which the second left at 30 ms, leaves no packet with a known acknowledgement."""
    first = frame(1, 5, 5.1, 100, len_bytes=2000, tap_tx_last_ns=30 * MS)
    assert waits(pairs, [frame(0, 0, 0.1, 1, n_retx=1), first, frame(2, 10, 30.0, 101)])[2] == 20
    assert waits(pairs, [frame(0, 0, 0.1, 1, n_retx=1), first, frame(2, 10, 35.0, 101)])[2] == 20
    alone = first | {"tap_tx_last_ns": first["tap_tx_ns"]}
    assert waits(pairs, [frame(0, 0, 0.1, 1, n_retx=1), alone, frame(2, 10, 30.0, 101)])[2] == pytest.approx(11)


def test_while_a_large_frame_is_acknowledged_in_part_every_wait_is_that_of_tcp(pairs: Path) -> None:
    """Its first packet may be acknowledged from 40.1 ms on, its last at 120 ms."""
    large = frame(0, 0, 0.1, 100, len_bytes=2000, n_retx=1)
    assert waits(pairs, [large, frame(1, 10, 70, 120)]) == [0, 60]
    assert waits(pairs, [large, frame(1, 10, 39, 120)]) == [0, 0]
    assert waits(pairs, [large, frame(1, 10, 130, 150)]) == [0, 110]


@pytest.mark.parametrize(("jitter_ms", "queue_ms", "wait_ms"), [(0.0, 0.0, 0), (5.0, 0.0, 45), (0.0, 7.5, 45)])
def test_jitter_and_queues_may_delay_an_acknowledgement(
    tmp_path: Path, jitter_ms: float, queue_ms: float, wait_ms: float
) -> None:
    """It was due at 100 ms, and may have come at 115: after the late frame was written, and when that left."""
    pairs = write_pairs(tmp_path, jitter_ms, queue_ms)
    assert waits(pairs, [LOST, frame(1, 110, 113, 133)])[1] == (3 if wait_ms else 0)
    assert waits(pairs, [LOST, frame(1, 70, 130, 150)])[1] == (wait_ms or 30)


@pytest.mark.parametrize(("node", "from_ms", "wait_ms"), [(2, 50, 45), (2, 1050, 45), (2, 1200, 30), (0, 50, 30)])
def test_so_may_the_queue_of_a_link_that_a_fault_limits(tmp_path: Path, node: int, from_ms: int, wait_ms: int) -> None:
    """The acknowledgement leaves node 2 at 80 ms; a fault counts from a second before it."""
    pairs = write_pairs(tmp_path, queue_ms=7.5, rate_mbit=0.0)
    limit = Change(from_ms * MS, 0, (from_ms + 300) * MS, up=(node,), rate_mbit=1.0)
    (tmp_path / CHANGES_FILE).write_bytes(encode_changes([limit]))
    assert waits(pairs, [LOST, frame(1, 70, 130, 150)])[1] == wait_ms


def test_what_the_host_added_after_the_acknowledgement_is_no_wait(pairs: Path) -> None:
    assert waits(pairs, [LOST, frame(1, 10, 150, 170)]) == [0, 90]


@pytest.mark.parametrize(
    ("before", "late"),
    [
        (frame(0, 0, 0.1, 80), frame(1, 10, 100.1, 120)),
        (LOST, frame(1, 101, 130, 150)),
        (LOST, frame(1, 10, 60, 100)),
        (LOST, frame(1, 10, 10 + LEAST_NS / MS, 100)),
        (LOST, frame(1, 10, 100.1, 120, direction="resp")),
        (LOST, frame(1, 10, 100.1, 120, incarnation=1)),
        (frame(0, 0, 0.1, None, n_retx=1), frame(1, 10, 100.1, 120)),
    ],
    ids=[
        "nothing was lost",
        "nothing under way",
        "left before the acknowledgement",
        "left at once",
        "the other direction",
        "another connection of the name",
        "never acknowledged",
    ],
)
def test_otherwise_the_host_held_it_back(pairs: Path, before: dict[str, Any], late: dict[str, Any]) -> None:
    assert waits(pairs, [before, late]) == [0, 0]


@pytest.mark.parametrize(("count", "wait_ms"), [(WINDOW_PACKETS, 30), (WINDOW_PACKETS - 1, 0)])
def test_a_full_window_holds_back_what_follows(pairs: Path, count: int, wait_ms: float) -> None:
    first = [frame(place, 0, 0.1, 20) for place in range(count)]
    assert waits(pairs, [*first, frame(count, 10, 40.1, 60)]) == [0] * count + [wait_ms]


@pytest.mark.parametrize(("size", "wait_ms"), [(2 * MSS_BYTES + 1, 30), (2 * MSS_BYTES, 0)])
def test_large_frames_fill_the_window_with_several_packets(pairs: Path, size: int, wait_ms: float) -> None:
    first = [frame(place, 0, 0.1, 20, len_bytes=size) for place in range(4)]
    assert waits(pairs, [*first, frame(4, 10, 40.1, 60)])[-1] == pytest.approx(wait_ms, abs=0.2)


@pytest.mark.parametrize(("segment", "wait_ms"), [(500, 30), (501, 0)])
def test_a_smaller_mtu_makes_more_packets_of_a_frame(tmp_path: Path, segment: int, wait_ms: float) -> None:
    pairs = write_pairs(tmp_path, segment=segment)
    first = [frame(place, 0, 0.1, 20, len_bytes=1002) for place in range(4)]
    assert waits(pairs, [*first, frame(4, 10, 40.1, 60)])[-1] == pytest.approx(wait_ms, abs=0.2)
