"""The earliest instants of deliveries by captured packets: against plain counting, and with programs that lie."""

from collections import deque
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.checks.evidence import Bounds
from metrics.executors.in_process import InProcess
from metrics.tables import earliest
from metrics.tables.earliest import (
    NEVER,
    Deliveries,
    EarliestSources,
    Messages,
    Packets,
    count_lacking,
    find_chains,
    find_earliest,
)
from metrics.tables.published import PUBLISHED
from metrics.tables.traces import TOLD
from metrics.tables.transits import TRANSITS

NODES = 4
Row = dict[str, Any]

instants = st.integers(0, 12)
packets = st.lists(
    st.tuples(instants, st.integers(1, 4), st.integers(0, NODES - 1), st.integers(1, NODES - 1), st.integers(1, 9)),
    max_size=14,
)
messages = st.lists(st.tuples(st.integers(0, NODES - 1), instants), min_size=1, max_size=4)


def as_packets(drawn: list[tuple[int, int, int, int, int]]) -> Packets:
    rows = sorted((at, at + takes, src, (src + step) % NODES, size) for at, takes, src, step, size in drawn)
    sent, came, src, dst, size = (
        (np.array(each, np.int64) for each in zip(*rows, strict=True)) if rows else [np.empty(0, np.int64)] * 5
    )
    return Packets(src, dst, sent, came, size)


def walk(packets: Packets, publisher: int, due_ns: int) -> list[int]:
    """When each node could have the message, by following every packet from every place where it could be."""
    first = [NEVER] * NODES
    first[publisher] = due_ns
    open_ones = deque([publisher])
    while open_ones:
        node = open_ones.popleft()
        for src, dst, sent_ns, came_ns in zip(*(each.tolist() for each in packets[:4]), strict=True):
            if src == node and first[node] <= sent_ns and came_ns < first[dst]:
                first[dst] = came_ns
                open_ones.append(dst)
    return first


@given(packets, messages)
def test_chains_are_those_of_a_walk_over_all_packets(
    drawn: list[tuple[int, int, int, int, int]], published: list[tuple[int, int]]
) -> None:
    published.sort(key=lambda each: each[1])
    publisher, due_ns = (np.array(each, np.int64) for each in zip(*published, strict=True))
    rows = as_packets(drawn)
    found = find_chains(rows, Messages(publisher, due_ns, np.full(len(due_ns), 100)), NODES)
    assert found.T.tolist() == [walk(rows, *each) for each in published]


@given(packets, messages, st.data())
def test_what_follows_the_last_delivery_of_a_message_changes_nothing_before_it(
    drawn: list[tuple[int, int, int, int, int]], published: list[tuple[int, int]], data: st.DataObject
) -> None:
    published.sort(key=lambda each: each[1])
    publisher, due_ns = (np.array(each, np.int64) for each in zip(*published, strict=True))
    last_ns = np.array([data.draw(st.integers(at, 20)) for at in due_ns.tolist()], np.int64)
    rows = as_packets(drawn)
    found = find_chains(rows, Messages(publisher, due_ns, last_ns), NODES)
    whole = find_chains(rows, Messages(publisher, due_ns, np.full(len(due_ns), 100)), NODES)
    in_time = whole <= last_ns
    assert (found[in_time] == whole[in_time]).all()
    assert (found[~in_time] > np.broadcast_to(last_ns, found.shape)[~in_time]).all()


wanted = st.lists(st.tuples(instants, st.integers(0, 8), st.integers(1, 6)), max_size=4)


def serve(arrivals: list[tuple[int, int]], due: list[tuple[int, int, int]]) -> int:
    """The most deliveries that the bytes can serve: the best of all orders in which messages may take them."""
    best = 0
    for order in permutations(due):
        left, served = dict(enumerate(arrivals)), 0
        for since_ns, until_ns, size in order:
            mine = [(at, number) for number, (at, count) in left.items() if count and since_ns <= at <= until_ns]
            if sum(left[number][1] for _, number in mine) < size:
                continue
            served += 1
            for _, number in sorted(mine):
                at, count = left[number]
                left[number] = (at, count - min(count, size))
                size -= min(count, size)
        best = max(best, served)
    return best


@given(st.lists(st.tuples(instants, st.integers(1, 6)), max_size=5), wanted)
def test_bytes_are_lacking_if_no_order_serves_all_deliveries(
    arrivals: list[tuple[int, int]], drawn: list[tuple[int, int, int]]
) -> None:
    due = [(since, since + length, size) for since, length, size in drawn]
    zeros = np.zeros(len(arrivals), np.int64)
    came_ns, size = (np.array([each[part] for each in arrivals], np.int64) for part in (0, 1))
    since, until, needed = (np.array([each[part] for each in due], np.int64) for part in range(3))
    rows = Packets(zeros + 1, zeros, came_ns - 1, came_ns, size)
    found = count_lacking(rows, Deliveries(np.zeros(len(due), np.int64), since, until, needed))
    if serve(arrivals, due) == len(due):
        assert found == 0
    else:
        assert found > 0


# ------------------------------------------------------------------------------------------------- whole runs

PATH = [(0, 1), (1, 2), (2, 3)]
"""A line of nodes: every message that node 0 publishes takes three packets."""

HOP_NS, MESSAGES, PAYLOAD = 10_000, 20, 200


