"""The nodes that are up and their topics, event by event, against plain loops and against the intervals of tables."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.facts.population import TracedPopulation
from metrics.tables.groups import Replay
from metrics.tables.interests import STARTERS, build_interests, build_uptimes
from metrics.tables.traces import EVENTS
from peer.core.addressing.expression import parse
from peer.core.addressing.keywords import keywords
from peer.core.bitset import members
from peer.trace import TraceEvent
from tests.examples import examples
from tests.traced_changes import NODES, TOPICS, History, histories

SETTLE_NS = 3
LAST_NS = 12


def population(history: History, at_ns: int) -> TracedPopulation:
    up = {node: topics for node, topics in enumerate(history.starters) if topics is not None}
    found = TracedPopulation(up, SETTLE_NS)
    for row in history.changes:
        if row["ts_ns"] <= at_ns:
            topics = tuple(row["topics"])
            found.take(TraceEvent(row["event"], row["ts_ns"], row["node"], topics=topics, reason=row["reason"]))
    return found


def held(history: History, at_ns: int) -> dict[int, set[int]]:
    """The topics of every node that is up."""
    return {node: topics for node in NODES if (topics := history.held(node, at_ns)) is not None}


@settings(deadline=None, max_examples=examples(100))
@given(histories(st.integers(1, LAST_NS)), st.integers(0, LAST_NS), st.sets(st.sampled_from(TOPICS)))
def test_the_audience_of_a_message_is_what_loops_say(history: History, at_ns: int, topics: set[int]) -> None:
    found, nodes = population(history, at_ns), held(history, at_ns)
    assert [*members(found.up)] == sorted(nodes)
    assert [*members(found.find_audience(topics, None))] == [node for node, own in nodes.items() if own & topics]
    for text in ("a", "a&b", "a&c|b&d"):
        satisfying = [node for node, own in nodes.items() if parse(text).matches(keywords(own))]
        assert [*members(found.find_audience(topics, text))] == satisfying
    joined_ns = {node: history.joined_ns(node, at_ns) for node in NODES}
    assert found.joined_ns == {node: joined for node, joined in joined_ns.items() if joined is not None}
    unsettled = [node for node, joined in found.joined_ns.items() if joined + SETTLE_NS > at_ns]
    assert [*members(found.find_unsettled(at_ns))] == sorted(unsettled)
    for topic in TOPICS:
        ever = {node for instant in range(at_ns + 1) for node, own in held(history, instant).items() if topic in own}
        then = {row["node"] for row in history.changes if row["ts_ns"] <= at_ns and topic in (row["then"] or ())}
        assert {*members(found.ever.get(topic, 0))} == ever | then, "a subscription may last for no time at all"


@settings(deadline=None, max_examples=examples(100))
@given(histories(st.integers(1, LAST_NS)))
def test_the_intervals_of_tables_are_the_same_population(history: History) -> None:
    starters = pa.Table.from_pylist(history.starter_rows(), STARTERS)
    events = pa.Table.from_pylist(history.change_rows(), EVENTS)
    uptimes = build_uptimes(starters, events).to_pylist()
    interests = build_interests(starters, events, SETTLE_NS).to_pylist()
    replay = Replay(starters, events, NODES)
    for at_ns in range(LAST_NS + 1):
        found = population(history, at_ns)
        assert {*members(found.up)} == {row["node"] for row in uptimes if row["from_ns"] <= at_ns < row["to_ns"]}
        unsettled = found.find_unsettled(at_ns)
        for topic in TOPICS:
            rows = [row for row in interests if row["topic"] == topic and at_ns < row["to_ns"]]
            subscribers = found.subscribers.get(topic, 0)
            assert {*members(subscribers)} == {row["node"] for row in rows if row["from_ns"] <= at_ns}
            assert {*members(subscribers & ~unsettled)} == {row["node"] for row in rows if row["due_ns"] <= at_ns}
        replayed = replay.advance(at_ns)
        assert replayed.up == found.up
        assert all(replayed.subscribers.get(topic, 0) == found.subscribers.get(topic, 0) for topic in TOPICS)
