"""The kernels of nodes' times, subscriptions and links against loops over dictionaries, whole and in shares."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.checks.consistency import SETTLE, TOLD
from metrics.tables.agreement import compare_logical, proven_links, wire_links
from metrics.tables.interests import STARTERS, build_interests, build_uptimes
from metrics.tables.links import LINKS, PHYSICAL, build_links, build_physical_links, build_sharing
from metrics.tables.schemas import arrow_schema, schema_of
from metrics.tables.shares import Share, of_share
from metrics.tables.timespans import FOREVER, SECOND_NS
from metrics.tables.traces import EVENTS
from peer.trace import CRASHED, JOINED, LEFT

Row = dict[str, Any]

NODES, TOPICS = range(3), range(3)
END_NS = 12 * SECOND_NS
GRID = (2 * SECOND_NS, -1, 7)
SETTLE_NS = SECOND_NS
INTEREST = schema_of("node int, topic bigint, from_ns bigint, to_ns bigint, due_ns bigint")
COPIES = pa.schema(
    [
        *((name, pa.int32()) for name in ("src_node", "dst_node")),
        ("conn", pa.string()),
        ("topics", pa.list_(pa.int64())),
        *((name, pa.int64()) for name in ("log_send_ns", "tap_rx_ns", "log_recv_ns")),
    ]
)

nodes = st.sampled_from(NODES)
topics = st.sampled_from(TOPICS)
topic_lists = st.lists(topics, max_size=3, unique=True)
quarters = st.integers(0, 40).map(lambda count: count * SECOND_NS // 4)
said = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["join", "leave", "graft", "prune", "add_peer", "remove_peer", "deliver"]),
        "node": nodes,
        "peer": nodes,
        "ts_ns": quarters,
        "topics": topic_lists,
        "conn": st.sampled_from(["a", "b"]),
        "direction": st.sampled_from(["orig", "resp"]),
        "reason": st.none() | st.sampled_from([JOINED, LEFT, CRASHED, "other"]),
    }
)
traces = st.lists(said, max_size=25)
starters = st.fixed_dictionaries({"topics": topic_lists, "up": st.booleans()})
overlays = st.lists(starters, min_size=len(NODES), max_size=len(NODES))
spans = st.tuples(quarters, quarters).map(sorted)


def table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


def rows_of(found: pa.Table) -> list[str]:
    return sorted(map(str, found.to_pylist()))


def in_time(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["ts_ns"])


def alternate(changes: list[Row], keys: tuple[str, ...], begin: str, end_ns: int) -> list[Row]:
    """The rows that begin something, with ``next_ns``: when the next of the same keys comes."""
    found = []
    for number, row in enumerate(changes):
        later = (other for other in changes[number + 1 :] if all(other[key] == row[key] for key in keys))
        if row["event"] == begin:
            found.append(row | {"next_ns": next(later, {"ts_ns": end_ns})["ts_ns"]})
    return found


def exploded(rows: list[Row]) -> list[Row]:
    return [row | {"topic": topic} for row in rows for topic in row["topics"]]


def physical_of(events: list[Row]) -> list[Row]:
    changes = in_time([row for row in events if row["event"] in ("add_peer", "remove_peer")])
    return [
        {name: row[name] for name in ("node", "peer", "conn")}
        | {"opened": row["direction"] == "orig", "from_ns": row["ts_ns"], "to_ns": max(row["ts_ns"], row["next_ns"])}
        for row in alternate(changes, ("node", "peer", "conn"), "add_peer", END_NS)
    ]


def links_of(events: list[Row], physical: list[Row]) -> list[Row]:
    changes = exploded(in_time([row for row in events if row["event"] in ("graft", "prune")]))
    found = []
    for row in alternate(changes, ("node", "peer", "topic"), "graft", FOREVER):
        at_ns = row["ts_ns"]
        carriers = [
            link["to_ns"]
            for link in physical
            if (link["node"], link["peer"]) == (row["node"], row["peer"]) and link["from_ns"] <= at_ns <= link["to_ns"]
        ]
        to_ns = min(row["next_ns"], max(carriers, default=END_NS))
        found.append({name: row[name] for name in ("node", "peer", "topic")} | {"from_ns": at_ns, "to_ns": to_ns})
    return found


@given(traces)
@settings(deadline=None)
def test_links_of_the_traces(events: list[Row]) -> None:
    physical = build_physical_links(table(events, EVENTS), END_NS)
    expected = physical_of(events)
    assert rows_of(physical) == rows_of(table(expected, PHYSICAL))
    found = build_links(table(events, EVENTS), physical, END_NS)
    assert rows_of(found) == rows_of(table(links_of(events, expected), LINKS))
    parts = [of_share(table(events, EVENTS), "node", Share(number, 2)) for number in range(2)]
    links = [build_links(part, build_physical_links(part, END_NS), END_NS) for part in parts]
    assert rows_of(pa.concat_tables(links)) == rows_of(found)


@given(overlays, traces)
@settings(deadline=None)
def test_times_up_and_subscriptions_of_the_traces(overlay: list[Row], events: list[Row]) -> None:
    at_start = [{"node": node, **starter} for node, starter in enumerate(overlay)]
    changes = in_time(
        [
            row
            for row in events
            if (row["event"] == "join" and row["reason"] == JOINED)
            or (row["event"] == "leave" and row["reason"] in (LEFT, CRASHED))
        ]
    )
    begun = [{"event": "join", "node": row["node"], "ts_ns": 0} for row in at_start if row["up"]]
    expected = [
        {"node": row["node"], "from_ns": row["ts_ns"], "to_ns": row["next_ns"]}
        for row in alternate(in_time([*begun, *changes]), ("node",), "join", FOREVER)
    ]
    given_rows = table(at_start, STARTERS), table(events, EVENTS)
    assert rows_of(build_uptimes(*given_rows)) == sorted(map(str, expected))

    def due_ns(row: Row) -> int:
        joins = [
            other["ts_ns"]
            for other in events
            if (other["event"], other["reason"], other["node"]) == ("join", JOINED, row["node"])
            and other["ts_ns"] <= row["ts_ns"]
        ]
        return max([row["ts_ns"], *(at_ns + SETTLE_NS for at_ns in joins)])

    told = in_time([row for row in events if row["event"] in ("join", "leave")])
    subscribed = exploded([{"event": "join", "ts_ns": 0, "first": True, **row} for row in at_start])
    wanted = [
        {"node": row["node"], "topic": row["topic"], "from_ns": row["ts_ns"], "to_ns": row["next_ns"]}
        | {"due_ns": 0 if row.get("first") else due_ns(row)}
        for row in alternate(in_time([*subscribed, *exploded(told)]), ("node", "topic"), "join", FOREVER)
    ]
    assert rows_of(build_interests(*given_rows, SETTLE_NS)) == rows_of(table(wanted, INTEREST))


def lasts(row: Row, at_ns: int) -> bool:
    return row["from_ns"] <= at_ns < row["to_ns"]


lasting = st.lists(
    st.builds(
        lambda node, peer, topic, span: {
            "node": node, "peer": peer, "topic": topic, "conn": "a", "from_ns": span[0], "to_ns": span[1]
        },
        nodes, nodes, topics, spans,
    ),
    max_size=15,
)  # fmt: skip


@given(lasting, lasting, lasting)
@settings(deadline=None)
def test_views_at_every_second(logical: list[Row], physical: list[Row], up: list[Row]) -> None:
    zero_ns, first, last = GRID
    expected = []
    for k in range(first, last + 1):
        at_ns = zero_ns + k * SECOND_NS
        for node in NODES:
            here = [
                {(row["peer"], row["topic"]) for row in rows if row["node"] == node and lasts(row, at_ns)}
                for rows in (logical, physical, up)
            ]
            if here[2]:
                total, unique = len(here[0]), len({peer for peer, _ in here[0]})
                expected.append(
                    {"source": "wire", "at_ns": at_ns, "node": node, "view_size_total": total}
                    | {"view_size_unique": unique, "degree": len({peer for peer, _ in here[1]})}
                    | {"link_sharing_ratio": total / unique if unique else None}
                )
    given_rows = table(logical, LINKS), table(physical, PHYSICAL), table(up, LINKS)
    found = build_sharing("wire", *given_rows, GRID)
    assert rows_of(found) == rows_of(table(expected, arrow_schema("sharing")))


copies = st.lists(
    st.fixed_dictionaries(
        {
            "src_node": nodes,
            "dst_node": nodes,
            "conn": st.just("a"),
            "topics": topic_lists,
            "log_send_ns": st.none() | quarters,
            "tap_rx_ns": quarters,
            "log_recv_ns": st.none() | quarters,
        }
    ),
    max_size=15,
)


def proven_of(copies: list[Row], interests: list[Row]) -> list[Row]:
    found = []
    for copy in copies:
        sent_ns, read_ns = (
            copy["tap_rx_ns"] if copy[at] is None else copy[at] for at in ("log_send_ns", "log_recv_ns")
        )
        shared = [
            topic
            for topic in copy["topics"]
            if all(
                any(
                    (row["node"], row["topic"]) == (node, topic) and row["from_ns"] <= at_ns < row["to_ns"]
                    for row in interests
                )
                for node, at_ns in ((copy["src_node"], sent_ns), (copy["dst_node"], read_ns))
            )
        ]
        if len(shared) == 1:
            named = {"node": copy["src_node"], "peer": copy["dst_node"], "topic": shared[0], "conn": "a"}
            named["told"] = any(
                (row["node"], row["topic"]) == (copy["dst_node"], shared[0])
                and row["from_ns"] <= sent_ns - TOLD.ns
                and read_ns < row["to_ns"]
                for row in interests
            )
            found.append(named | {name: copy[name] for name in ("log_send_ns", "tap_rx_ns", "log_recv_ns")})
    return found


@given(copies, lasting, lasting, st.sets(nodes, max_size=1))
@settings(deadline=None)
def test_links_that_copies_show(
    copies: list[Row], interests: list[Row], links: list[Row], incomplete: set[int]
) -> None:
    proven = proven_links(table(copies, COPIES), table(interests, INTEREST))
    expected = proven_of(copies, interests)
    assert rows_of(proven) == sorted(map(str, [{name: row[name] for name in proven.column_names} for row in expected]))

    used = []
    for link in links:
        first = [
            row["tap_rx_ns"]
            for row in expected
            if {row["node"], row["peer"]} == {link["node"], link["peer"]} and row["topic"] == link["topic"]
            and link["from_ns"] <= row["tap_rx_ns"] < link["to_ns"]
        ]  # fmt: skip
        if first:
            used.append({name: link[name] for name in LINKS.names} | {"from_ns": min(first)})
    assert rows_of(wire_links(proven, table(links, LINKS))) == rows_of(table(used, LINKS))

    shown, wrong = set(), set()
    for row in expected:
        sent_ns = row["log_send_ns"]
        if sent_ns is None or {row["node"], row["peer"]} & incomplete or not row["told"]:
            continue
        read_ns = row["tap_rx_ns"] if row["log_recv_ns"] is None else row["log_recv_ns"]
        link = row["node"], row["peer"], row["topic"]
        shown.add(link)
        sender = any(
            (other["node"], other["peer"], other["topic"]) == link and other["from_ns"] <= sent_ns <= other["to_ns"]
            for other in links
        )
        receiver = any(
            (other["peer"], other["node"], other["topic"]) == link
            and other["from_ns"] <= read_ns + SETTLE.ns
            and sent_ns <= other["to_ns"] + TOLD.ns
            for other in links
        )
        if not sender and not receiver:
            wrong.add(link)
    found = compare_logical(proven, table(links, LINKS), sorted(incomplete))
    assert (found.tested, found.failed) == (len(shown), len(wrong))
