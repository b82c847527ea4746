"""Lines of JSON of gossipsub-interop: the dialects of its programs are read alike, and nothing printed does harm."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.interop.output import TOLERANCE_NS, Identity, Placing, Receipt, read_line
from peer.lines import LineError
from peer.rfc3339 import PrintedTime, parse_time

SECOND_NS = 1_000_000_000
epochs_ns = st.integers(0, 4_000_000_000 * SECOND_NS)
numbers = st.integers(0, 2**64 - 1)
names = st.text(min_size=1, max_size=20)


def print_time(epoch_ns: int, digits: int, minutes: int | None, short: bool = False) -> str:
    """The time with so many digits, in a zone or as Z (None); ``short``: without zeros at the end."""
    zone = UTC if minutes is None else timezone(timedelta(minutes=minutes))
    whole = datetime.fromtimestamp(epoch_ns // SECOND_NS, zone).strftime("%Y-%m-%dT%H:%M:%S%z")
    fraction = f"{epoch_ns % SECOND_NS:09d}"[:digits]
    fraction = fraction.rstrip("0") if short else fraction
    offset = "Z" if minutes is None else f"{whole[-5:-2]}:{whole[-2:]}"
    return whole[:-5] + (f".{fraction}" if fraction else "") + offset


@given(epochs_ns, st.integers(0, 9), st.none() | st.integers(-1439, 1439), st.booleans())
def test_a_time_is_read_to_its_last_digit(epoch_ns: int, digits: int, minutes: int | None, short: bool) -> None:
    text = print_time(epoch_ns, digits, minutes, short)
    time = parse_time(text)
    assert time.epoch_ns == epoch_ns // 10 ** (9 - digits) * 10 ** (9 - digits)
    assert time.epoch_ns <= epoch_ns < time.epoch_ns + 10 ** (9 - digits) <= time.epoch_ns + time.resolution_ns


@given(st.text(max_size=40))
def test_other_texts_are_no_times(text: str) -> None:
    try:
        parse_time(text)
    except ValueError as error:
        assert "\n" not in str(error)


DIALECTS: dict[str, tuple[int, int | None, type, tuple[str, ...], tuple[str, ...]]] = {
    "go": (9, 120, int, ("from", "topic"), ("from", "topic")),
    "rust": (9, None, str, ("from", "topic"), ()),
    "jvm": (9, -480, int, ("from",), ("from",)),
    "nim": (9, 0, str, ("topic",), ("topic",)),
    "js": (3, None, int, ("from", "topic"), ("from", "topic")),
}
"""Digits, offset (minutes), type of node_id, and the fields of a first and of a later copy."""


@pytest.mark.parametrize("dialect", DIALECTS)
@given(epoch_ns=epochs_ns, number=numbers, sender=names, topic=names, again=st.booleans(), spaces=st.booleans())
def test_a_copy_is_read_from_every_dialect(
    dialect: str, epoch_ns: int, number: int, sender: str, topic: str, again: bool, spaces: bool
) -> None:
    digits, minutes, kind, first, later = DIALECTS[dialect]
    fields = {"from": sender, "topic": topic}
    said = {
        "time": print_time(epoch_ns, digits, minutes, short=dialect == "go"),
        "level": "INFO",
        "msg": "Received Message",
        "service": "gossipsub",
        **{name: fields[name] for name in (later if again else first)},
        "id": str(number),
    }
    separators = (", ", ": ") if spaces else (",", ":")
    receipt = read_line(json.dumps(said, separators=separators).encode())
    assert isinstance(receipt, Receipt)
    assert (receipt.message, receipt.sender, receipt.topic) == (number, said.get("from"), said.get("topic"))
    assert 0 <= epoch_ns - receipt.time.epoch_ns < 10 ** (9 - digits)
    node = number % 1000
    line = json.dumps({"time": said["time"], "msg": "PeerID", "id": sender, "node_id": kind(node)})
    assert read_line(line.encode()) == Identity(node, sender, receipt.time)


@given(st.binary(max_size=200) | st.sampled_from([b"PeerID", b"Received Message"]).map(lambda word: b'"' + word + b'"'))
def test_what_is_no_object_of_json_means_nothing(line: bytes) -> None:
    assert read_line(line) is None


finite = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-(2**63), 2**64 - 1)
values = st.none() | st.booleans() | integers | finite | st.text(max_size=9) | st.just([]) | st.just({})
events = st.fixed_dictionaries(
    {"msg": st.sampled_from(["PeerID", "Received Message"])},
    optional=dict.fromkeys(("time", "id", "node_id", "from", "topic"), values),
)


@given(events)
def test_an_event_with_wrong_values_is_refused_in_one_line(said: dict[str, Any]) -> None:
    line = json.dumps(said).encode()
    try:
        found = read_line(line)
    except LineError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(found, Identity if said["msg"] == "PeerID" else Receipt)


WRONG = {
    '{"msg":"Received Message","time":"2026-01-01T00:00:00Z"}': "expected a number in 'id'",
    '{"msg":"Received Message","id":"-1","time":"2026-01-01T00:00:00Z"}': "expected a number in 'id'",
    '{"msg":"Received Message","id":"1"}': "expected text in 'time'",
    '{"msg":"Received Message","id":"1","time":"yesterday"}': "expected a time as in RFC 3339, got 'yesterday'",
    '{"msg":"Received Message","id":"1","time":"2026-01-01T00:00:00"}': "expected a time as in RFC 3339",
    '{"msg":"PeerID","id":"12D3","node_id":true}': "expected a number in 'node_id'",
    '{"msg":"PeerID","node_id":0}': "expected text in 'id'",
    '{"msg":"PeerID","node_id":0,"id":"12D3"}': "expected text in 'time'",
}


@pytest.mark.parametrize("line", WRONG)
def test_the_reason_names_the_value(line: str) -> None:
    with pytest.raises(LineError, match=WRONG[line]):
        read_line(line.encode())


offsets = st.integers(-(10**15), 10**15)


@given(st.integers(0, 10**15), offsets, st.lists(st.tuples(st.integers(0, 10**9), st.booleans()), min_size=1))
def test_an_event_is_placed_at_the_end_of_what_its_time_allows(
    began_ns: int, offset_ns: int, events: list[tuple[int, bool]]
) -> None:
    """So no message seems to arrive before its packets, though Go leaves out zeros at the end."""
    placing, at_ns, digits = Placing(began_ns, offset_ns), began_ns, 0
    for later_ns, is_short in events:
        at_ns += later_ns
        fine = 3 if is_short else 9
        resolution_ns = 10 ** (9 - fine)
        digits = max(digits, fine)
        first_ns = (at_ns + offset_ns) // resolution_ns * resolution_ns
        placed_ns = placing.place(PrintedTime(first_ns, resolution_ns), at_ns + 50)
        assert placed_ns <= at_ns + 50
        assert placed_ns >= began_ns
        if digits == fine:
            assert at_ns <= placed_ns < at_ns + resolution_ns
        else:
            assert abs(placed_ns - at_ns) < resolution_ns


@pytest.mark.parametrize("off_ns", [-2 * SECOND_NS, SECOND_NS])
def test_a_time_that_cannot_be_is_refused(off_ns: int) -> None:
    """Such as after the wall clock was set."""
    placing = Placing(0, 5 * SECOND_NS)
    with pytest.raises(LineError, match="not between its start and now on this machine"):
        placing.place(PrintedTime(6 * SECOND_NS + off_ns, 1), SECOND_NS - 2 * TOLERANCE_NS)
