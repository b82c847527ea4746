"""The kernels of ``hops``, ``deliveries`` and ``messages`` against loops over dictionaries, whole and in shares."""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.pcap.schemas import CONNS
from metrics.pcap.schemas import FRAMES as TAPS
from metrics.tables import deliveries, hops
from metrics.tables import shares as table_shares
from metrics.tables.buckets import addresses_of, divide, of_connections, of_messages, of_neighbours
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.earliest import EARLIEST
from metrics.tables.published import CONTENTS, PublishedSources, build_published, stage_schedule
from metrics.tables.schemas import arrow_schema
from metrics.tables.shares import Share, all_shares
from metrics.tables.traces import BEGINNINGS, EVENTS, MENTIONS, TOLD, describe_copies
from metrics.tables.traces import FRAMES as LOGS
from peer.core.addressing.expression import parse
from peer.core.addressing.keywords import covering_topics, keywords
from peer.core.frames import Data
from peer.wire import MSS_BYTES

Row = dict[str, Any]

NODES = range(3)
CONN_NAMES = ("10.0.0.1:5-10.0.0.2:9000", "10.0.0.3:5-10.0.0.2:9000", "10.0.0.1:6-10.0.0.3:9000")
ADDRESSES = {node: f"10.0.0.{node + 1}" for node in NODES}
STARTS = {CONN_NAMES[0]: [10, 60]}
"""The first connection's addresses were used twice, at 10 ns and at 60 ns."""
MESSAGES = [(publisher << 32 | number, publisher) for publisher in NODES for number in range(2)]
PAIRS = [
    {"src_node": a, "dst_node": b, "asked_delay_ms": 1.5 * (a + 2 * b), "asked_jitter_ms": float(a)}
    for a in NODES
    for b in NODES
    if (a, b) != (0, 1)
]
INTEREST_SCHEMA = pa.schema(
    [("node", pa.int32()), ("topic", pa.int64()), ("due_ns", pa.int64()), ("to_ns", pa.int64())]
)

nodes = st.sampled_from(NODES)
instants = st.integers(0, 100)
identifiers = st.sampled_from([identifier for identifier, _ in MESSAGES])
topic_lists = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)
places = {
    "conn": st.sampled_from(CONN_NAMES),
    "direction": st.sampled_from(["orig", "resp"]),
    "off": st.sampled_from([0, 7, 1 << 40]),
    "len_bytes": st.integers(1, 3),
    "kind": st.sampled_from([1, Data.kind]),
    "message_id": st.none() | identifiers,
}
logged = st.fixed_dictionaries(
    {
        **places,
        "event": st.sampled_from(["send", "receive"]),
        "node": nodes,
        "peer": st.none() | nodes,
        "ts_ns": instants,
    }
)
seen = st.fixed_dictionaries(
    {
        **places,
        "uid": st.sampled_from(["C0", "C1"]),
        "vantage_host": st.integers(-1, 3),
        "tap": st.sampled_from(["tx", "rx", "mid"]),
        **dict.fromkeys(("t_first_ns", "t_last_ns"), instants),
        **dict.fromkeys(("n_retx", "n_seconds"), st.integers(0, 2)),
    }
)
handled = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["deliver", "relay", "publish", "duplicate"]),
        "node": nodes,
        "peer": st.none() | nodes,
        "message_id": identifiers,
        "topics": topic_lists,
        "hops": st.integers(0, 5),
        "len_bytes": st.integers(0, 9),
    }
)
asked = st.fixed_dictionaries(
    {
        "message_id": identifiers,
        "at_ns": instants,
        "topics": topic_lists,
        "expression": st.none() | st.sampled_from(["a", "a&b", "b&d|c", "(a|b)&(c|d)", "a&b&c|d", "f|a"]),
    }
)
interests = st.fixed_dictionaries({"node": nodes, "topic": st.integers(0, 3), "due_ns": instants, "to_ns": instants})


