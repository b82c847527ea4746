"""Lines between a program and its driver: what is written is read, and nothing that a program writes does harm."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peer.core import contract
from peer.lines import MAX_LINE_BYTES, MAX_NUMBER, OPTIONS, REPORTS, LineError, Report, Splitter, parse_report
from peer.runtime.conversation import Conversation
from peer.trace import EVENTS, TraceEvent
from tests.property.test_wire_codec import cut

NOW_NS, NODES = 1_000, 6
MESSAGES = {7: (2,), 8: (3,)}
EVERYTHING = ("duplicate", "link", "graft")
numbers = st.integers(0, MAX_NUMBER)


@st.composite
def reports(draw: st.DrawFn) -> tuple[str, Report]:
    """A line, and the report that it is."""
    verb = draw(st.sampled_from(sorted(REPORTS)))
    fields = {name: draw(numbers) for name in REPORTS[verb]}
    words = [verb, *map(str, fields.values())]
    for option in draw(st.permutations(sorted(OPTIONS))):
        field, verbs = OPTIONS[option]
        if verb in verbs and draw(st.booleans()):
            fields[field] = draw(numbers)
            words.append(f"{option}={fields[field]}")
    return " ".join(words), Report(verb, **fields)


@given(reports())
def test_a_report_is_read_as_it_was_written(written: tuple[str, Report]):
    line, report = written
    assert parse_report(line.encode()) == report


@given(
    st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=9),
    st.lists(st.integers(0, 400)),
)
def test_lines_do_not_depend_on_how_they_arrive(lines: list[bytes], places: list[int]):
    splitter = Splitter()
    pieces = cut(b"".join(line + b"\n" for line in lines) + b"rest", places)
    assert [line for piece in pieces for line in splitter.feed(piece)] == lines


@given(st.integers(1, 3), st.integers(0, 50))
def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(times: int, more: int):
    splitter = Splitter()
    assert splitter.feed(b"x" * (MAX_LINE_BYTES - 1)) == []
    with pytest.raises(LineError, match="a line has at most 1,024 bytes"):
        splitter.feed(b"x" * (times + more))


WRONG = {
    b"": "expected one of ready, publish",
    b"dance 1": "expected one of ready",
    b"deliver": "expected deliver MESSAGE_ID",
    b"graft 1": "expected graft PEER TOPIC",
    b"deliver -1": "expected a number from 0",
    b"deliver 1.0": "expected a number from 0",
    b"deliver 9223372036854775808": "expected a number from 0",
    b"deliver  1": "expected a number from 0",
    b"deliver 1 2": "deliver has no option '2'",
    b"deliver 1 from": "deliver has no option 'from'",
    b"publish 1 from=2": "publish has no option 'from'",
    b"deliver 1 hops=1 hops=2": "hops is there twice",
    b"link 1 ts_ns=": "expected a number from 0",
    b"deliver \xff": "lines are ASCII",
    b"ready\r": "expected one of ready",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_refused_with_its_problem(line: bytes):
    with pytest.raises(LineError) as refused:
        parse_report(line)
    assert WRONG[line] in str(refused.value)


# ------------------------------------------------------------------------------------------------- conversations


def converse(says: tuple[str, ...] = EVERYTHING) -> Conversation:
    return Conversation(1, (2,), says, MESSAGES, NODES, 0, lambda ns: ns // 2)


def ready(says: tuple[str, ...] = EVERYTHING) -> Conversation:
    conversation = converse(says)
    assert conversation.hear(b"ready\n", NOW_NS) == (b"subscribe 2\n", [])
    return conversation


def tell(conversation: Conversation, *lines: str) -> list[TraceEvent]:
    written, events = conversation.hear("".join(f"{line}\n" for line in lines).encode(), NOW_NS)
    assert written == b""
    return events


def publish(message_id: int) -> contract.Publish:
    return contract.Publish(MESSAGES[message_id], message_id, bytes(30))


def test_orders_wait_until_the_program_is_ready_and_keep_their_order():
    conversation = converse()
    assert conversation.connect(3, "10.0.0.4", 9000) == b""
    assert conversation.order(publish(7), NOW_NS) == (b"", [])
    written, _ = conversation.hear(b"ready\n", NOW_NS)
    assert written == b"subscribe 2\nconnect 3 10.0.0.4 9000\npublish 7 2 30\n"
    assert conversation.order(contract.Subscribe(5), 9) == (
        b"subscribe 5\n",
        [TraceEvent("join", 9, 1, topics=(5,))],
    )
    assert conversation.order(contract.Unsubscribe(2), 9) == (
        b"unsubscribe 2\n",
        [TraceEvent("leave", 9, 1, topics=(2,))],
    )
    assert conversation.end(10, "left") == [TraceEvent("leave", 10, 1, topics=(5,), reason="left")]


def test_reports_become_trace_events():
    conversation = ready()
    conversation.order(publish(7), NOW_NS)
    assert tell(
        conversation,
        "publish 7",
        "deliver 8 from=2 hops=3 ts_ns=1500",
        "duplicate 8",
        "link 2",
        "graft 2 3",
        "graft 4 2",
    ) == [
        TraceEvent("publish", NOW_NS, 1, message_id=7, topics=(2,), len_bytes=30),
        TraceEvent("deliver", 750, 1, 2, message_id=8, topics=(3,), hops=3),
        TraceEvent("duplicate", NOW_NS, 1, message_id=8, topics=(3,)),
        TraceEvent("add_peer", NOW_NS, 1, 2),
        TraceEvent("graft", NOW_NS, 1, 2, topics=(3,)),
        TraceEvent("graft", NOW_NS, 1, 4, topics=(2,)),
    ]
    assert tell(conversation, "prune 4 2") == [TraceEvent("prune", NOW_NS, 1, 4, topics=(2,))]
    assert conversation.end(2_000, "crashed") == [
        TraceEvent("prune", 2_000, 1, 2, topics=(3,), reason="crashed"),
        TraceEvent("leave", 2_000, 1, topics=(2,), reason="crashed"),
        TraceEvent("remove_peer", 2_000, 1, 2, reason="crashed"),
    ]


FALSE = {
    "ready": "reported 'ready' twice",
    "publish 7": "reported that it published message 7, without an order or for the second time",
    "deliver 9": "reported message 9, which the schedule does not have",
    "deliver 7 from=6": "reported node 6 as its neighbour; nodes are 0 to 5",
    "link 1": "reported node 1 as its neighbour",
    "unlink 2": "reported the end of a link to node 2, which does not exist",
    "link 2\nlink 2": "reported the beginning of a link to node 2, which exists already",
    "graft 2 3\ngraft 2 3": "reported the beginning of a link to node 2 on topic 3, which exists already",
    "deliver 7 ts_ns=2002": "reported ts_ns=2002, which is not between its start and now",
}


@pytest.mark.parametrize("lines", FALSE)
def test_what_no_honest_program_reports_is_refused(lines: str):
    with pytest.raises(LineError) as refused:
        tell(ready(), lines)
    assert FALSE[lines] in str(refused.value)


def test_a_publication_is_reported_once():
    conversation = ready()
    conversation.order(publish(7), NOW_NS)
    with pytest.raises(LineError, match="for the second time"):
        tell(conversation, "publish 7", "publish 7")


def test_nothing_comes_before_ready():
    with pytest.raises(LineError, match="reported 'deliver' before 'ready'"):
        converse().hear(b"deliver 7\n", NOW_NS)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("duplicate 7", "duplicate"),
        ("link 2", "link"),
        ("unlink 2", "link"),
        ("graft 2 3", "graft"),
        ("prune 2 3", "graft"),
    ],
)
def test_a_program_reports_only_what_it_says(line: str, what: str):
    others = tuple(each for each in EVERYTHING if each != what)
    with pytest.raises(LineError, match=f"peer.says lacks '{what}'"):
        tell(ready(others), line)


@given(st.lists(reports().map(lambda written: written[0].encode()) | st.binary(max_size=60), max_size=12))
@example([b"deliver 8", b"link 2", b"unlink 2", b"link 2"])
def test_whatever_a_program_writes_is_traced_soundly_or_refused(lines: list[bytes]):
    conversation = ready()
    events: list[TraceEvent] = []
    try:
        for line in lines:
            events += conversation.hear(line + b"\n", NOW_NS)[1]
    except LineError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 500
    assert {event.event for event in events} <= EVENTS.keys()
    assert {event.node for event in events} <= {1}
    ups = [
        event.event == "add_peer" for event in events if event.event in ("add_peer", "remove_peer") and event.peer == 2
    ]
    assert ups == [k % 2 == 0 for k in range(len(ups))]
