"""Logical links from the captured frames of hand-made connections, and against what nodes traced of them."""

from typing import Any

import pyarrow as pa
import pytest

from metrics.checks.consistency import BROKEN, TOLD
from metrics.checks.evidence import LinkFrames, Matching
from metrics.pcap.schemas import CONNS, CONTROLS
from metrics.tables.links import build_sharing
from metrics.tables.observed_links import READ_ENDS, compare_observed, observe, unread_nodes
from metrics.tables.schemas import arrow_schema
from peer import wire
from peer.core.frames import Bye, Frame, Hello, Subscriptions
from peer.core.observed_links import AnnouncedTopics

MS, SECOND = 1_000_000, 1_000_000_000
DELAY = 40 * MS
GRID = (0, 0, 100)
NODES = pa.table({"node": pa.array([1, 2], pa.int32()), "ip": ["10.0.0.1", "10.0.0.2"]})
CONN = "10.0.0.1:40000-10.0.0.2:9000"
END = 50 * SECOND

Row = dict[str, Any]


def sent(direction: str, at_ns: int, frame: Frame, off: int = 0) -> list[Row]:
    """A frame as it leaves its host and as it arrives at the other one; hosts are 1 (the opener) and 2."""
    source = 1 if direction == "orig" else 2
    both = {
        "uid": "C1",
        "conn": CONN,
        "direction": direction,
        "off": off,
        "kind": frame.kind,
        "frame": wire.encode(frame),
    }
    return [
        both | {"vantage_host": source, "tap": "tx", "at_ns": at_ns},
        both | {"vantage_host": 3 - source, "tap": "rx", "at_ns": at_ns + DELAY},
    ]


def conversation() -> list[Row]:
    """Nodes 1 and 2 share topics 3 and 4; after 20 s node 2 wants topic 4 no more, and after 40 s node 1 closes."""
    return [
        *sent("orig", SECOND, Hello(1, 9)),
        *sent("resp", SECOND + DELAY, Hello(2, 9)),
        *sent("orig", 2 * SECOND, Subscriptions((3, 4, 5))),
        *sent("resp", 2 * SECOND, Subscriptions((3, 4))),
        *sent("resp", 20 * SECOND, Subscriptions((3,)), off=90),
        *sent("orig", 40 * SECOND, Bye("left"), off=90),
        *sent("resp", 45 * SECOND, Subscriptions((3, 4, 5)), off=150),
    ]


def observed(rows: list[Row], closed_ns: int | None = END) -> tuple[pa.Table, pa.Table]:
    conns = [
        {"uid": "C1", "vantage_host": host, "ts_ns": 0, "duration_ns": END, "closed_ns": closed_ns} for host in (1, 2)
    ]
    controls = pa.Table.from_pylist(rows, CONTROLS)
    return observe(controls, pa.Table.from_pylist(conns, CONNS), NODES, AnnouncedTopics)


def spans(links: pa.Table) -> dict[tuple[int, int, int], tuple[int, int]]:
    rows = links.to_pylist()
    assert {row["conn"] for row in rows} <= {CONN}
    return {(row["node"], row["peer"], row["topic"]): (row["from_ns"], row["to_ns"]) for row in rows}


def test_topics_last_from_the_frame_that_both_ends_need_to_the_one_that_drops_them_or_the_bye() -> None:
    links, ends = observed(conversation())
    begun = 2 * SECOND + DELAY
    assert spans(links) == {
        (1, 2, 3): (begun, 40 * SECOND),
        (1, 2, 4): (begun, 20 * SECOND + DELAY),
        (2, 1, 3): (begun, 40 * SECOND + DELAY),
        (2, 1, 4): (begun, 20 * SECOND),
    }
    assert sorted(ends.to_pylist(), key=lambda end: end["node"]) == [
        {"node": 1, "peer": 2, "is_read": True},
        {"node": 2, "peer": 1, "is_read": True},
    ]


def test_the_nodes_of_one_address_are_told_apart_by_their_hello() -> None:
    rows = [*sent("orig", SECOND, Hello(7, 9)), *sent("resp", SECOND, Hello(8, 9)), *conversation()[4:]]
    links, _ = observed(rows)
    assert {node for pair in spans(links) for node in pair[:2]} == {7, 8}


def test_the_end_of_a_connection_ends_its_links_and_is_sure_only_if_something_closed_it() -> None:
    without_bye = [row for row in conversation() if row["kind"] != Bye.kind and row["at_ns"] < 45 * SECOND]
    for closed_ns, sure_ns, maybe_ns in ((END, END - TOLD.ns, END + TOLD.ns), (None, None, END + BROKEN.ns)):
        links, _ = observed(without_bye, closed_ns)
        [row] = [row for row in links.to_pylist() if (row["node"], row["topic"]) == (1, 3)]
        assert (row["to_ns"], row["sure_to_ns"], row["maybe_to_ns"]) == (END, sure_ns, maybe_ns)
        [row] = [row for row in links.to_pylist() if (row["node"], row["topic"]) == (1, 4)]
        assert row["sure_to_ns"] == 20 * SECOND + DELAY - TOLD.ns, "a frame dropped it, whatever the end"