@contextmanager
def staged(**tables: tuple[list[Row], pa.Schema]) -> Iterator[Path]:
    """A folder with a folder of Parquet for each table, and what was asked of the pairs."""
    with tempfile.TemporaryDirectory() as name:
        write_pairs(Path(name) / "pairs")
        for table, (rows, schema) in tables.items():
            (Path(name) / table).mkdir()
            pq.write_table(pa.Table.from_pylist(rows, schema), Path(name) / table / "part-0.parquet")
        yield Path(name)


def stage_buckets(folder: Path, rows: pa.Table, bucket: np.ndarray, count: int) -> Path:
    """Rows as a folder of buckets."""
    folder.mkdir()
    for number, own in enumerate(divide(rows, bucket, count)):
        pq.write_table(own, folder / f"part-0-{number}.parquet")
    return folder


def stage_sightings(
    folder: Path,
    logs: list[Row],
    taps: list[Row],
    events: list[Row],
    count: int,
    starts: Mapping[str, list[int]] = MappingProxyType({}),
    conns: Sequence[Row] = (),
) -> dict[str, Path]:
    """What hops are made of, in buckets. ``starts``: when connections began of which several have one name."""
    copies = [event for event in events if event["event"] != "publish"]
    handled = describe_copies(pa.Table.from_pylist(copies, EVENTS))
    frames, seen = pa.Table.from_pylist(logs, LOGS), pa.Table.from_pylist(taps, TAPS)
    begun = [{"conn": conn, "direction": "orig", "ts_ns": at_ns} for conn in starts for at_ns in starts[conn]]
    beginnings, captured = pa.Table.from_pylist(begun, BEGINNINGS), pa.Table.from_pylist(list(conns), CONNS)
    contents = pa.Table.from_pylist([{"message_id": MESSAGES[0][0], "topics": [1, 2]}] * count, CONTENTS)
    return {
        "beginnings": stage_buckets(
            folder / "beginnings", beginnings, of_connections(beginnings["conn"], count), count
        ),
        "conns": stage_buckets(folder / "conns", captured, of_connections(captured["conn"], count), count),
        "contents": stage_buckets(folder / "contents", contents, np.arange(count), count),
        "frames": stage_buckets(folder / "frames", frames, of_connections(frames["conn"], count), count),
        "taps": stage_buckets(folder / "taps", seen, of_connections(seen["conn"], count), count),
        "handled": stage_buckets(folder / "handled", handled, of_neighbours(handled, ADDRESSES, count), count),
    }


def in_pieces(sources: hops.HopSources, share: Share) -> list[Row]:
    """The hops of a share, made in pieces of one sighting or two hosts."""
    with patch.object(table_shares, "PIECE_ROWS", 1):
        pieces = hops.plan_pieces(sources, share)
        made = [hops.build_hops(sources, share, only).to_pylist() for only in pieces]
    ends = [{addresses_of(row["conn"]) for row in rows} for rows in made if rows]
    assert all(len(set(map(frozenset, pair))) == 1 for pair in ends), "all connections of two hosts, and no others"
    return [row for rows in made for row in rows]


def write_pairs(folder: Path) -> None:
    """``PAIRS`` as matrices; NaN where nothing was asked."""
    folder.mkdir()
    np.save(folder / "access.npy", np.zeros((2, 2, len(NODES) + 1)))
    np.save(folder / "segment_bytes.npy", np.array([MSS_BYTES]))
    for name in ("delay_ms", "jitter_ms"):
        matrix = np.full((len(NODES), len(NODES)), np.nan)
        for pair in PAIRS:
            matrix[pair["src_node"], pair["dst_node"]] = pair[f"asked_{name}"]
        np.save(folder / f"{name}.npy", matrix)


def numbered(events: list[Row]) -> list[Row]:
    """Events at instants of their own, so that every first one is clear, and one publication a message at most."""
    rows, published = [], set()
    for at_ns, event in enumerate(events):
        if event["event"] != "publish" or event["message_id"] not in published:
            rows.append(event | {"ts_ns": 20 * at_ns})
        if event["event"] == "publish":
            published.add(event["message_id"])
    return rows


