"""Ends of connections as the captures show them, on hand-made hops: every way in which a link begins and ends."""

from typing import Any

import pyarrow as pa

from metrics.checks.consistency import BROKEN, IDLE, INTRODUCED, SETTLE, TOLD
from metrics.checks.evidence import Matching
from metrics.pcap.schemas import CONNS
from metrics.tables.agreement import CONNECTED, compare_connected, compare_physical, wire_connections, wire_ends
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


NODES = pa.table({"node": [1, 2], "ip": ["10.0.0.2", "10.0.0.3"]})


def connection(opened_ns: int | None, closed_ns: int | None, tap: str = "tx", last_ns: int = 0) -> dict[str, Any]:
    """What a host saw of a connection that node 1 opened to node 2."""
    ends = {"id_orig_h": "10.0.0.2", "id_resp_h": "10.0.0.3", "orig_tap": tap}
    return ends | {"ts_ns": 0, "duration_ns": last_ns, "opened_ns": opened_ns, "closed_ns": closed_ns}


def connected(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = wire_connections(pa.Table.from_pylist(list(rows), CONNS), NODES).to_pylist()
    return found


def test_each_end_of_a_connection_is_open_as_its_own_host_saw_it() -> None:
    opener, acceptor = connected(connection(5, 9 * SECOND), connection(6, 8 * SECOND, tap="rx"))
    assert opener == {
        "node": 1,
        "peer": 2,
        "from_ns": 5,
        "to_ns": 9 * SECOND,
        "sure_from_ns": 5 + INTRODUCED.ns,
        "sure_to_ns": 9 * SECOND - TOLD.ns,
        "maybe_to_ns": 9 * SECOND + TOLD.ns,
    }
    assert (acceptor["node"], acceptor["peer"], acceptor["from_ns"], acceptor["to_ns"]) == (2, 1, 6, 8 * SECOND)


def test_a_connection_that_nothing_closed_ends_with_its_last_packet() -> None:
    [found] = connected(connection(5, None, last_ns=7 * SECOND))
    assert (found["to_ns"], found["maybe_to_ns"]) == (7 * SECOND, 7 * SECOND + BROKEN.ns)
    assert found["sure_to_ns"] is None


def test_a_connection_that_was_never_open_or_has_a_foreign_end_is_none() -> None:
    assert connected(connection(None, 9), connection(5, 9) | {"id_resp_h": "10.9.9.9"}) == []


def test_traced_links_and_open_connections_must_be_the_same_within_bounds() -> None:
    """An open connection is a link from 12 s after its handshake to 2 s before its end, and no more 2 s after it."""
    closed_ns = 100 * SECOND
    wire = pa.Table.from_pylist(connected(connection(5 * SECOND, closed_ns)), CONNECTED)

    def compare(since_s: float, until_s: float, *vanished: int) -> Matching:
        link = {"node": 1, "peer": 2, "conn": "c", "opened": True}
        spans = {"from_ns": round(since_s * SECOND), "to_ns": round(until_s * SECOND)}
        return compare_connected(wire, table("physical_links", [link | spans]), [], list(vanished), GRID)

    for since_s, until_s in ((5, 102), (17, 98)):
        assert (compare(since_s, until_s).only_traced, compare(since_s, until_s).only_on_wire) == (0, 0)
    assert compare(4.5, 102.5).only_traced == 1, "at 102 s"
    assert compare(3, 103.5).only_traced == 4, "at 3, 4, 102 and 103 s"
    assert compare(19, 96).only_on_wire == 4, "at 17, 18, 96 and 97 s"
    assert compare(19, 96, 1).only_on_wire == 0, "node 1 vanished once"
    assert compare_connected(wire, table("physical_links", []), [1], [], GRID).only_on_wire == 0