def line_of_nodes() -> tuple[list[Row], list[Row], list[Row]]:
    """Publications, true deliveries and packets; each message is published when the one before has arrived."""
    published, told, transits = [], [], []
    for number in range(MESSAGES):
        at_ns = number * 100_000
        published.append({"message_id": number, "publisher": 0, "scheduled_ns": at_ns, "publish_ns": at_ns + 5_000,
                          "payload_bytes": PAYLOAD})  # fmt: skip
        for hop, (src, dst) in enumerate(PATH):
            sent_ns = at_ns + 1_000 + hop * (HOP_NS + 1_000)
            transits.append({"src_node": src, "dst_node": dst, "sent_ns": sent_ns, "came_ns": sent_ns + HOP_NS,
                             "is_clear": True, "payload_bytes": PAYLOAD + 60})  # fmt: skip
            told.append({"event": "deliver", "node": dst, "message_id": number, "ts_ns": sent_ns + HOP_NS + 500})
    return published, told, transits


def judge(folder: Path, published: list[Row], told: list[Row], transits: list[Row], buckets: int = 2) -> Bounds:
    for name, rows, schema in (
        ("published", published, PUBLISHED),
        ("told", told, TOLD),
        ("transits", transits, TRANSITS),
    ):
        (folder / name).mkdir()
        whole = [{field: row.get(field) for field in schema.names} for row in rows]
        pq.write_table(pa.Table.from_pylist(whole, schema), folder / name / "part-0.parquet")
    sources = EarliestSources(folder / "published", folder / "told", folder / "transits", NODES, buckets)
    with InProcess(1) as executor:
        return find_earliest(executor, sources, folder / "earliest")


@pytest.mark.parametrize("states", [earliest.MOST_STATES, 3 * NODES])
def test_true_reports_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: int) -> None:
    """Though the program reports its publications after the packets have left; however many tasks there are."""
    monkeypatch.setattr(earliest, "MOST_STATES", states)
    found = judge(tmp_path, *line_of_nodes())
    assert found == Bounds(3 * MESSAGES, impossible=0, unreached=0, sized=3 * MESSAGES, lacking=0)
    rows = pa.concat_tables([pq.read_table(part) for part in (tmp_path / "earliest").glob("*.parquet")]).to_pylist()
    earliest_ns = {(row["message_id"], row["node"]): row["earliest_ns"] for row in rows}
    assert len(rows) == len(earliest_ns) == 3 * MESSAGES
    assert earliest_ns[1, 3] == 100_000 + 1_000 + 3 * HOP_NS + 2 * 1_000


def test_a_delivery_that_is_reported_before_it_can_be_is_impossible(tmp_path: Path) -> None:
    published, told, transits = line_of_nodes()
    told[5]["ts_ns"] -= 501  # node 3, message 1: one nanosecond before its last packet arrived
    found = judge(tmp_path, published, told, transits)
    assert (found.impossible, found.unreached, found.worst_ms) == (1, 0, 1e-6)


def test_a_message_that_no_packet_brought_is_invented(tmp_path: Path) -> None:
    published, told, transits = line_of_nodes()
    kept = [row for row in transits if row["dst_node"] != 3]
    found = judge(tmp_path, published, told, kept)
    assert (found.impossible, found.unreached, found.lacking) == (MESSAGES, MESSAGES, MESSAGES)


def test_nodes_beyond_the_plan_are_left_out(tmp_path: Path) -> None:
    """A trace of a stranger's run may name any node and any message."""
    published, told, transits = line_of_nodes()
    strange = [{"event": "deliver", "node": node, "message_id": 1, "ts_ns": 500_000} for node in (-1, NODES, 2**31 - 1)]
    message = {"message_id": NEVER, "publisher": 2**31 - 1, "publish_ns": 100, "payload_bytes": PAYLOAD}
    strange.append({"event": "deliver", "node": 1, "message_id": NEVER, "ts_ns": 500_000})
    found = judge(tmp_path, [*published, message], [*told, *strange], transits)
    assert found == Bounds(3 * MESSAGES, impossible=0, unreached=0, sized=3 * MESSAGES, lacking=0)


def test_messages_that_are_invented_beside_a_few_real_ones_lack_bytes(tmp_path: Path) -> None:
    """Small packets reach the node all the time, so a chain leads to it; but they cannot hold as many messages."""
    published, told, transits = line_of_nodes()
    for row in transits:
        if row["dst_node"] == 3 and row["sent_ns"] > 200_000:
            row["payload_bytes"] = 40
    found = judge(tmp_path, published, told, transits)
    assert (found.impossible, found.lacking) == (0, MESSAGES - 2)


def test_half_of_the_reports_left_out_is_not_seen_here(tmp_path: Path) -> None:
    """They count as undelivered: no packet tells whether the program handed a message to its application."""
    published, told, transits = line_of_nodes()
    found = judge(tmp_path, published, told[::2], transits)
    assert (found.tested, found.impossible, found.lacking) == (3 * MESSAGES // 2, 0, 0)


def test_a_packet_among_others_with_the_same_headers_may_have_left_later(tmp_path: Path) -> None:
    """Which of them was lost is not known, so the one that arrived may be any of them."""
    published, told, transits = line_of_nodes()
    for row in transits:
        if row["dst_node"] == 2:
            row |= {"sent_ns": row["sent_ns"] - 5_000, "is_clear": False}
    assert judge(tmp_path, published, told, transits).impossible == 0