def in_order(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def without(rows: list[Row], *names: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def best(pick: Any, values: Iterator[Any]) -> Any:
    return pick((value for value in values if value is not None), default=None)


# ------------------------------------------------------------------------------------------------------------ hops

READ_ORDER = ("log_recv_ns", "off", "conn", "incarnation", "direction")
"""How copies are ordered that a node read: see ``test_first_copies_are_those_that_the_nodes_took``."""


def expected_hops(logs: list[Row], taps: list[Row], events: list[Row]) -> list[Row]:
    """What ``build_hops`` must say, except for what it only looks up."""
    frames: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = {}
    for row in logs:
        starts = STARTS.get(row["conn"], [0])
        number = max(0, sum(start <= row["ts_ns"] for start in starts) - 1)
        frames.setdefault((row["conn"], number, row["direction"], row["off"]), ([], []))[0].append(row)
    for row in taps:
        number = ["C0", "C1"].index(row["uid"]) if row["conn"] in STARTS else 0
        frames.setdefault((row["conn"], number, row["direction"], row["off"]), ([], []))[1].append(row)
    firsts: dict[tuple[int, int], Row] = {}
    for event in sorted(events, key=lambda event: event["ts_ns"]):
        if event["event"] in ("deliver", "relay") and event["peer"] is not None:
            firsts.setdefault((event["node"], event["message_id"]), event)
    rows = [expected_hop(key, *sightings, firsts) for key, sightings in frames.items()]
    own = {(event["node"], event["message_id"]) for event in events if is_own_delivery(event)}
    handled = {
        (event["peer"], event["node"], event["message_id"])
        for event in events
        if event["event"] != "publish" and event["peer"] is not None
    }
    for row in rows:
        if row["is_dup"] is not None:
            copy = (row["dst_node"], row["message_id"])
            came_back = None not in copy and copy[1] >> 32 == copy[0] and copy not in own
            at_relay = firsts[copy]["event"] == "relay" if copy in firsts else came_back
            row["at_relay"] = at_relay if (row["src_node"], *copy) in handled else None
    taken = set()
    for row in sorted(rows, key=lambda row: [row[name] or 0 for name in READ_ORDER]):
        if row["is_dup"] is False:
            row["is_dup"] = (row["dst_node"], row["message_id"]) in taken
            row["is_relay"] = row["is_relay"] and not row["is_dup"]
            taken.add((row["dst_node"], row["message_id"]))
    return rows


def is_own_delivery(event: Row) -> bool:
    return event["event"] == "deliver" and event["peer"] is None


def expected_hop(key: tuple[Any, ...], logs: list[Row], taps: list[Row], firsts: dict[tuple[int, int], Row]) -> Row:
    sends, reads = ([row for row in logs if row["event"] == event] for event in ("send", "receive"))
    tx, rx = ([row for row in taps if row["tap"] == tap] for tap in ("tx", "rx"))
    hop = dict(zip(("conn", "incarnation", "direction", "off"), key, strict=True))
    for name in ("len_bytes", "kind", "message_id"):
        of_logs = best(max, (row[name] for row in logs))
        hop[name] = of_logs if of_logs is not None else best(max, (row[name] for row in taps))
    for name, own, other, at in (("src_node", "node", "peer", tx), ("dst_node", "peer", "node", rx)):
        of_logs = best(max, (row[own if row["event"] == "send" else other] for row in logs))
        of_taps = best(max, (row["vantage_host"] for row in at if row["vantage_host"] in NODES))
        hop[name] = of_logs if of_logs is not None else of_taps
    hop["log_send_ns"] = best(max, (row["ts_ns"] for row in sends))
    hop["log_recv_ns"] = best(min, (row["ts_ns"] for row in reads))
    hop["tap_tx_ns"] = best(min, (row["t_first_ns"] for row in tx))
    hop["tap_tx_last_ns"] = best(min, (row["t_last_ns"] for row in tx))
    hop["tap_rx_ns"] = best(min, (row["t_last_ns"] for row in rx))
    hop |= {name: best(max, (row[name] for row in tx)) for name in ("n_retx", "n_seconds")}
    hop["is_dup"] = hop["is_relay"] = hop["at_relay"] = None
    if hop["kind"] == Data.kind and hop["log_recv_ns"] is not None:
        first = firsts.get((hop["dst_node"], hop["message_id"]))
        is_first = first is not None and first["peer"] == hop["src_node"] and hop["log_recv_ns"] <= first["ts_ns"]
        hop["is_dup"] = not is_first
        hop["is_relay"] = is_first and first is not None and first["event"] == "relay"
    return hop


@settings(deadline=None)
@given(st.lists(logged, max_size=12), st.lists(seen, max_size=12), st.lists(handled, max_size=6))
def test_hops_are_what_a_loop_over_the_sightings_says(logs: list[Row], taps: list[Row], events: list[Row]) -> None:
    events = numbered(events)
    taps = [row | {"uid": row["uid"] if row["conn"] in STARTS else row["conn"]} for row in taps]
    conns = [{"conn": CONN_NAMES[0], "uid": uid, "ts_ns": at_ns} for uid, at_ns in (("C1", 60), ("C0", 10), ("C0", 11))]
    with staged() as folder:
        paths = stage_sightings(folder, logs, taps, events, 2, STARTS, conns)
        sources = hops.HopSources(**paths, pairs=folder / "pairs", nodes_by_host=list(NODES))
        found = hops.build_hops(sources, Share()).to_pylist()
        shares = [row for number in range(2) for row in hops.build_hops(sources, Share(number, 2)).to_pylist()]
        pieces = in_pieces(sources, Share())
    # What became of a copy is for the share to say that has all connections of two hosts. Nodes here are any, on any.
    told = ("is_dup", "is_relay", "at_relay")
    assert in_order(without(shares, *told)) == in_order(without(found, *told))
    assert in_order(without(pieces, *told)) == in_order(without(found, *told))
    pairs = {(pair["src_node"], pair["dst_node"]): pair for pair in PAIRS}
    for row in found:
        pair = pairs.get((row["src_node"], row["dst_node"]), {})
        assert (row.pop("asked_delay_ms"), row.pop("asked_jitter_ms")) == (
            pair.get("asked_delay_ms"),
            pair.get("asked_jitter_ms"),
        )
        assert row.pop("topics") == ([1, 2] if row["message_id"] == MESSAGES[0][0] else None)
        instants_of = [row[name] for name in ("log_send_ns", "tap_tx_ns", "tap_rx_ns", "log_recv_ns")]
        for name, before, after in zip(
            ("d_sndbuf_ns", "d_wire_ns", "d_rcv_ns"), instants_of, instants_of[1:], strict=False
        ):
            assert row.pop(name) == (None if before is None or after is None else after - before)
    assert in_order(found) == in_order(expected_hops(logs, taps, events))


reads = st.lists(
    st.tuples(
        st.integers(0, 3),  # the stream
        st.lists(st.sampled_from([identifier for identifier, _ in MESSAGES]), min_size=1, max_size=4),
        st.sampled_from(["deliver", "relay"]),  # whether the node wants what is new in it
        st.sampled_from([0, 5, 250]),  # how long after the read the node takes the frames: other reads may come between
    ),
    max_size=10,
)
NEIGHBOURS = {
    0: ("10.0.0.1:5-10.0.0.2:9000", 0),
    1: ("10.0.0.1:6-10.0.0.2:9000", 0),
    2: ("10.0.0.3:5-10.0.0.2:9000", 2),
}
NEIGHBOURS[3] = ("10.0.0.2:7-10.0.0.1:9000", 0)
"""The streams to node 1 with their senders: node 0 has three connections with it, one of them the other way round."""


def read_by_a_node(steps: list[tuple[int, list[int], str, int]]) -> tuple[list[Row], list[Row], set[tuple[str, int]]]:
    """Play a node that reads copies, several at once, and takes the first one of each message.

    Returns what it and its neighbours trace, and the (connection, offset) of the copies that it took.
    """
    logs: list[Row] = []
    events: list[Row] = []
    taken: set[tuple[str, int]] = set()
    offsets, known = [0] * len(NEIGHBOURS), set()
    for number, (stream, copies, event, later_ns) in enumerate(steps):
        conn, sender = NEIGHBOURS[stream]
        at_ns = 100 * (number + 1)
        direction = "orig" if conn.startswith(f"10.0.0.{sender + 1}:") else "resp"
        for identifier in copies:
            frame = {"conn": conn, "direction": direction, "off": offsets[stream], "len_bytes": 10, "kind": Data.kind}
            frame |= {"message_id": identifier}
            logs.append(frame | {"event": "send", "node": sender, "peer": 1, "ts_ns": at_ns - 50})
            logs.append(frame | {"event": "receive", "node": 1, "peer": sender, "ts_ns": at_ns})
            word = event if identifier not in known else "duplicate"
            if word != "duplicate":
                known.add(identifier)
                taken.add((conn, offsets[stream]))
            events.append(
                {"event": word, "node": 1, "peer": sender, "message_id": identifier, "ts_ns": at_ns + later_ns}
            )
            offsets[stream] += 10
    return logs, events, taken


@settings(deadline=None)
@given(reads)
def test_first_copies_are_those_that_the_nodes_took(steps: list[tuple[int, list[int], str, int]]) -> None:
    logs, events, taken = read_by_a_node(steps)
    with staged() as folder:
        paths = stage_sightings(folder, logs, [], events, 4)
        sources = hops.HopSources(**paths, pairs=folder / "pairs", nodes_by_host=list(NODES))
        found = hops.build_hops(sources, Share()).to_pylist()
        shares = [row for number in range(4) for row in hops.build_hops(sources, Share(number, 4)).to_pylist()]
        pieces = in_pieces(sources, Share())
    assert in_order(shares) == in_order(found)
    assert in_order(pieces) == in_order(found)
    assert len(found) == sum(len(copies) for _, copies, _, _ in steps)
    assert {(row["conn"], row["off"]) for row in found if not row["is_dup"]} == taken
    relayed = {event["message_id"] for event in events if event["event"] == "relay"}
    for row in found:
        assert row["at_relay"] == (row["message_id"] in relayed)
        assert row["is_relay"] == (not row["is_dup"] and row["message_id"] in relayed)


# ------------------------------------------------------------------------------------------ messages and deliveries


def expected_published(schedule: list[Row], events: list[Row]) -> list[Row]:
    plan = {action["message_id"]: action for action in reversed(schedule)}
    words = {event["message_id"]: event for event in events if event["event"] == "publish"}
    came = {event["message_id"] for event in events if event["event"] == "deliver"}
    rows = []
    for identifier in plan.keys() | words.keys():
        word, action = words.get(identifier), plan.get(identifier)
        if word is None and identifier not in came:
            continue
        known = word or action
        assert known is not None, "it is in one of them"
        rows.append(
            {
                "message_id": identifier,
                "topics": known["topics"],
                "publisher": identifier >> 32,
                "scheduled_ns": None if action is None else action["at_ns"] + 5,
                "publish_ns": None if word is None else word["ts_ns"],
                "payload_bytes": 77 if word is None else word["len_bytes"],
                "expression": None if action is None else action["expression"],
            }
        )
    return rows


def expected_deliveries(
    published: list[Row], wanted: list[Row], events: list[Row], copies: list[Row], captured: bool
) -> list[Row]:
    rows = []
    for message in published:
        at_ns = message["publish_ns"] if message["publish_ns"] is not None else message["scheduled_ns"]
        for node in set(NODES) - {message["publisher"]}:
            during = [row for row in wanted if row["node"] == node and row["due_ns"] <= at_ns < row["to_ns"]]
            own = {row["topic"] for row in during}
            text = message["expression"]
            if parse(text).matches(keywords(own)) if text else own & set(message["topics"]):
                topic = min(own & set(message["topics"]))
                rows.append(expected_delivery(message, node, topic, events, copies, captured))
    return rows


def expected_delivery(message: Row, node: int, topic: int, events: list[Row], copies: list[Row], captured: bool) -> Row:
    identifier, publisher = message["message_id"], message["publisher"]
    mine = [
        event
        for event in events
        if event["event"] == "deliver" and (event["node"], event["message_id"]) == (node, identifier)
    ]
    first = min(mine, key=lambda event: event["ts_ns"], default=None)
    data = [copy for copy in copies if copy["kind"] == Data.kind and copy["message_id"] == identifier]
    arrived = [copy for copy in data if copy["dst_node"] == node]
    left_ns = best(min, (copy["tap_tx_ns"] for copy in data if copy["src_node"] == publisher))
    came_ns = best(min, (copy["tap_rx_ns"] for copy in arrived))
    delivered_ns = None if first is None else first["ts_ns"]
    latency = milliseconds(message["publish_ns"], delivered_ns)
    pair = next((each for each in PAIRS if (each["src_node"], each["dst_node"]) == (publisher, node)), None)
    direct = None if pair is None else pair["asked_delay_ms"]
    return {
        "message_id": identifier,
        "topic": topic,
        "publisher": publisher,
        "node": node,
        "publish_ns": message["publish_ns"],
        "delivered_ns": delivered_ns,
        "latency_ms": latency,
        "wire_latency_ms": None if delivered_ns is None else milliseconds(left_ns, came_ns),
        "least_latency_ms": milliseconds(message["publish_ns"], None if first is None else earliest_of(first)),
        "hops": None if first is None else first["hops"],
        "repeats": max(0, len(mine) - 1),
        "copies": sum(copy["log_recv_ns"] is not None for copy in arrived),
        "direct_delay_ms": direct,
        "stretch": latency / direct if latency is not None and direct else None,
        "known": delivered_ns is not None or node not in INCOMPLETE or (came_ns is None if captured else not arrived),
    }


def earliest_of(delivery: Row) -> int:
    """When packets could have brought a delivery; the same for all deliveries of a message to a node."""
    earliest_ns: int = delivery["message_id"] % 7 + delivery["node"]
    return earliest_ns


def milliseconds(since_ns: int | None, to_ns: int | None) -> float | None:
    return None if since_ns is None or to_ns is None else (to_ns - since_ns) / 1e6


def expected_spread(message: Row, rows: list[Row], copies: list[Row]) -> Row:
    mine = [row for row in rows if row["message_id"] == message["message_id"]]
    latencies = sorted(row["latency_ms"] for row in mine if row["latency_ms"] is not None)
    ranks = {share: math.ceil(len(mine) * share / 100) - 1 for share in (50, 90, 99, 100)}
    data = [copy for copy in copies if copy["kind"] == Data.kind and copy["message_id"] == message["message_id"]]
    reached = {copy["dst_node"] for copy in data if copy["log_recv_ns"] is not None} - {None}
    [message] = without([message], "expression")
    return message | {
        "n_subscribers": len(mine),
        "n_delivered": sum(row["delivered_ns"] is not None for row in mine),
        **{f"t{share}_ms": latencies[rank] if 0 <= rank < len(latencies) else None for share, rank in ranks.items()},
        "n_transmissions": len(data),
        "n_reached": len(reached),
        "redundancy": len(data) / len(reached) - 1 if reached else None,
    }


INCOMPLETE = (1,)
hop_rows = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([1, Data.kind]),
        "message_id": st.none() | identifiers,
        **dict.fromkeys(("src_node", "dst_node"), st.none() | nodes),
        **dict.fromkeys(("tap_tx_ns", "tap_rx_ns", "log_recv_ns"), st.none() | instants),
    }
)


