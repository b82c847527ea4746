"""How long TCP held a frame back: from a lost frame, or a full window, to the acknowledgement that let it go."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metrics.tables.schemas import arrow_schema
from metrics.tables.tcp_waits import LEAST_NS, WINDOW_FRAMES, tcp_waits
from peer.core.frames import Data

MS = 1_000_000
DELAY_MS = 20.0


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    np.save(tmp_path / "delay_ms.npy", np.full((3, 3), DELAY_MS))
    return tmp_path


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
        "tap_rx_ns": None if came_ms is None else round(came_ms * MS),
        "d_sndbuf_ns": round((left_ms - sent_ms) * MS),
        "n_retx": 0,
    }
    return row | changes


def waits(pairs: Path, rows: list[dict[str, Any]]) -> list[float]:
    found = tcp_waits(pa.Table.from_pylist(rows, arrow_schema("hops")), pairs)
    return [each / MS for each in found.to_pylist()]


LOST = frame(0, 0, 0.1, 80, n_retx=1)
"""Its second transmission arrived at 80 ms, so its acknowledgement is back at 100 ms."""


def test_a_frame_that_leaves_with_the_acknowledgement_of_a_lost_one_waited_for_it(pairs: Path) -> None:
    assert waits(pairs, [LOST, frame(1, 10, 100.1, 120.1)]) == [0, 90]


def test_what_the_host_added_after_the_acknowledgement_is_no_wait(pairs: Path) -> None:
    assert waits(pairs, [LOST, frame(1, 10, 150, 170)]) == [0, 90]


@pytest.mark.parametrize(
    ("before", "late"),
    [
        (frame(0, 0, 0.1, 80), frame(1, 10, 100.1, 120)),
        (LOST, frame(1, 101, 130, 150)),
        (LOST, frame(1, 10, 60, 100)),
        (LOST, frame(1, 10, 10 + LEAST_NS / MS, 100)),
        (LOST, frame(1, 10, 100.1, 120, kind=1)),
        (LOST, frame(1, 10, 100.1, 120, src_node=0)),
        (LOST, frame(1, 10, 100.1, 120, direction="resp")),
        (LOST, frame(1, 10, 100.1, 120, incarnation=1)),
        (frame(0, 0, 0.1, None, n_retx=1), frame(1, 10, 100.1, 120)),
    ],
    ids=[
        "nothing was lost",
        "nothing under way",
        "left before the acknowledgement",
        "left at once",
        "no message",
        "another node's message",
        "the other direction",
        "another connection of the name",
        "never acknowledged",
    ],
)
def test_otherwise_the_host_held_it_back(pairs: Path, before: dict[str, Any], late: dict[str, Any]) -> None:
    assert waits(pairs, [before, late]) == [0, 0]


@pytest.mark.parametrize(("count", "wait_ms"), [(WINDOW_FRAMES, 30), (WINDOW_FRAMES - 1, 0)])
def test_a_full_window_holds_back_what_follows(pairs: Path, count: int, wait_ms: float) -> None:
    first = [frame(place, 0, 0.1, 20) for place in range(count)]
    assert waits(pairs, [*first, frame(count, 10, 40.1, 60)]) == [0] * count + [wait_ms]