@pytest.mark.parametrize("what", ["a cut frame", "a stream that cannot be read on", "a cut introduction"])
def test_an_end_whose_frames_are_not_all_known_has_no_links(what: str) -> None:
    rows = conversation()
    lost = {"a cut frame": 9, "a stream that cannot be read on": 7, "a cut introduction": 3}[what]
    assert (rows[lost]["vantage_host"], rows[lost]["tap"]) == (1, "rx")
    rows[lost]["frame"] = None
    if what == "a stream that cannot be read on":
        rows[lost] |= {"kind": None, "at_ns": None}
    links, ends = observed(rows)
    assert {pair[0] for pair in spans(links)} == {2}
    assert unread_nodes(ends) == [1], "by its address, where it did not introduce itself"
    assert {(end["node"], end["is_read"]) for end in ends.to_pylist()} == {(1, False), (2, True)}


def test_what_a_peer_would_refuse_changes_nothing() -> None:
    rows = conversation()
    for row in rows[8:10]:
        row["frame"] = row["frame"][:-1] + b"\xc1"
    links, ends = observed(rows)
    assert spans(links)[1, 2, 4] == (2 * SECOND + DELAY, 40 * SECOND)
    assert all(end["is_read"] for end in ends.to_pylist())


def traced(topic: int = 3, **changed: int | None) -> pa.Table:
    """What both nodes traced of the conversation, 1 ms after each frame; node 1's link of a topic is another one."""
    rows = [
        {"node": node, "peer": peer, "topic": topic, "from_ns": since + MS, "to_ns": until + MS}
        for (node, peer, topic), (since, until) in spans(observed(conversation())[0]).items()
    ]
    [row] = [row for row in rows if (row["node"], row["topic"]) == (1, topic)]
    row |= {name.removeprefix("its_"): value for name, value in changed.items()}
    return pa.Table.from_pylist([row for row in rows if row["node"] is not None], arrow_schema("links"))


def compared(links: pa.Table, rows: list[Row] | None = None, **nodes: list[int]) -> LinkFrames:
    seen, ends = observed(conversation() if rows is None else rows)
    return compare_observed(seen, ends, links, nodes.get("excluded", []), nodes.get("vanished", []), GRID)


def test_traces_that_say_what_the_frames_say_agree() -> None:
    found = compared(traced())
    assert (found.matching.only_traced, found.matching.only_on_wire) == (0, 0)
    assert found.matching.tested == found.material == 2 * (40 - 2) + 2 * (20 - 2)
    assert (found.ends, found.unread) == (2, 0)


def test_a_link_that_only_the_frames_or_only_the_trace_has_is_found() -> None:
    gone = compared(traced(node=None))
    assert (gone.matching.only_traced, gone.matching.only_on_wire) == (0, (40 - 2) - (2 + 2) - 1)
    invented = compared(traced(its_topic=9))
    assert invented.matching.only_traced == 40 - 2
    early = compared(traced(4, to_ns=12 * SECOND))
    assert early.matching.only_on_wire == (20 - 2) - 12 + 1
    late = compared(traced(4, to_ns=30 * SECOND))
    assert late.matching.only_traced == 30 - (20 + 2) - 1


def test_nodes_that_are_excluded_vanished_or_unread_are_not_compared_as_others_are() -> None:
    gone = traced(node=None)
    assert compared(gone, excluded=[1]) == LinkFrames(Matching(0, 0, 0), 0, 2, 0)
    assert compared(gone, vanished=[1, 2]).matching.only_on_wire == 0
    cut = conversation()
    cut[7]["frame"] = None
    found = compared(gone, cut)
    assert found.matching.only_on_wire == 0
    assert (found.unread, found.material - found.matching.tested) == (1, 20 - 2)
    assert found.matching.tested == (40 - 2) + (20 - 2)


def test_how_many_links_a_node_has_is_unknown_where_one_of_its_ends_was_not_read() -> None:
    cut = conversation()
    cut[7]["frame"] = None
    links, ends = observed(cut)
    instances = pa.table(
        {"node": pa.array([1, 2], pa.int32()), "from_ns": [10 * SECOND] * 2, "to_ns": [11 * SECOND] * 2}
    )
    physical = pa.table(dict.fromkeys(("node", "peer"), instances["node"]) | {"from_ns": [0, 0], "to_ns": [END] * 2})
    rows = build_sharing("frames", links, physical, instances, GRID, unread_nodes(ends)).to_pylist()
    names = ("node", "view_size_total", "view_size_unique", "degree", "link_sharing_ratio")
    assert [tuple(row[name] for name in names) for row in rows] == [(1, None, None, 1, None), (2, 2, 1, 1, 2.0)]


def test_there_is_nothing_to_compare_without_frames() -> None:
    seen, ends = observed([])
    assert (len(seen), ends.schema) == (0, READ_ENDS)
    assert compare_observed(seen, ends, traced(), [], [], GRID).matching.only_traced > 0