@settings(deadline=None)
@given(
    st.lists(asked, max_size=6, unique_by=lambda action: action["message_id"]),
    st.lists(handled, max_size=12),
    st.lists(interests, max_size=10, unique_by=lambda row: (row["node"], row["topic"])),
    st.lists(hop_rows, max_size=12),
    st.lists(st.fixed_dictionaries({"message_id": identifiers, "bucket": st.integers(0, 2)}), max_size=6),
    st.booleans(),
)
def test_messages_and_deliveries_are_what_loops_say(
    schedule: list[Row], events: list[Row], wanted: list[Row], copies: list[Row], mentions: list[Row], captured: bool
) -> None:
    covered = {
        action["message_id"]: list(covering_topics(action["expression"])) for action in schedule if action["expression"]
    }
    schedule = [action | {"topics": covered.get(action["message_id"], action["topics"])} for action in schedule]
    events = [event | {"topics": covered.get(event["message_id"], event["topics"])} for event in numbered(events)]
    with staged(interests=(wanted, INTEREST_SCHEMA)) as folder:
        told = [event for event in events if event["event"] in ("publish", "deliver")]
        data = [copy for copy in copies if copy["kind"] == Data.kind]
        made_by = {(event["message_id"], event["node"]): event for event in told if event["event"] == "deliver"}
        bounds = [
            {"message_id": message, "node": node, "earliest_ns": earliest_of(event)}
            for (message, node), event in made_by.items()
        ]
        several = (("told", told, TOLD), ("transmissions", data, TRANSMISSIONS), ("earliest", bounds, EARLIEST))
        for name, rows_of, schema in several:
            rows = pa.Table.from_pylist(rows_of, schema)
            stage_buckets(folder / name, rows, of_messages(rows["message_id"], 3), 3)
        lines = [action | {"action": "publish", "node": 0, "payload_bytes": 77} for action in schedule]
        lines = [line if line["expression"] else without([line], "expression")[0] for line in lines]
        other = {"at_ns": 0, "action": "join", "node": 1, "topic": 4}
        (folder / "planned").mkdir()
        stage_schedule([*lines, other] if schedule else [], folder / "planned", 3)
        noted = pa.Table.from_pylist(mentions, MENTIONS)
        stage_buckets(folder / "mentions", noted, of_messages(noted["message_id"], 3), 3)
        said = PublishedSources(*(folder / name for name in ("planned", "told", "mentions")))
        shares = all_shares(3)

        published: list[Row] = []

        def made(name: str, make: Any) -> list[Row]:
            [whole] = [piece[name] for piece in make(Share())]
            parts = [row for share in all_shares(3) for piece in make(share) for row in piece[name].to_pylist()]
            assert in_order(parts) == in_order(whole.to_pylist())
            with patch.object(table_shares, "PIECE_ROWS", 1):
                pieces = [piece[name] for piece in make(Share())]
            assert name == "published" or len(pieces) == max(len(published), 1)
            assert in_order([row for piece in pieces for row in piece.to_pylist()]) == in_order(whole.to_pylist())
            stage_buckets(folder / name, whole, of_messages(whole["message_id"], 3), 3)
            found: list[Row] = whole.to_pylist()
            return found

        names = ("told", "transmissions", "interests", "pairs", "published", "earliest")
        paths = {name: folder / name for name in names}
        sources = deliveries.DeliverySources(**paths, incomplete=INCOMPLETE, captured=captured, missing=frozenset())
        published = made("published", lambda share: [build_published(said, 5, share)])
        noted_pairs = {(row["message_id"], row["bucket"]) for row in mentions}
        sent = [
            (row["message_id"], bucket)
            for share in shares
            for bucket, rows in enumerate(build_published(said, 5, share)["contents"])
            for row in rows.to_pylist()
        ]
        assert sorted(sent) == sorted(
            pair for pair in noted_pairs if pair[0] in {message["message_id"] for message in published}
        )
        assert in_order(published) == in_order(expected_published(schedule, events))
        expected = made("deliveries", lambda share: deliveries.build_deliveries(sources, share))
        assert in_order(expected) == in_order(expected_deliveries(published, wanted, events, copies, captured))
        messages = made("messages", lambda share: deliveries.build_deliveries(sources, share))
        assert in_order(messages) == in_order([expected_spread(message, expected, copies) for message in published])
        numbered_ids = [row["message_id"] for row in messages]
        assert numbered_ids == sorted(numbered_ids)
        assert [row["message_id"] for row in expected] == sorted(row["message_id"] for row in expected)
        sent_copies = made("copies", lambda share: deliveries.build_deliveries(sources, share))
        kept = [{name: copy.get(name) for name in arrow_schema("copies").names} for copy in data]
        assert in_order(sent_copies) == in_order([copy for copy in kept if copy["message_id"] in numbered_ids])
        assert [row["message_id"] for row in sent_copies] == sorted(row["message_id"] for row in sent_copies)
