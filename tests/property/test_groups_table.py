"""The kernel of the table ``groups`` against loops over dictionaries."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.measures.steiner import bound_tree, shortest_paths
from metrics.tables.deliveries import PUBLISHED
from metrics.tables.groups import GroupSources, build_groups
from metrics.tables.interests import STARTERS
from metrics.tables.schemas import OPTIONAL, arrow_schema
from metrics.tables.traces import CHANGES, EVENTS, HANDLED, TOLD, describe_copies
from peer.core.addressing.expression import parse
from peer.core.addressing.keywords import keywords, terms_of_topics
from peer.core.frames import Data
from tests.examples import examples
from tests.traced_changes import NODES, History, histories
from topologies.network import AskedOfPairs, Network, uniform_network

Row = dict[str, Any]

DELAY_MS = np.array([[0 if a == b else 1.0 + (3 * a + 5 * b) % 7 for b in NODES] for a in NODES])

nodes = st.sampled_from(NODES)
instants = st.integers(0, 9)
messages = st.fixed_dictionaries(
    {
        "publisher": nodes,
        "scheduled_ns": instants,
        "publish_ns": st.none() | instants,
        "expression": st.none() | st.sampled_from(["a", "a&b", "b&d|c", "(a|b)&(c|d)", "a&b&c|d", "f|a"]),
    }
)
taken = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["deliver", "relay", "duplicate", "publish"]),
        "node": nodes,
        "peer": st.none() | nodes,
        "message_id": st.integers(0, 3),
    }
)
copies = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([1, Data.kind]),
        "message_id": st.none() | st.integers(0, 4),
        "dst_node": nodes,
        "at_relay": st.none() | st.booleans(),
        "asked_delay_ms": st.sampled_from([1.0, 2.5]),
    }
)


def rate(attributes: int, lacking: tuple[int, ...]) -> float:
    return attributes + sum(100**place * count for place, count in enumerate(sorted(lacking), 1))


def expected(published: list[Row], events: list[Row], history: History, hops: list[Row], honest: set[int]) -> list[Row]:
    rows = []
    for number, message in enumerate(published):
        if message["expression"] is None:
            continue
        at_ns = message["scheduled_ns"] if message["publish_ns"] is None else message["publish_ns"]

        def topics(node: int, at_ns: int) -> set[int]:
            return history.held(node, at_ns) or set()

        def satisfies(node: int, at_ns: int, text: str = message["expression"]) -> bool:
            return parse(text).matches(keywords(topics(node, at_ns)))

        others = honest - {message["publisher"]}
        group = {node for node in others if satisfies(node, at_ns)}
        mine = [row for row in events if row["message_id"] == number]
        handed: dict[int, int] = {}
        for row in mine:
            if row["event"] == "deliver" and row["node"] in others:
                handed.setdefault(row["node"], row["ts_ns"])
        relays = {row["node"] for row in mine if row["event"] == "relay" and row["peer"] is not None} & others
        alive = {node for node in NODES if history.held(node, at_ns) is not None}
        late = {node for node in handed.keys() - group if satisfies(node, handed[node])}
        outside = (others & alive) - group
        arrived = [
            hop
            for hop in hops
            if hop["kind"] == Data.kind
            and hop["message_id"] == number
            and hop["at_relay"] is not None
            and hop["dst_node"] in honest
        ]
        lacks = {
            node: tuple(len(term - topics(node, at_ns)) for term in terms_of_topics(message["expression"]))
            for node in outside
        }
        rows.append(
            {
                "message_id": number,
                "expression": message["expression"],
                "members": len(group),
                "reached": len(group & handed.keys()),
                "latecomers": len(late),
                "false_positives": len(handed.keys() - group - late),
                "false_positives_predicted": sum(rate(len(topics(node, at_ns)), lacks[node]) for node in outside),
                "relays": len(relays - group - handed.keys()),
                "others": len(outside),
                "copies": len(arrived),
                "delay_ms": sum(hop["asked_delay_ms"] for hop in arrived),
                "bound_ms": bound_tree(
                    shortest_paths(DELAY_MS), [message["publisher"], *sorted(group & handed.keys())]
                ),
            }
        )
    return rows


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(messages, max_size=4),
    st.lists(taken, max_size=15),
    histories(instants),
    st.lists(copies, max_size=12),
    st.sets(nodes, max_size=2),
)
def test_groups_are_what_loops_say(
    published: list[Row], events: list[Row], history: History, hops: list[Row], bad: set[int]
) -> None:
    events = [event | {"ts_ns": at_ns} for at_ns, event in enumerate(events)]
    about = [row for row in events if row["event"] != "publish"]
    with tempfile.TemporaryDirectory() as folder:

        def staged(name: str, rows: list[Row], schema: pa.Schema) -> Path:
            path = Path(folder) / name
            path.mkdir()
            pq.write_table(pa.Table.from_pylist(rows, schema), path / "part-0.parquet")
            return path

        sources = GroupSources(
            published=staged("published", [row | {"message_id": n} for n, row in enumerate(published)], PUBLISHED),
            told=staged("told", [row for row in events if row["event"] in ("publish", "deliver")], TOLD),
            handled=staged("handled", describe_copies(pa.Table.from_pylist(about, EVENTS)).to_pylist(), HANDLED),
            hops=staged("hops", hops, arrow_schema("hops")),
            starters=pa.Table.from_pylist(history.starter_rows(), STARTERS),
            changes=staged("changes", history.change_rows(), CHANGES),
        )
        run: Any = SimpleNamespace(
            nodes=list(NODES),
            plan=SimpleNamespace(placement=[SimpleNamespace(node=node, host=node) for node in NODES]),
            network=Network.of_pairs(AskedOfPairs(DELAY_MS, *np.zeros((2, *DELAY_MS.shape)))),
        )
        found = build_groups(run, sources, frozenset(bad), rate)
        silent = build_groups(run, sources, frozenset(bad), None)
        run.network = uniform_network(1001, 1.0)
        large = build_groups(run, sources, frozenset(bad), rate)
    assert found.schema == arrow_schema("groups")
    assert found.column_names == list(OPTIONAL["groups"])
    rows = expected(published, events, history, hops, set(NODES) - bad)
    assert found.to_pylist() == rows
    assert silent.to_pylist() == [row | {"false_positives_predicted": None} for row in rows]
    assert large.to_pylist() == [row | {"bound_ms": None} for row in rows]
