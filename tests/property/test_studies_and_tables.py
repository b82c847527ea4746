"""A study and the tables of a run find the same deliveries in the same events."""

import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.studies.observer import Watch, sum_up
from metrics.measures.deliveries import Deliveries
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.deliveries import DeliverySources, build_deliveries
from metrics.tables.earliest import EARLIEST
from metrics.tables.interests import INTERESTS, STARTERS, build_interests
from metrics.tables.published import PUBLISHED
from metrics.tables.shares import Share
from metrics.tables.traces import EVENTS, TOLD
from peer.core.addressing.keywords import covering_topics
from peer.core.bitset import bitset
from peer.core.contract import Message
from peer.core.schedule import Population
from peer.trace import TraceEvent
from tests.examples import examples
from tests.traced_changes import NODES, TOPICS, History, histories

Row = dict[str, Any]

SETTLE_NS = 3
nodes = st.sampled_from(NODES)
instants = st.integers(1, 12)
publications = st.lists(
    st.tuples(
        nodes,
        instants,
        st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True),
        st.none() | st.sampled_from(["a", "a&b", "b&d|c"]),
    ),
    min_size=1,
    max_size=4,
)
receipts = st.lists(st.tuples(st.integers(0, 3), nodes, st.integers(0, 5), st.integers(1, 4)), max_size=20)
"""The place of the message, the node, how long after the publication, and the links that the copy crossed."""


def publish(drawn: list[tuple[int, int, list[int], str | None]]) -> list[Row]:
    """The rows of ``PUBLISHED``."""
    return [
        {
            "message_id": publisher << 32 | number,
            "topics": list(covering_topics(text)) if text else topics,
            "publisher": publisher,
            "publish_ns": at_ns,
            "expression": text,
        }
        for number, (publisher, at_ns, topics, text) in enumerate(drawn)
    ]


def study(history: History, messages: list[Row], told: list[Row], bad: int) -> Deliveries:
    """What the observer of a study counts. Of an instant it takes changes, then publications, then deliveries."""
    up = {node: topics for node, topics in enumerate(history.starters) if topics is not None}
    expressions = {message["message_id"]: message["expression"] for message in messages if message["expression"]}
    watch = Watch(Population(up), bad, None, settle_ns=SETTLE_NS, expressions=expressions)
    published = ({**message, "event": "publish", "ts_ns": message["publish_ns"]} for message in messages)
    for row in sorted(chain(history.changes, published, told), key=lambda row: int(row["ts_ns"])):
        if row["event"] == "deliver":
            message = Message(row["message_id"], tuple(row["topics"]), b"", row["hops"])
            watch.deliver(row["ts_ns"], row["node"], message)
        else:
            node, topics = row.get("node", row.get("publisher")), tuple(row["topics"])
            identity, reason = row.get("message_id"), row.get("reason")
            event = TraceEvent(row["event"], row["ts_ns"], node, message_id=identity, topics=topics, reason=reason)
            watch.trace(event)
    return sum_up(watch.batches)


def tabulate(history: History, messages: list[Row], told: list[Row], folder: Path) -> list[Row]:
    """The rows of the table ``deliveries``."""
    starters = pa.Table.from_pylist(history.starter_rows(), STARTERS)
    events = pa.Table.from_pylist(history.change_rows(), EVENTS)
    tables = {
        "told": pa.Table.from_pylist(told, TOLD),
        "transmissions": TRANSMISSIONS.empty_table(),
        "interests": build_interests(starters, events, SETTLE_NS).cast(INTERESTS),
        "published": pa.Table.from_pylist(messages, PUBLISHED),
        "earliest": EARLIEST.empty_table(),
    }
    for name, table in tables.items():
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "part-0.parquet")
    (folder / "pairs").mkdir()
    np.save(folder / "pairs" / "delay_ms.npy", np.full((1, 1), np.nan))
    places = {name: folder / name for name in (*tables, "pairs")}
    sources = DeliverySources(**places, incomplete=(), captured=False, missing=frozenset())
    return [row for piece in build_deliveries(sources, Share()) for row in piece["deliveries"].to_pylist()]


@settings(deadline=None, max_examples=examples(60))
@given(histories(instants), publications, receipts, st.sets(nodes, max_size=2))
def test_a_study_and_the_table_count_the_same_deliveries(
    history: History, drawn: list[Any], received: list[tuple[int, int, int, int]], bad: set[int]
) -> None:
    messages = publish(drawn)
    told = []
    for place, node, later_ns, hops in received:
        message = messages[place % len(messages)]
        row = {"event": "deliver", "node": node, "ts_ns": message["publish_ns"] + later_ns, "hops": hops}
        told.append(row | {"message_id": message["message_id"], "topics": message["topics"]})
    found = study(history, messages, told, bitset(bad))
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for row in tabulate(history, messages, told, Path(folder)) if row["node"] not in bad]
    made = [row for row in rows if row["delivered_ns"] is not None]
    assert (found.messages, found.expected, found.delivered) == (len(messages), len(rows), len(made))
    assert sorted(found.delays_ms.tolist()) == sorted(row["latency_ms"] for row in made)
    assert found.repeated == sum(row["repeats"] for row in rows)
    assert found.hops.sum() == sum(row["hops"] for row in made)
