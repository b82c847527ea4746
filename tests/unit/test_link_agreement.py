"""Ends of connections as the captures show them, on hand-made hops: every way in which a link begins and ends."""

from typing import Any

import pyarrow as pa

from metrics.checks.consistency import BROKEN, IDLE, SETTLE
from metrics.checks.evidence import Matching
from metrics.tables.agreement import compare_physical, wire_ends
from metrics.tables.condensed import condense_streams
from metrics.tables.schemas import arrow_schema
from peer.core.frames import Bye, Data, Hello

MS, SECOND = 1_000_000, 1_000_000_000
GRID = (0, 0, 200)
DELAY = 40 * MS
INSIDE = 2 * MS


def hop(conn: str, side: str, kind: int, sent_ns: int, **changes: Any) -> dict[str, Any]:
    """A frame between nodes 1 (the opener) and 2, with 2 ms in each host and 40 ms between them."""
    source, destination = (1, 2) if side == "orig" else (2, 1)
    seen = {"log_send_ns": sent_ns, "tap_tx_ns": sent_ns + INSIDE, "tap_rx_ns": sent_ns + INSIDE + DELAY}
    read = {"log_recv_ns": sent_ns + 2 * INSIDE + DELAY}
    named = {"conn": conn, "incarnation": 0, "direction": side, "kind": kind}
    return named | {"src_node": source, "dst_node": destination} | seen | read | changes


def hellos(conn: str, at_ns: int) -> list[dict[str, Any]]:
    return [hop(conn, "orig", Hello.kind, at_ns), hop(conn, "resp", Hello.kind, at_ns + DELAY + 2 * INSIDE)]


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, arrow_schema(name))


def streams(hops: list[dict[str, Any]]) -> pa.Table:
    return condense_streams(table("hops", hops))


def ends(hops: list[dict[str, Any]], conns: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {row["node"]: row for row in wire_ends(streams(hops), table("conns", conns)).to_pylist()}


def test_a_link_lasts_from_the_other_side_s_hello_to_a_bye() -> None:
    bye_ns = 10 * SECOND
    found = ends([*hellos("a", SECOND), hop("a", "orig", Bye.kind, bye_ns)], [])
    opener, acceptor = found[1], found[2]
    answered_ns = SECOND + DELAY + 2 * INSIDE
    assert acceptor["from_ns"] == SECOND + INSIDE + DELAY
    assert acceptor["sure_from_ns"] == answered_ns + INSIDE + IDLE.ns
    assert opener["from_ns"] == answered_ns + INSIDE + DELAY
    assert opener["sure_from_ns"] == opener["from_ns"] + INSIDE + IDLE.ns
    assert (opener["sure_to_ns"], opener["to_ns"]) == (bye_ns, bye_ns + INSIDE)
    assert opener["maybe_to_ns"] == bye_ns + INSIDE + SETTLE.ns
    assert acceptor["sure_to_ns"] == acceptor["to_ns"] == bye_ns + INSIDE + DELAY
    assert acceptor["maybe_to_ns"] == bye_ns + 2 * INSIDE + DELAY + SETTLE.ns


def test_a_node_that_sends_on_a_link_knows_it() -> None:
    """Who reads need not know it yet: a frame right behind the ``Hello`` is stamped when both are read."""
    used_ns = SECOND + 200 * MS
    found = ends([*hellos("a", SECOND), hop("a", "orig", Data.kind, used_ns)], [])
    assert found[1]["sure_from_ns"] == used_ns
    assert found[2]["sure_from_ns"] == SECOND + DELAY + 3 * INSIDE + IDLE.ns


def test_a_refused_connection_is_no_link() -> None:
    assert ends([hop("a", "orig", Hello.kind, SECOND), hop("a", "resp", Bye.kind, 2 * SECOND)], []) == {}


def test_a_broken_connection_is_sure_up_to_each_end_s_last_frame() -> None:
    """Node 2 crashes unseen: what node 1 sends at 8 s arrives at its host and is read by nobody."""
    hops = [*hellos("a", SECOND), hop("a", "resp", Data.kind, 5 * SECOND)]
    hops.append(hop("a", "orig", Data.kind, 8 * SECOND, log_recv_ns=None))
    conns = [{"conn": "a", "ts_ns": SECOND, "duration_ns": 8 * SECOND}]
    found = ends(hops, conns)
    assert found[1]["sure_to_ns"] == 8 * SECOND
    assert found[2]["sure_to_ns"] == 5 * SECOND
    assert {end["to_ns"] for end in found.values()} == {9 * SECOND}
    assert {end["maybe_to_ns"] for end in found.values()} == {9 * SECOND + BROKEN.ns}


def test_a_bye_that_nobody_reads_ends_the_link_of_its_sender_only() -> None:
    """The host of node 2 vanishes; node 1 gives the silent link up at 8 s, and its kernel repeats the ``Bye``."""
    hops = [*hellos("a", SECOND), hop("a", "resp", Data.kind, 5 * SECOND)]
    hops.append(hop("a", "orig", Bye.kind, 8 * SECOND, log_recv_ns=None))
    conns = [{"conn": "a", "ts_ns": SECOND, "duration_ns": 12 * SECOND}]
    found = ends(hops, conns)
    assert found[1]["sure_to_ns"] == 8 * SECOND
    assert found[1]["maybe_to_ns"] == 8 * SECOND + INSIDE + SETTLE.ns
    assert found[2]["sure_to_ns"] == 5 * SECOND
    assert found[2]["maybe_to_ns"] == 13 * SECOND + BROKEN.ns
    assert found[2]["to_ns"] == 8 * SECOND + INSIDE + DELAY


def compared(spans: dict[int, tuple[int, int]], incomplete: list[int]) -> Matching:
    """Links of nodes 1 and 2 traced in those spans, against a connection from 1 s to 10 s."""
    used = [hop("a", side, Data.kind, SECOND + 200 * MS) for side in ("orig", "resp")]
    hops = [*hellos("a", SECOND), *used, hop("a", "orig", Bye.kind, 10 * SECOND)]
    rows = [
        {"node": node, "peer": 3 - node, "conn": "a", "from_ns": since, "to_ns": until}
        for node, (since, until) in spans.items()
    ]
    physical = table("physical_links", rows)
    found = wire_ends(streams(hops), table("conns", []))
    return compare_physical(found, physical, incomplete, GRID)


def test_traces_are_held_against_both_bounds() -> None:
    up_ns, down_ns = SECOND + 150 * MS, 10 * SECOND + 45 * MS
    sound = compared({1: (up_ns, 10 * SECOND + MS), 2: (up_ns, down_ns)}, [])
    assert (sound.only_on_wire, sound.only_traced) == (0, 0)
    assert sound.tested == 2 * 9, "seconds 2 to 10 at both ends"
    assert sound.changing == 1, "at 10 s node 1's Bye is inside its host"
    late = compared({1: (up_ns, 10 * SECOND), 2: (up_ns + 3 * SECOND, down_ns + 2 * SECOND)}, [])
    assert (late.only_on_wire, late.only_traced) == (3, 2)
    missing = compared({1: (up_ns, 10 * SECOND)}, [])
    assert missing.only_on_wire == 9
    assert compared({1: (up_ns, 10 * SECOND)}, [2]).only_on_wire == 0, "its trace is lost anyway"
