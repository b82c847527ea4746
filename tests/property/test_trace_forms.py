"""Traces of other programs: what is written is read again, any bytes are refused in words, kernels agree with loops."""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.tables.traces import CHANGES, FRAMES, TOLD
from metrics.trace_forms import protobuf, pubsub
from metrics.trace_forms.events import CutOffError, Event, TraceError
from metrics.trace_forms.numbering import Names
from metrics.trace_forms.protobuf import Field
from metrics.trace_forms.tables import find_starters, pair_copies
from peer.core.frames import Data, Subscriptions

INNER = {1: Field("name", "text"), 15: Field("flag", "bool")}
SCHEMA = {
    1: Field("number", "int"),
    2: Field("raw", "bytes"),
    3: Field("words", "text", repeated=True, alone="word"),
    16: Field("inner", INNER),
    2047: Field("inners", INNER, repeated=True),
}
INNERS = st.fixed_dictionaries({}, optional={"name": st.text(max_size=5), "flag": st.booleans()})
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "number": st.integers(-(2**63), 2**63 - 1),
        "raw": st.binary(max_size=200),
        "words": st.lists(st.text(max_size=5), min_size=2, max_size=4),
        "inner": INNERS,
        "inners": st.lists(INNERS, min_size=1, max_size=3),
    },
) | st.builds(lambda word: {"word": word}, st.text(max_size=5))

NAMES = st.binary(min_size=1, max_size=6)
TOPICS = st.text(st.characters(codec="utf-8"), max_size=4)
TOPIC = st.tuples(TOPICS)
MAYBE = NAMES | st.none()


def events(*names: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    return st.builds(Event, st.sampled_from(names), st.integers(0, 2**60), NAMES, **fields)


def frames(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    return events("send", "receive", "drop", peer=NAMES, **fields)


EVENTS = (
    events("publish", message=NAMES, topics=st.lists(TOPICS, min_size=1, max_size=3).map(tuple))
    | events("deliver", "duplicate", peer=MAYBE, message=NAMES, topics=TOPIC | st.none())
    | events("reject", peer=MAYBE, message=NAMES, reason=st.text(max_size=5))
    | events("join", "leave", topics=TOPIC)
    | events("graft", "prune", peer=NAMES, topics=TOPIC)
    | events("add_peer", "remove_peer", peer=NAMES)
    | frames(message=NAMES, topics=TOPIC, kind=st.just(Data.kind))
    | frames(kind=st.sampled_from([Subscriptions.kind, *pubsub.CONTROL_KINDS.values()]))
)


@given(MESSAGES)
def test_a_message_is_decoded_as_it_was_encoded(message: dict[str, Any]) -> None:
    assert protobuf.decode(protobuf.encode(message, SCHEMA), SCHEMA) == message


@given(st.binary(max_size=60))
@settings(max_examples=500)
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        found = protobuf.decode(data, SCHEMA)
    except ValueError:
        return
    assert protobuf.decode(protobuf.encode(found, SCHEMA), SCHEMA) == found


@given(EVENTS.filter(lambda event: event.peer != event.node))
@settings(max_examples=300)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    made = pubsub.make(event)
    assert made is not None
    for again in (pubsub.from_json(pubsub.to_json(made)), pubsub.from_protobuf(pubsub.to_protobuf(made))):
        assert again == made
        assert [*pubsub.tell(again, "")] == [event]


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda data: b'{"' + data))
@settings(max_examples=300)
def test_any_file_is_read_or_refused_in_words(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(content)
        try:
            assert all(isinstance(event, Event) for event in pubsub.read_events(path))
        except TraceError as error:
            assert str(path) in str(error)
        except CutOffError:
            pass


@given(st.lists(EVENTS, min_size=1, max_size=12))
def test_different_names_have_different_numbers(told: list[Event]) -> None:
    names = Names()
    for event in told:
        names.learn(event)
    names.settle()
    for numbers in (names.nodes, names.topics, names.messages):
        assert len({*numbers.values()}) == len(numbers)
    assert sorted(names.nodes.values()) == [*range(len(names.nodes))]
    published = [event.message for event in told if event.event == "publish"]
    for event in told:
        line = names.number(event)
        assert names.nodes[event.node] == line.node
        assert (line.peer is None) == (event.peer is None)
        if event.event == "publish" and published.count(event.message) == 1:
            assert line.message_id is not None
            assert line.message_id >> 32 == line.node


FRAME = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["send", "receive"]),
        "node": st.integers(0, 2),
        "peer": st.integers(0, 2),
        "message_id": st.integers(0, 1),
        "ts_ns": st.integers(0, 9),
    }
)


@given(st.lists(FRAME, max_size=20))
def test_copies_of_both_ends_are_paired_in_the_order_of_time(frames: list[dict[str, Any]]) -> None:
    seen: dict[Any, dict[str, list[int]]] = defaultdict(lambda: {"send": [], "receive": []})
    for frame in frames:
        ends = (frame["node"], frame["peer"]) if frame["event"] == "send" else (frame["peer"], frame["node"])
        seen[frame["message_id"], *ends][frame["event"]].append(frame["ts_ns"])
    expected = []
    for key, times in seen.items():
        sent, received = sorted(times["send"]), sorted(times["receive"])
        for copy in range(max(len(sent), len(received))):
            expected.append((*key, *(each[copy] if copy < len(each) else None for each in (sent, received))))
    found = pair_copies(pa.Table.from_pylist(frames, FRAMES)).to_pylist()
    names = ("message_id", "src_node", "dst_node", "log_send_ns", "log_recv_ns")
    assert sorted((tuple(row[name] for name in names) for row in found), key=repr) == sorted(expected, key=repr)


HEARD = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["publish", "deliver"]),
        "node": st.integers(0, 2),
        "message_id": st.sampled_from([publisher << 32 for publisher in range(3)]),
        "topics": st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True),
        "ts_ns": st.integers(0, 9),
    }
)
CHANGE = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["join", "leave", "graft"]),
        "node": st.integers(0, 2),
        "topics": st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True),
        "ts_ns": st.integers(0, 9),
    }
)


@given(st.lists(HEARD, max_size=10), st.lists(CHANGE, max_size=10))
def test_starters_are_shown_before_any_join(heard: list[dict[str, Any]], changes: list[dict[str, Any]]) -> None:
    def first(rows: list[dict[str, Any]], node: int, topic: int) -> int:
        return min((row["ts_ns"] for row in rows if row["node"] == node and topic in row["topics"]), default=99)

    shows = [row for row in heard if row["event"] == "deliver" and row["node"] != row["message_id"] >> 32]
    shows += [row for row in changes if row["event"] == "leave"]
    joins = [row for row in changes if row["event"] == "join"]
    pairs = ((node, topic) for node in range(3) for topic in range(3))
    expected = {pair for pair in pairs if first(shows, *pair) < first(joins, *pair)}
    found = find_starters(pa.Table.from_pylist(heard, TOLD), pa.Table.from_pylist(changes, CHANGES)).to_pylist()
    assert sorted((row["node"], topic) for row in found for topic in row["topics"]) == sorted(expected)
